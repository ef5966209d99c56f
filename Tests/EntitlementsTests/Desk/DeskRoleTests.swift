import Entitlements
import Testing

/// Who may do what at the desk.
@Suite struct DeskRoleTests {
    @Test(arguments: DeskDuty.allCases)
    func `Somebody has each duty`(duty: DeskDuty) {
        #expect(!duty.roles.isEmpty)
        for role in DeskRole.allCases { #expect(role.may(duty) == duty.roles.contains(role)) }
    }

    @Test func `Who only reads changes nothing`() {
        let reading: Set<DeskDuty> = [.view, .reveal, .audit]
        for role in [DeskRole.viewer, .auditor] {
            for duty in DeskDuty.allCases where role.may(duty) { #expect(reading.contains(duty), "\(role) \(duty)") }
        }
        #expect(!DeskRole.viewer.may(.reveal))
    }

    @Test func `Who makes operators decides no ticket`() {
        let deciding: [DeskDuty] = [.work, .refuse, .lend, .approve, .transfer, .override]
        for duty in deciding { #expect(!DeskRole.admin.may(duty), "\(duty)") }
        #expect(DeskDuty.manage.roles == [.admin])
    }

    @Test(arguments: [DeskDuty.approve, .transfer, .override, .retry, .manage])
    func `Whoever can do harm signs in with a second factor`(duty: DeskDuty) {
        for role in duty.roles { #expect(role.needsSecondFactor, "\(role)") }
    }

    @Test func `A senior may all that an approver may, who may all that an agent may`() {
        for duty in DeskDuty.allCases {
            if DeskRole.agent.may(duty) { #expect(DeskRole.approver.may(duty)) }
            if DeskRole.approver.may(duty) { #expect(DeskRole.senior.may(duty)) }
        }
    }
}
