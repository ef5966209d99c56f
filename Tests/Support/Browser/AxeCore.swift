import Dispatch
import Glibc

/// The accessibility rules of axe-core, from the Python package that brings the newest.
///
/// - SeeAlso: https://github.com/dequelabs/axe-core
enum AxeCore {
    private static let package = "axe-playwright-python==0.1.8"
    private static let version = "4.12.1"
    private static let queue = DispatchQueue(label: "test.axe")
    private static let installed = Task {
        let kept = "\(Files.packageFolder)/.build/axe-core-\(version).js"
        if let source = try? read(kept) { return source }
        do {
            try await queue.run { try install(at: kept) }
            return try read(kept)
        } catch {
            throw BrowserFailure(
                """
                axe-core \(version) could not be installed from PyPI (\(package)), which takes python3 with venv, as \
                deploy/test.sh installs it, and a network: \(error)
                """
            )
        }
    }

    /// The script; installed from PyPI once, and kept beside what the package builds.
    static var source: String { get async throws { try await installed.value } }

    private static func read(_ path: String) throws -> String {
        let source = try Files.read(path)
        guard source.hasPrefix("/*! axe v\(version)\n") else { throw BrowserFailure("\(path) is another version") }
        return source
    }

    private static func install(at path: String) throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { Files.remove(folder) }
        // Renamed when it is whole: others may install it as well, or read it. When this process is killed meanwhile, the
        // script goes on, and removes the folder itself.
        let script = """
            set -e
            trap 'kill -0 "$4" 2>/dev/null || rm -rf "$1"' EXIT
            python3 -m venv "$1/venv"
            "$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
                --target "$1/site" "$2"
            mkdir -p "${3%/*}"
            cp "$1/site/axe_playwright_python/axe.min.js" "$3.$$"
            mv "$3.$$" "$3"
            """
        // Interrupted or not, it takes a limited time.
        try ChildProcess.run(
            ["/usr/bin/env", "timeout", "300", "/bin/sh", "-c", script, "sh", folder, package, path, "\(getpid())"],
            log: folder + "/log"
        )
    }
}
