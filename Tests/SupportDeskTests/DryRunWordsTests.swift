import Foundation
@testable import SupportDesk
import Testing

/// What a reconcile would do, in a sentence.
@Suite struct DryRunWordsTests {
    @Test(
        arguments: [
            (
                #""outcome":"promoted","type_before":"free","type_after":"subscriber","assets":3"#,
                "A reconcile would make this user a subscriber instead of free, and unfreeze 3 assets."
            ),
            (
                #""outcome":"demoted","type_before":"subscriber","type_after":"free","assets":1"#,
                "A reconcile would make this user free instead of a subscriber, and freeze 1 asset."
            ),
            (
                #""outcome":"unchanged","type_before":"subscriber","type_after":"subscriber","assets":2"#,
                "A reconcile would unfreeze 2 assets."
            ),
            (
                #""outcome":"deferred","type_before":"subscriber","type_after":"subscriber","assets":0"#,
                "A reconcile would change nothing: the user stays subscriber."
            ),
            (#""outcome":"not_eligible","assets":0"#, "A reconcile would change nothing: the user stays as they are."),
            (
                #""outcome":"store_unavailable","error":"throttled","assets":0"#,
                "The stores did not say all that a decision needs (throttled). A reconcile would change nothing, and try again."
            ),
        ]
    )
    func `What would change is said first`(json: String, sentence: String) throws {
        let whole = #"{"asked_at":"2026-11-23","is_paused":false,"# + json + "}"
        let run = try DeskUser.decoder.decode(DeskUser.DryRun.self, from: Data(whole.utf8))
        #expect(DryRunWords.sentence(run) == sentence)
    }
}
