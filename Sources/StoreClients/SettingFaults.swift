/// What is wrong with a store's settings: everything at once, so that nobody mends one fault to find the next.
package struct SettingFaults<Fault>: Error, Hashable, Sendable, CustomStringConvertible
where Fault: RawRepresentable<String> & Hashable & Sendable {
    package var faults: [Fault]

    package init(faults: [Fault]) { self.faults = faults }

    package var description: String { faults.map(\.rawValue).joined(separator: "; ") }
}

extension BaseURL {
    /// Takes a URL apart as one setting of several.
    ///
    /// - Parameters:
    ///   - text: the URL.
    ///   - last: a segment that the path has to end in.
    ///   - malformed: the fault of one that is none.
    ///   - insecure: the fault of one that is plain http to a host other than loopback.
    ///   - faults: where the fault is told.
    /// - Returns: nothing where there is a fault.
    static func read<Noted>(
        _ text: String,
        endingIn last: String? = nil,
        malformed: Noted,
        insecure: Noted,
        _ faults: inout [Noted]
    ) -> BaseURL? {
        Fault.noting(malformed, insecure, &faults) { () throws(Fault) in try BaseURL(text, endingIn: last) }
    }
}

extension BaseURL.Fault {
    /// Makes what a setting's URL stands for; nothing, and its fault noted, where it stands for none.
    static func noting<Value, Noted>(
        _ malformed: Noted,
        _ insecure: Noted,
        _ faults: inout [Noted],
        _ make: () throws(BaseURL.Fault) -> Value
    ) -> Value? {
        do throws(BaseURL.Fault) {
            return try make()
        } catch {
            faults.append(error == .insecure ? insecure : malformed)
            return nil
        }
    }
}
