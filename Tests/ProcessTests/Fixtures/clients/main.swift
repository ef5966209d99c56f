// An app for the tests: calls the Swift client as an app would, one call a process, and prints a JSON line for each thing that
// is shown. Arguments: the call, then its parameters. The environment has API, USER_ID, TOKEN, FRESH_TOKEN, FILE, CLOCK (seconds
// that the device's clock is ahead), PAUSE (the share of each pause that is waited) and JITTER (the share by which pauses are longer).

import Foundation

func say(_ members: [String: Any?]) {
    let known = members.compactMapValues { $0 }
    guard let line = try? JSONSerialization.data(withJSONObject: known, options: .sortedKeys) else { return }
    FileHandle.standardOutput.write(line + Data("\n".utf8))
}

func stepped(_ step: Entitlements.Step) {
    switch step {
    case .askingStore: say(["step": "asking_store"])
    case .sending: say(["step": "sending"])
    case .checking: say(["step": "checking"])
    case .waiting(let seconds): say(["step": "waiting", "seconds": seconds])
    case .stillChecking(let restore): say(["step": "still_checking", "message": restore.message])
    }
}

func say(_ access: Entitlements.Access?) {
    say(["type": access?.type ?? "none", "from_disk": access?.isFromDisk ?? false, "until": access?.until?.description])
}

func say(_ shown: Entitlements.Shown) {
    let restore = shown.restore
    say([
        "ending": shown.ending?.rawValue ?? "none", "outcome": restore?.outcome, "key": restore?.messageKey,
        "message": restore?.message, "reference": restore?.reference, "products": restore?.products.map(\.productId),
    ])
}

func say(_ ticket: Entitlements.Ticket?) {
    say([
        "state": ticket?.state ?? "none", "question": ticket?.question, "message": ticket?.message,
        "reference": ticket?.reference,
    ])
}

let environment = ProcessInfo.processInfo.environment
let arguments = CommandLine.arguments.dropFirst()
guard let api = environment["API"].flatMap({ URL(string: $0) }), let call = arguments.first else { exit(64) }
var client = Entitlements(
    api: api,
    user: environment["USER_ID"] ?? "",
    file: URL(fileURLWithPath: environment["FILE"] ?? "/dev/null"),
    token: { user, isFresh in
        user == environment["USER_ID"] ? environment[isFresh ? "FRESH_TOKEN" : "TOKEN"] ?? "" : "another user's"
    }
)
client.language = "en"
let ahead = environment["CLOCK"].flatMap(Double.init) ?? 0
let share = environment["PAUSE"].flatMap(Double.init) ?? 1
if let jitter = environment["JITTER"].flatMap(Double.init) { client.jitter = { jitter } }
client.now = { Date().addingTimeInterval(ahead) }
client.pause = { try await Task.sleep(for: .seconds($0 * share)) }
let parameters = Array(arguments.dropFirst())

do {
    switch call {
    case "entitlement": say(try await client.entitlement())
    case "last": say(client.lastAnswer())
    case "sign-out":
        let asked = Task { [client] in try await client.entitlement() }
        try await Task.sleep(for: .milliseconds(500))
        await client.forget()
        say(try await asked.value)
        say(client.lastAnswer())
    case "restore":
        let proofs = try JSONDecoder().decode([Entitlements.Proof].self, from: Data(parameters[0].utf8))
        say(try await client.restore(proofs, clientError: parameters.dropFirst().first, onStep: stepped))
    case "purchase":
        say(try await client.afterPurchase(.init(value: parameters[0]), onStep: stepped))
    case "ticket": say(try await client.ticket())
    case "reply":
        guard let ticket = try await client.ticket() else { exit(66) }
        say(["message": try await client.reply(to: ticket, parameters[0])])
    default: exit(64)
    }
} catch Entitlements.Failure.noAnswer(let seconds) {
    say(["failure": "no_answer", "seconds": seconds])
} catch Entitlements.Failure.signIn {
    say(["failure": "sign_in"])
} catch Entitlements.Failure.refused(let problem) {
    say(["failure": "refused", "type": problem.type, "field": problem.field])
}
