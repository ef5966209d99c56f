import Entitlements
import Foundation
import HTTPTypes
package import Logging
package import SignedTokens
import Telemetry
import TextFormats
package import Transport

/// Reads orders in Onside's merchant API and verifies what Onside has signed, and changes nothing there.
///
/// Onside tells only about orders whose ids are known: nothing here lists what a user owns.
package struct OnsideClient: Sendable {
    enum Endpoint: Int {
        case history, keys

        static let templates = ["/merchant-api/v1/purchases/in-app/history/{order}", "/.well-known/jwks.json"]
    }

    let configuration: OnsideConfiguration
    let requester: StoreRequester
    let gate: RequestPermit
    let logger: Logger
    let throttle = LogThrottle<ReadFailure.Code>()
    let keys: KeySet
    let systemSeconds: @Sendable () -> Int64

    /// Makes a client; metrics go to the system that is bootstrapped by now.
    ///
    /// The gate admits each request and gets each answer. The logger hears of failures; of no ids, tokens and bodies.
    /// `systemSeconds`, in seconds since 1970, dates the tokens. The key set is empty at first.
    package init(
        configuration: OnsideConfiguration,
        http: HTTPClient,
        gate: RequestPermit,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) },
        keys: KeySet = KeySet(of: .onside)
    ) {
        self.configuration = configuration
        self.gate = gate
        self.logger = logger
        self.systemSeconds = systemSeconds
        self.keys = keys
        requester = StoreRequester(.onside, Endpoint.templates, http, logger, systemSeconds)
    }

    /// Reads the lines behind some order ids.
    ///
    /// A failure never passes for an absence: what was read beside it stays, as evidence for access alone.
    package func read(_ query: OnsideQuery) async -> OnsideReading {
        let (asked, impossible, isCut) = query.orders
        let answers = await withTaskGroup(of: (Int, Answer).self) { group in
            var answers = Array(repeating: Answer(), count: asked.count)
            for (index, order) in asked.enumerated() {
                if index >= OnsideQuery.maximumAtOnce, let (index, answer) = await group.next() {
                    answers[index] = answer
                }
                group.addTask { (index, await ask(order, query)) }
            }
            for await (index, answer) in group { answers[index] = answer }
            return answers
        }
        var reading = OnsideReading(
            coverage: .full,
            failure: answers.lazy.compactMap(\.failure).first ?? (isCut ? named(.incomplete) : nil),
            requests: answers.reduce(0) { $0 + $1.requests },
            unknown: impossible
        )
        for (order, answer) in zip(asked, answers) where answer.isUnknown { reading.unknown.append(order.spelling) }
        reading.hasUnreadable = answers.contains(where: \.hasOdd)
        for line in OnsideLine.lines(of: answers.flatMap(\.transactions), query) {
            if let observation = line.observation {
                reading.observations.append(observation)
            } else {
                reading.hasUnreadable = true
            }
        }
        if reading.failure != nil {
            reading.coverage = answers.allSatisfy { $0.failure != nil } ? .none : .partial
        }
        if reading.requests > 0 { requester.recordRead(requests: reading.requests) }
        return reading
    }

    /// Verifies a signed history that the app sent (`onside_history`), a compact JWS of at most 1 MiB.
    ///
    /// It proves which orders of our app an Onside account holds. Whether they still give access, and which user has
    /// it, only a read of Onside shows.
    package func history(_ text: String) async throws(OnsideProofFailure) -> OnsideHistory {
        let signed: CompactJWS
        do throws(ProofRefusal) {
            signed = try CompactJWS(text, upTo: OnsideHistory.maximumBytes)
        } catch { throw .refused(error) }
        return try await verify(signed, lane: .restore)
    }

    /// Verifies a signed history with Onside's key set, as JSON, and without a request; no `bundleID` takes any app.
    package static func history(
        _ text: String,
        keySet: String,
        bundleID: String?
    ) throws(ProofRefusal) -> OnsideHistory {
        let signed = try CompactJWS(text, upTo: OnsideHistory.maximumBytes)
        let name = try keyName(in: signed.header())
        let keys: [String: VerificationKey]
        do throws(JSONFault) { keys = try JSONWebKeys.read(Array(keySet.utf8)) } catch {
            throw ProofRefusal(.unknownKey, "The key set is not a set of public keys.")
        }
        guard let key = keys[name] else { throw unknownKey }
        return try verify(signed, with: key, bundleID: bundleID)
    }

    /// What a text in a signed history's form says, unverified.
    package static func unverified(_ text: String) -> OnsideHistory? {
        guard let signed = try? CompactJWS(text, upTo: OnsideHistory.maximumBytes) else { return nil }
        return try? OnsideHistory(payload: signed.payload)
    }

    /// A request for something below the base URL.
    func call(_ endpoint: Endpoint, path: String, accept: String, bearer: String? = nil, lane: Lane) -> StoreCall {
        let base = configuration.base
        let request = HTTPRequest(.get, base, path: base.path + path, accept: accept, bearer: bearer)
        return StoreCall(endpoint: endpoint.rawValue, request: request, gate: gate, lane: lane)
    }
}
