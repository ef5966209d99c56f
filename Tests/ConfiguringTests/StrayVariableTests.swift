import Testing

@testable import Configuring

/// Variables that read like ours and are none.
@Suite struct StrayVariableTests {
    @Test(arguments: [
        ("MOOD", "MODE"), ("mode", "MODE"), ("MODEE", "MODE"),
        ("REVENUECAT_REQUESTS_PER_MINUT", "REVENUECAT_REQUESTS_PER_MINUTE"),
        ("DATABSE_URL", "DATABASE_URL"), ("LOGLEVEL", "LOG_LEVEL"), ("OUTBOX_SECRET_FIEL", "OUTBOX_SECRET_FILE"),
        ("HTTP_PROT", "HTTP_PORT"),
    ])
    func `A variable that is nearly one of ours is named with the one that it is like`(_ name: String, _ like: String) {
        let findings = StrayVariables.find(in: [name: "hunter2", "PATH": "/bin", "HOME": "/"])
        #expect(findings == [.init(name: name, like: like)])
    }

    @Test func `A variable that begins as ours do is named`() {
        let findings = StrayVariables.find(in: [
            "REVENUECAT_SECRET": "hunter2", "GOOGLE_PLAY_TOKEN": "x", "JOB_TRIES": "3",
        ])
        #expect(findings.map(\.name) == ["GOOGLE_PLAY_TOKEN", "JOB_TRIES", "REVENUECAT_SECRET"])
        #expect(findings.allSatisfy { $0.like == nil })
    }

    @Test func `Ours and others' variables are no finding`() {
        var environment = Dictionary(
            uniqueKeysWithValues: Variable.allCases.flatMap { [$0.rawValue, $0.fileVariable] }.map { ($0, "x") }
        )
        for name in [
            "PATH", "HOME", "LANG", "USER", "SHELL", "PWD", "TERM", "HOSTNAME", "HTTP_PROXY", "HTTPS_PROXY", "NO_COLOR",
            "PGHOST",
            "JOB_NAME", "LOG_FILE", "ONSIDE_SERVICE_HOST", "ONSIDE_PORT_443_TCP", "ENTITLEMENT_SYNC_RUN",
            "LD_LIBRARY_PATH",
            "KUBERNETES_SERVICE_HOST", "INVOCATION_ID", "JOURNAL_STREAM", "TMPDIR",
        ] { environment[name] = "x" }
        #expect(StrayVariables.find(in: environment) == [])
    }
}
