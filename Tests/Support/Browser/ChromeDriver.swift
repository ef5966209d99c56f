import Dispatch
import Glibc
import Synchronization

/// A chromedriver with the browsers that it starts; everything of it is gone when this process is.
///
/// The shared one is started once a process, by the first test that needs it.
package final class ChromeDriver: Sendable {
    /// Where commands that block run.
    private static let queue = DispatchQueue(label: "test.chromedriver")
    private static let sharedDriver = Task { try await start() }

    /// Holds profiles, settings, caches and the log; removed at the end.
    package let folder: String
    let port: Int
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
        get async throws { try await sharedDriver.value }
    }

    /// Starts a driver of one's own; ends with the process, or with `stop()`.
    package static func start() async throws -> ChromeDriver {
        let programs = try programs { ChildProcess.find($0, also: ["/usr/bin", "/usr/local/bin"]) }
        let (folder, guardian, lifeline) = try await queue.run { try spawn(programs.driver) }
        let log = { (try? Files.read(folder + "/log")) ?? "" }
        let port = try await eventually(within: .seconds(60)) {
            log().firstMatch(of: /started successfully on port (\d+)/).flatMap { Int($0.1) }
        } otherwise: {
            close(lifeline)
            return BrowserFailure("\(programs.driver) does not start: \(log().suffix(2000))")
        }
        return ChromeDriver(
            folder: folder,
            port: port,
            browser: programs.browser,
            guardian: guardian,
            lifeline: lifeline
        )
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

    /// Finds the programs by their names; throws a `BrowserFailure` that says what to install.
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
        // Nothing is read from, or left in, the home of the user who runs the tests.
        let settings = [
            "-u", "XDG_CONFIG_HOME", "-u", "XDG_CACHE_HOME", "-u", "XDG_DATA_HOME", "-u", "DISPLAY",
            "-u", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS=disabled:", "HOME=\(folder)", "TMPDIR=\(folder)",
            "LANG=C.UTF-8", "TZ=UTC",
        ]
        let command = ["/usr/bin/env"] + settings + [driver, "--port=0"]
        let (guardian, lifeline) = try ChildProcess.startGuardian(script, command, output: folder + "/log")
        return (folder, guardian, lifeline)
    }
}
