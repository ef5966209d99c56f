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

/// Every answer, and what it means; the first row that holds decides.
let onsideAnswerRules: [(statuses: ClosedRange<Int>, outcome: OnsideAnswer)] = [
    // status    outcome
    (200...200, .content),
    // An order's history is answered with 200 or it is none.
    (201...299, .failure(.malformed)),
    // Redirects are not followed: the token goes to the configured host alone.
    (300...399, .failure(.unavailable)),
    (401...401, .unauthorized),
    (403...403, .notOurs),
    (404...404, .notFound),
    // A proxy wants a login.
    (407...407, .failure(.unavailable)),
    (408...408, .failure(.timeout)),
    (429...429, .failure(.throttled)),
    (400...499, .failure(.rejected)),
    (500...599, .failure(.unavailable)),
]

extension OnsideAnswer {
    /// Finds an answer in the table; `unavailable` for statuses that HTTP does not have.
    init(status: Int) {
        let rule = onsideAnswerRules.first { $0.statuses.contains(status) }
        self = rule?.outcome ?? .failure(.unavailable)
    }
}
