/// A point in time as a scenario writes it.
///
/// Written as `+12d`, `-3h`, `+1d12h`, `now` (relative to the simulated time at which the scenario, or the control
/// request, is applied) or as whole Unix milliseconds.
package enum Moment: Sendable, Hashable {
    /// Unix time in milliseconds.
    case absolute(milliseconds: Int64)
    /// Distance in milliseconds from the moment of application; negative is the past.
    case offset(milliseconds: Int64)

    /// Days from now, negative for the past.
    static func days(_ days: Int64) -> Moment {
        .offset(milliseconds: days * TimeText.day)
    }

    /// Unix milliseconds of this moment when `now` (Unix milliseconds) is the anchor.
    func milliseconds(from now: Int64) -> Int64 {
        switch self {
        case .absolute(let milliseconds): milliseconds
        case .offset(let milliseconds): now + milliseconds
        }
    }
}

extension Moment: Codable {
    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let milliseconds = try? container.decode(Int64.self) {
            // A signed bare number such as `+12` was surely meant to carry a unit.
            self = .absolute(milliseconds: milliseconds)
            return
        }
        let text = try container.decode(String.self)
        guard text != "now" else {
            self = .offset(milliseconds: 0)
            return
        }
        guard let sign = text.first, sign == "+" || sign == "-", let distance = TimeText.milliseconds(text.dropFirst())
        else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "is no moment; write +12d, -3h30m, now, or Unix milliseconds"
            )
        }
        self = .offset(milliseconds: sign == "-" ? -distance : distance)
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .absolute(let milliseconds): try container.encode(milliseconds)
        case .offset(let milliseconds): try container.encode("\(milliseconds < 0 ? "" : "+")\(milliseconds)ms")
        }
    }
}
