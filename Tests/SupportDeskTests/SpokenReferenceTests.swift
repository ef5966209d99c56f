import SupportDesk
import Testing

/// References as people read them out.
@Suite struct SpokenReferenceTests {
    @Test(
        arguments: [
            ("T-7FFO-9R", ["T-7FF0-9R"]), ("t7ff09r", ["T-7FF0-9R"]), ("r 7k3q 92", ["R-7K3Q-92"]),
            ("7FF0-9R", ["T-7FF0-9R", "R-7FF0-9R"]), ("T-ILOo-01", ["T-1100-01"]),
            ("", []), ("T", []), ("x7ff09r", []), ("T-7FF0-9", ["T-T7FF-09", "R-T7FF-09"]), ("T-7FF0-9RR", []),
            ("T-7FU0-9R", []), ("7FFé-9R", []), ("a mail", []),
        ] as [(String, [String])]
    )
    func `What is written otherwise is read as what it may mean`(_ text: String, _ readings: [String]) {
        #expect(SpokenReference.readings(of: text) == readings)
    }
}
