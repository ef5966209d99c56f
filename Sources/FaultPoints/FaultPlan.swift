#if FAULT_POINTS
    import Glibc
    import Synchronization

    /// Which faults happen where, how often, in this process; for tests alone.
    ///
    /// Written `point=action@occurrence`, several with `;` between them: `commit.lost_answer=drop@7` is the seventh
    /// time, `statement.before=kill@~0.002` each time with that probability. `seed=N` makes other random choices.
    package final class FaultPlan: Sendable {
        /// What happens at a point.
        package enum Action: Hashable, Sendable {
            /// The process kills itself.
            case kill
            /// The process stops itself, until it is sent SIGCONT.
            case stop
            /// The caller waits.
            case delay(milliseconds: Int)
            /// The connection is torn.
            case drop
            /// The other side refuses.
            case error
        }

        /// What is left for the caller to do.
        package enum Outcome: Sendable { case drop, error }

        /// Why a plan can't be read.
        package struct Malformed: Error, CustomStringConvertible {
            package var description: String
        }

        private struct Rule {
            var point: FaultPoint
            var action: Action
            var occurrence: Occurrence
        }

        private enum Occurrence {
            case once(Int)
            case each(probability: Double)
        }

        private struct State {
            var reached: [FaultPoint: Int] = [:]
            var random: UInt64
        }

        /// The environment variable that holds a plan.
        package static let variable = "ENTITLEMENT_SYNC_FAULTS"
        private static let current = Mutex<FaultPlan?>(nil)
        private let rules: [Rule]
        private let state: Mutex<State>

        package init(_ text: String) throws(Malformed) {
            var rules: [Rule] = []
            var seed: UInt64 = 1
            for part in text.split(separator: ";") {
                let sides = part.split(separator: "=", maxSplits: 1)
                guard sides.count == 2 else { throw Self.malformed(part) }
                if sides[0] == "seed" {
                    guard let number = UInt64(sides[1]) else { throw Self.malformed(part) }
                    seed = number
                    continue
                }
                let halves = sides[1].split(separator: "@", maxSplits: 1)
                guard halves.count == 2, let point = FaultPoint.allCases.first(where: { $0.name == sides[0] }),
                    let action = Self.action(halves[0], at: point), let occurrence = Self.occurrence(halves[1])
                else { throw Self.malformed(part) }
                rules.append(Rule(point: point, action: action, occurrence: occurrence))
            }
            self.rules = rules
            state = Mutex(State(random: seed))
        }

        private static func malformed(_ part: Substring) -> Malformed {
            Malformed(description: "\(variable): \"\(part)\" is no fault; write point=action@7 or point=action@~0.01")
        }

        private static func action(_ text: Substring, at point: FaultPoint) -> Action? {
            switch text {
            case "kill": return .kill
            case "stop": return .stop
            // The caller of a commit has no more use for the connection, and a transfer's step has none.
            case "drop": return point == .commitAfter || FaultPoint.transfer.contains(point) ? nil : .drop
            // What took place can't have been refused.
            case "error": return [.storeBefore, .statementBefore, .commitBefore].contains(point) ? .error : nil
            default:
                guard text.hasPrefix("delay:") else { return nil }
                return Int(text.dropFirst(6)).flatMap { (0...600_000).contains($0) ? .delay(milliseconds: $0) : nil }
            }
        }

        private static func occurrence(_ text: Substring) -> Occurrence? {
            if text.hasPrefix("~") {
                return Double(text.dropFirst()).flatMap { (0...1).contains($0) ? .each(probability: $0) : nil }
            }
            return Int(text).flatMap { $0 > 0 ? .once($0) : nil }
        }

        /// Makes the plan of an environment, if it has one, this process's.
        package static func arm(_ environment: [String: String]) throws(Malformed) {
            guard let text = environment[variable], !text.isEmpty else { return }
            let plan = try FaultPlan(text)
            current.withLock { $0 = plan }
        }

        /// Lets happen what the process's plan says of a point; returns what is left for the caller.
        package static func reach(_ point: FaultPoint) async -> Outcome? {
            guard let plan = current.withLock({ $0 }) else { return nil }
            guard let action = plan.action(at: point) else { return nil }
            // The proof for the test that it happened; unbuffered, because the process may be about to die.
            let line = Array("fault: \(point.name) \(action)\n".utf8)
            _ = write(STDERR_FILENO, line, line.count)
            switch action {
            case .kill: _ = Glibc.kill(getpid(), SIGKILL)
            case .stop: _ = Glibc.kill(getpid(), SIGSTOP)
            case .delay(let milliseconds): try? await Task.sleep(for: .milliseconds(milliseconds))
            case .drop: return .drop
            case .error: return .error
            }
            return nil
        }

        /// Counts a visit to a point; the first rule that applies wins.
        package func action(at point: FaultPoint) -> Action? {
            let mine = rules.filter { $0.point == point }
            guard !mine.isEmpty else { return nil }
            return state.withLock { state in
                state.reached[point, default: 0] += 1
                return mine.first { rule in
                    switch rule.occurrence {
                    case .once(let number): state.reached[point] == number
                    case .each(let probability): Self.next(&state.random) < probability
                    }
                }?.action
            }
        }

        /// SplitMix64, as a number from 0 to 1.
        private static func next(_ state: inout UInt64) -> Double {
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
            return Double((z ^ (z >> 31)) >> 11) / Double(1 << 53)
        }
    }
#endif
