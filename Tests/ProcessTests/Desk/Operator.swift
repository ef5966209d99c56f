import Crypto
import Foundation
import Testing

/// An operator at a terminal: their files and their commands.
struct Operator: Sendable {
    static let password = "a horse of another colour"

    /// The program's environment.
    let settings: [String: String]
    let name: String
    /// The folder of their session and secrets.
    let folder: String
    private let secret: [UInt8]

    /// All that an operator has, and could take to another place.
    struct Belongings: Sendable {
        fileprivate var name: String
        fileprivate var secret: [UInt8]
        fileprivate var files: [String: Data]
    }

    /// Signs in for the first time, with the password that an admin was given for them.
    ///
    /// - Parameters:
    ///   - name: the operator's.
    ///   - initial: the password of the first sign-in.
    ///   - folder: an empty one.
    ///   - settings: of the site.
    /// - Throws: when the sign-in is refused.
    init(_ name: String, initial: String, folder: String, settings: [String: String]) async throws {
        self.settings = settings
        self.name = name
        self.folder = folder
        secret = (0..<20).map { _ in UInt8.random(in: .min ... .max) }
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try write(initial, "initial")
        try write(Self.password, "password")
        try write(Self.base32(secret), "device")
        let ending = try await run(
            "operator",
            "login",
            name,
            "--password-file",
            path("initial"),
            "--new-password-file",
            path("password"),
            "--new-device-file",
            path("device"),
            "--code",
            code()
        )
        try #require(ending.code == 0, "\(ending)")
    }

    /// Somebody who signs in elsewhere, with a device's secret in base32.
    init(_ name: String, device: String, at site: Site) throws {
        settings = site.settings
        self.name = name
        folder = ""
        secret = try #require(Self.bytes(base32: device))
    }

    /// Somebody who comes with what they have.
    ///
    /// - Parameters:
    ///   - belongings: what they have.
    ///   - folder: where it is put; made here.
    ///   - site: where they come.
    /// - Throws: what the file system does.
    init(_ belongings: Belongings, folder: String, at site: Site) throws {
        settings = site.settings
        name = belongings.name
        self.folder = folder
        secret = belongings.secret
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        for (file, content) in belongings.files {
            // A session that others may read is refused.
            let isWritten = FileManager.default.createFile(
                atPath: path(file),
                contents: content,
                attributes: [.posixPermissions: 0o600]
            )
            try #require(isWritten, "\(path(file))")
        }
    }

    /// What they have now.
    func belongings() throws -> Belongings {
        let names = try FileManager.default.contentsOfDirectory(atPath: folder)
        let files = try names.map { ($0, try Data(contentsOf: URL(fileURLWithPath: path($0)))) }
        return Belongings(name: name, secret: secret, files: Dictionary(files) { $1 })
    }

    /// Signs in again, with the code of the half minute after the last one.
    func signIn(_ code: String) async throws -> Program.Ending {
        try await run("operator", "login", name, "--password-file", path("password"), "--code", code)
    }

    /// Runs the program in the operator's name.
    func run(_ words: String...) async throws -> Program.Ending {
        try await Site.run(words + ["--session", path("session")], settings: settings)
    }

    /// Adds an operator, who signs in; a second admin has to confirm the account.
    func add(_ name: String, _ role: String) async throws -> Operator {
        let added = try await run("operator", "add", name, "--role", role, "--output", "json")
        try #require(added.code == 0, "\(added)")
        return try await Operator(
            name,
            initial: try Self.password(added.out),
            folder: folder + "-" + name,
            settings: settings
        )
    }

    /// The initial password that `operator add` prints.
    static func password(_ json: String) throws -> String {
        struct Added: Decodable { var password: String }
        return try JSONDecoder().decode(Added.self, from: Data(json.utf8)).password
    }

    /// The device's code of now, or of some half minutes later.
    func code(later: Int64 = 0) -> String {
        let period = Int64(Date().timeIntervalSince1970) / 30 + later
        let counter = withUnsafeBytes(of: period.bigEndian) { Data($0) }
        let mac = Array(HMAC<Insecure.SHA1>.authenticationCode(for: counter, using: SymmetricKey(data: secret)))
        let offset = Int((mac.last ?? 0) & 0x0F)
        let number = mac[offset..<offset + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) } & 0x7FFF_FFFF
        let text = String(number % 1_000_000)
        return String(repeating: "0", count: 6 - text.count) + text
    }

    private func path(_ file: String) -> String { folder + "/" + file }

    private func write(_ text: String, _ file: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path(file)))
    }

    private static func bytes(base32 text: String) -> [UInt8]? {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
        let values = text.filter { $0 != " " }.compactMap { alphabet.firstIndex(of: $0) }
        let bits = values.flatMap { value in (0..<5).map { value >> (4 - $0) & 1 } }
        return bits.count == 160
            ? stride(from: 0, to: 160, by: 8).map { bits[$0..<$0 + 8].reduce(0) { $0 << 1 | UInt8($1) } } : nil
    }

    private static func base32(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
        let bits = bytes.flatMap { byte in (0..<8).map { byte >> UInt8(7 - $0) & 1 } }
        return String(
            stride(from: 0, to: bits.count, by: 5).map { start in
                alphabet[bits[start..<start + 5].reduce(0) { $0 << 1 | Int($1) }]
            }
        )
    }
}
