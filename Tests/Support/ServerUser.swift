import Glibc

/// The user that database servers run as: PostgreSQL refuses to run as root, so root runs it as another one.
enum ServerUser {
    /// `nil`: this process's own user.
    static let name: String? = {
        guard getuid() == 0 else { return nil }
        // Accounts of the system: that of Debian's package, else the one without rights that each system has.
        return ["postgres", "nobody"].first { getpwnam($0) != nil }
    }()

    /// What a command has to begin with to run as that user.
    static let prefix: [String] = {
        guard let name, let entry = getpwnam(name) else { return [] }
        if let setpriv = ChildProcess.find("setpriv", also: ["/usr/bin"]) {
            return [setpriv, "--reuid=\(name)", "--regid=\(entry.pointee.pw_gid)", "--init-groups"]
        }
        guard let runuser = ChildProcess.find("runuser", also: ["/sbin", "/usr/sbin"]) else { return [] }
        return [runuser, "-u", name, "--"]
    }()

    /// Gives a file or directory to that user.
    static func own(_ path: String) throws {
        guard let name, let entry = getpwnam(name) else { return }
        guard chown(path, entry.pointee.pw_uid, entry.pointee.pw_gid) == 0 else {
            throw ChildProcess.Failure(description: "chown failed: \(errno)")
        }
    }
}
