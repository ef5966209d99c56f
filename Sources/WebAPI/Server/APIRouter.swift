import HTTPTypes
import Hummingbird

struct APIRouter: Sendable {
    typealias Handler = @Sendable (Request, APIContext) async throws -> Response

    /// One path and what it answers to which method.
    struct Route: Sendable {
        var method: HTTPRequest.Method
        /// A path whose variable parts are in braces.
        var path: String
        var answer: Handler
    }

    /// Methods that a known path is asked with; the others are not known to any path.
    private static let methods: [HTTPRequest.Method] = [
        .get, .post, .put, .patch, .delete, .head, .options, .trace, .connect, .query,
    ]

    let routes: [Route]
    let frame: RequestFrame
    let inFlight: InFlightLimit
    let perAddress: AddressLimit
    var crossOrigin = CrossOrigin(origins: [])

    func router() -> Router<APIContext> {
        let router = Router(context: APIContext.self)
        // Problems too are for the page that asked to read.
        if !crossOrigin.origins.isEmpty { router.add(middleware: crossOrigin) }
        router.add(middleware: frame)
        router.add(middleware: inFlight)
        router.add(middleware: perAddress)
        for route in routes {
            router.on(Self.pattern(route.path), method: route.method) { request, context in
                try await route.answer(request, context)
            }
        }
        for (path, known) in Dictionary(grouping: routes, by: \.path) {
            let allowed = known.map(\.method.rawValue).sorted().joined(separator: ", ")
            for method in Self.methods where !known.contains(where: { $0.method == method }) {
                router.on(Self.pattern(path), method: method) { request, _ -> Response in
                    if method == .options,
                        let answer = crossOrigin.preflight(request, path: path, methods: allowed)
                    {
                        return answer
                    }
                    var problem = Problem(.methodNotAllowed, fix: "Use \(allowed).")
                    problem.headers[.allow] = allowed
                    throw problem
                }
            }
        }
        return router
    }

    private static func pattern(_ path: String) -> RouterPath {
        RouterPath(path.replacing("{", with: ":").replacing("}", with: ""))
    }
}
