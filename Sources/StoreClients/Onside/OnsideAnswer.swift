import Entitlements

/// What an answer's status comes to.
enum OnsideAnswer: Hashable, Sendable {
    /// 200: the body is a signed text.
    case content
    /// Our token is not taken.
    case unauthorized
    /// The order is not this merchant's.
    case notOurs
    /// There is no such order, or it is not visible yet.
    case notFound
    case failure(ReadFailure.Code)
}

/// One row of the table of answers.
struct OnsideAnswerRule: Sendable {
    var statuses: ClosedRange<Int>
    var outcome: OnsideAnswer

    init(_ statuses: ClosedRange<Int>, _ outcome: OnsideAnswer) {
        self.statuses = statuses
        self.outcome = outcome
    }
}

/// Every answer, and what it means; the first row that holds decides.
let onsideAnswerRules: [OnsideAnswerRule] = [
    //               status    outcome
    OnsideAnswerRule(200...200, .content),
    // An order's history is answered with 200 or it is none.
    OnsideAnswerRule(201...299, .failure(.malformed)),
    // Redirects are not followed: the token goes to the configured host alone.
    OnsideAnswerRule(300...399, .failure(.unavailable)),
    OnsideAnswerRule(401...401, .unauthorized),
    OnsideAnswerRule(403...403, .notOurs),
    OnsideAnswerRule(404...404, .notFound),
    // A proxy wants a login.
    OnsideAnswerRule(407...407, .failure(.unavailable)),
    OnsideAnswerRule(408...408, .failure(.timeout)),
    OnsideAnswerRule(429...429, .failure(.throttled)),
    OnsideAnswerRule(400...499, .failure(.rejected)),
    OnsideAnswerRule(500...599, .failure(.unavailable)),
]

extension OnsideAnswer {
    /// Finds an answer in the table; `unavailable` for statuses that HTTP does not have.
    init(status: Int) {
        let rule = onsideAnswerRules.first { $0.statuses.contains(status) }
        self = rule?.outcome ?? .failure(.unavailable)
    }
}
