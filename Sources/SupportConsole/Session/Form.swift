import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import NIOCore

/// What a form sent.
struct Form: Sendable {
    /// Words of 4000 characters, each of up to four bytes, each escaped as three.
    private static let mostBytes = 64 * 1024
    private static let mostFields = 300

    private let fields: [String: [String]]

    /// Reads a form.
    ///
    /// - Throws: `ConsoleFault.refused` for one that is none; an error of the framework where it is too large.
    init(_ request: Request) async throws {
        let type = request.headers[.contentType] ?? ""
        guard type.lowercased().hasPrefix("application/x-www-form-urlencoded") else {
            throw ConsoleFault.refused(.unsupportedMediaType, "This takes a form as browsers send it.")
        }
        let body = try await request.body.collect(upTo: Self.mostBytes)
        fields = try Self.fields(String(buffer: body))
    }

    /// Reads the query of an address.
    ///
    /// - Throws: `ConsoleFault.refused` for one that does not read.
    init(queryOf request: Request) throws { fields = try Self.fields(request.uri.query ?? "") }

    private static func fields(_ text: String) throws -> [String: [String]] {
        var fields: [String: [String]] = [:]
        let pairs = text.split(separator: "&", omittingEmptySubsequences: true)
        guard pairs.count <= mostFields else {
            throw ConsoleFault.refused(.badRequest, "The form has too many fields.")
        }
        for pair in pairs {
            let sides = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = sides.first.flatMap({ decoded($0) }), let value = decoded(sides.count == 2 ? sides[1] : "")
            else {
                throw ConsoleFault.refused(.badRequest, "The form is not escaped as it should be.")
            }
            fields[name, default: []].append(value)
        }
        return fields
    }

    /// The first value of a field; `nil`: it was left empty.
    subscript(_ name: String) -> String? { fields[name]?.first.flatMap { $0.isEmpty ? nil : $0 } }

    /// All values of a field.
    func all(_ name: String) -> [String] { fields[name] ?? [] }

    /// - Throws: `ConsoleFault.crossSite`, where the form does not carry the session's key.
    func check(_ visit: Visit) throws {
        guard let key = self["key"], FormKey(visit.token).matches(key) else { throw ConsoleFault.crossSite }
    }

    /// Spaces are plus signs; browsers end lines with two characters.
    private static func decoded(_ text: Substring) -> String? {
        guard let plain = text.replacing("+", with: " ").removingPercentEncoding?.replacing("\r\n", with: "\n"),
            !plain.utf8.contains(where: { $0 < 0x20 && $0 != 0x0A && $0 != 0x09 })
        else { return nil }
        return plain
    }
}

extension Desk {
    /// Adds a page for those who are signed in.
    func get(
        _ path: RouterPath,
        on routes: RouterGroup<AdminContext>,
        _ body: @escaping @Sendable (Visit, Request, AdminContext) async throws -> Response
    ) {
        routes.get(path) { request, context in try await body(try await Visit(request, desk: self), request, context) }
    }

    /// Adds a form's target for those who are signed in.
    func post(
        _ path: RouterPath,
        on routes: RouterGroup<AdminContext>,
        _ body: @escaping @Sendable (Visit, Form, AdminContext) async throws -> Response
    ) {
        routes.post(path) { request, context in
            let visit = try await Visit(request, desk: self)
            let form = try await Form(request)
            try form.check(visit)
            return try await body(visit, form, context)
        }
    }
}

extension AdminContext {
    /// A number in the path.
    ///
    /// - Throws: `ConsoleFault.notFound`.
    func number(_ name: String) throws -> Int64 {
        guard let text = parameters.get(name), text.utf8.count <= 18, let number = Int64(text), number > 0 else {
            throw ConsoleFault.notFound
        }
        return number
    }
}
