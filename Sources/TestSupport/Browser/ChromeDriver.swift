import Dispatch
import Glibc
import Synchronization

/// A chromedriver with the browsers that it starts; everything of it is gone when this process is.
///
/// The shared one is started once a process, by the first test that needs it.
package final class ChromeDriver: Sendable {
    /// Where commands that block run.
    private static let queue = DispatchQueue(label: "test.chromedriver")
    private static let sharedDriver = Once<String, ChromeDriver>()

    /// Holds profiles, settings, caches and the log; removed at the end.
    package let folder: String
    /// Where it listens, on loopback.
    let port: Int
    /// The browser that it is to start.
    let browser: String
    private let guardian: pid_t
    /// The end of a pipe that only this process holds open; nil once stopped.
    private let lifeline: Mutex<Int32?>

    private init(folder: String, port: Int, browser: String, guardian: pid_t, lifeline: Int32) {
        self.folder = folder
        self.port = port
        self.browser = browser
        self.guardian = guardian
        self.lifeline = Mutex(lifeline)
    }

    /// The driver that all tests of this process share.
    package static var shared: ChromeDriver {
        get async throws { try await sharedDriver.value(for: "") { try await start() } }
    }

    /// Starts a driver of one's own; ends with the process, or with `stop()`.
    ///
    /// - Throws: `BrowserFailure` that tells what to install, or prints the end of the driver's log.
    package static func start() async throws -> ChromeDriver {
        let programs = try programs { ChildProcess.find($0, also: ["/usr/bin", "/usr/local/bin"]) }
        let (folder, guardian, lifeline) = try await queue.run { try spawn(programs.driver) }
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let log = (try? Files.read(folder + "/log")) ?? ""
            if let said = log.firstMatch(of: /started successfully on port (\d+)/), let port = Int(said.1) {
                return ChromeDriver(
                    folder: folder,
                    port: port,
                    browser: programs.browser,
                    guardian: guardian,
                    lifeline: lifeline
                )
            }
            guard ContinuousClock.now < deadline else {
                close(lifeline)
                throw BrowserFailure("\(programs.driver) does not start: \(log.suffix(2000))")
            }
            // It tells nobody but its log.
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    /// Ends the driver and its browsers and removes their files; returns when they are gone.
    package func stop() async throws {
        let end = lifeline.withLock { lifeline in
            defer { lifeline = nil }
            return lifeline
        }
        guard let end else { return }
        let guardian = guardian
        try await Self.queue.run {
            close(end)
            var status: Int32 = 0
            while waitpid(guardian, &status, 0) < 0, errno == EINTR {}
        }
    }

    /// The end of what driver and browsers said.
    var log: String { String(((try? Files.read(folder + "/log")) ?? "").suffix(2000)) }

    /// Finds the programs.
    ///
    /// - Parameter find: the path of a program, by its name.
    /// - Returns: the paths of both.
    /// - Throws: `BrowserFailure` that tells what to install.
    package static func programs(_ find: (String) -> String?) throws -> (driver: String, browser: String) {
        let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
        guard let driver = find("chromedriver"), let browser = names.lazy.compactMap(find).first else {
            throw BrowserFailure(
                """
                no chromium with chromedriver is on the PATH: run deploy/test.sh, which installs both, \
                or apt-get install chromium chromium-driver
                """
            )
        }
        return (driver, browser)
    }

    /// Starts a driver below a shell that ends it and removes its files when this process is gone, however it went.
    ///
    /// The shell waits for the end of a pipe; browsers, which the driver reaches by pipes too, follow the driver.
    private static func spawn(_ driver: String) throws -> (folder: String, guardian: pid_t, lifeline: Int32) {
        let folder = try Files.makeTemporaryDirectory()
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { throw ChildProcess.Failure(description: "pipe failed: \(errno)") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        defer { close(ends[0]) }
        let script = """
            trap '' HUP INT TERM
            "$@" </dev/null &
            read -r _
            kill -KILL $!
            wait $!
            # A browser that is about to die may write into it once more.
            gone=0
            for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
                [ -e '\(folder)' ] && gone=0
                [ $gone -ge 3 ] && break
                rm -rf '\(folder)' && gone=$((gone + 1))
                sleep 0.1
            done
            """
        // In a session of its own, so that what kills the tests' process group spares the shell.
        let session = ChildProcess.find("setsid").map { [$0] } ?? []
        // Nothing is read from, or left in, the home of whoever runs the tests.
        let settings = [
            "-u", "XDG_CONFIG_HOME", "-u", "XDG_CACHE_HOME", "-u", "XDG_DATA_HOME", "-u", "DISPLAY",
            "-u", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS=disabled:", "HOME=\(folder)", "TMPDIR=\(folder)",
            "LANG=C.UTF-8", "TZ=UTC",
        ]
        do {
            let guardian = try ChildProcess.start(
                session + ["/bin/sh", "-c", script, "sh", "/usr/bin/env"] + settings + [driver, "--port=0"],
                input: ends[0],
                output: folder + "/log"
            )
            return (folder, guardian, ends[1])
        } catch {
            close(ends[1])
            throw error
        }
    }
}
