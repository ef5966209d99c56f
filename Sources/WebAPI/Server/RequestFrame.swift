import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import NIOHTTP1
import Postgres
import StoreEvents
import TextFormats

/// Around every request: names it, turns what goes wrong into a problem, and counts it.
struct RequestFrame: RouterMiddleware {
    let log: Logger

    private static let name = HTTPField.Name("X-Request-Id")
    private static let longestID = 64

    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        context.requestID = Self.requestID(request)
        var logger = log
        logger[metadataKey: "request.id"] = "\(context.requestID)"
        context.logger = logger
        let began = ContinuousClock.now
        var response: Response
        do {
            try Self.checkFraming(request)
            response = try await next(request, context)
        } catch {
            let problem = try Self.problem(error, context)
            response = problem.response(requestID: context.requestID)
        }
        // A body after an answer to HEAD would be read as the next answer.
        if request.method == .head { response = response.createHeadResponse() }
        if let name = Self.name { response.headers[name] = context.requestID }
        response.headers[.cacheControl] = response.headers[.cacheControl] ?? "no-store"
        response.headers.refuseRendering()
        APIMetrics.count(context, response, since: began)
        return response
    }

    /// Refuses what a proxy in front may have read otherwise: no host or several, and a body in another coding than chunks alone (RFC
    /// 9112, sections 3.2 and 6.1).
    private static func checkFraming(_ request: Request) throws(Problem) {
        guard request.head.authority != nil, HTTPField.Name("Host").flatMap({ request.headers[$0] }) == nil else {
            throw Self.broken("Host: has to stand there once", field: "Host")
        }
        let codings = request.headers[values: .transferEncoding]
        guard codings.isEmpty || codings.count == 1 && codings[0].lowercased() == "chunked" else {
            throw Self.broken("Transfer-Encoding: may be chunked alone", field: "Transfer-Encoding")
        }
    }

    /// Where such a request ends is not known: nothing behind it is read.
    private static func broken(_ detail: String, field: String) -> Problem {
        var problem = Problem(.invalidField, detail, field: field)
        problem.headers[.connection] = "close"
        return problem
    }

    /// The client's own name of the request where it has a sound one, else a new one.
    private static func requestID(_ request: Request) -> String {
        if let name, let given = request.headers[name], (1...longestID).contains(given.utf8.count),
            given.utf8.allSatisfy({ $0.isLetterOrDigit || "-._".utf8.contains($0) })
        {
            return given
        }
        // 128 bits by chance. Foundation's UUID() would open the system's source of chance for each request.
        return (0..<2).map { _ in
            let digits = String(UInt64.random(in: .min ... .max), radix: 16)
            return String(repeating: "0", count: 16 - digits.utf8.count) + digits
        }.joined()
    }

    /// What the caller is answered after an error.
    ///
    /// - Throws: what ends the connection instead.
    private static func problem(_ error: any Error, _ context: APIContext) throws -> Problem {
        switch error {
        case let problem as Problem:
            return problem
        case let fault as MalformedEvent:
            return Problem(fault)
        case let error as PostgresError:
            return DatabaseProblem.problem(error, context.logger)
        // A body that breaks HTTP itself: nothing on this connection can be trusted any more.
        case is HTTPParserError, is CancellationError:
            throw error
        case let error as any HTTPResponseError where error.status == .contentTooLarge:
            return Problem(
                .bodyTooLarge,
                fix: "Send the newest proof of each purchase, and the signed transaction in place of the receipt."
            )
        case let error as any HTTPResponseError where error.status == .notFound:
            return context.isDown
                ? Problem(.unavailable, "this app can't be served now", retryAfterSeconds: 5) : Problem(.notFound)
        case is NIOTooManyBytesError:
            return Problem(.bodyTooLarge)
        default:
            context.logger.error("a request failed", metadata: ["error.code": "\(type(of: error))"])
            return Problem(.failed)
        }
    }
}

/// What is known of a request beside what it says.
struct APIContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// Names the request in the log and in its answer.
    var requestID: String
    /// The address at the other end of the connection.
    let peer: SocketAddress?
    let channel: any Channel
    /// When the request came.
    let arrival = ContinuousClock.now
    /// The request's place among those of its address.
    var place: InFlightLimit.Place?
    /// Where the routes begin that it reaches.
    var root = "/v1"
    /// It is for an app that can't be served now.
    var isDown = false

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        requestID = ""
        peer = source.channel.remoteAddress
        channel = source.channel
    }
}

extension SecurityLog {
    /// Counts and logs that a request was refused because of who sent it.
    func refused(_ endpoint: String, _ reason: String, _ context: APIContext) {
        refused(endpoint, reason, context.logger)
    }
}
