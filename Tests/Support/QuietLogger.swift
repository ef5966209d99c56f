package import Logging

extension Logger {
    /// A logger that writes only what should never happen in a test.
    package static var quiet: Logger {
        var logger = Logger(label: "tests")
        logger.logLevel = .error
        return logger
    }
}
