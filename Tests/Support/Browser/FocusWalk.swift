/// An element that has, or had, the keyboard's focus.
package struct FocusStop: Sendable, Hashable, CustomStringConvertible {
    /// A place in the page, in CSS pixels from its upper left corner.
    package struct Box: Sendable, Hashable, Decodable {
        package var left: Double
        package var top: Double
        package var width: Double
        package var height: Double

        var right: Double { left + width }
        var bottom: Double { top + height }
    }

    /// Leads to the element.
    package var selector: String
    /// What assistive technology is given, such as `button`.
    package var role: String
    /// What assistive technology is given; empty where it has none.
    package var name: String
    package var box: Box
    /// Whether it stays where it is in the window when the page scrolls.
    package var isFixed: Bool
    /// Whether something else lies over it, or it is out of sight.
    package var isCovered: Bool
    /// What is shown otherwise without the focus, such as `outline: none → 2px solid rgb(0, 0, 255)`; nil while unknown.
    package var changes: [String]?

    package var description: String { "\(role) “\(name)” (\(selector))" }
}

/// What Tab reaches in a page, from its beginning.
package struct FocusWalk: Sendable {
    package enum End: Sendable, Hashable {
        /// The focus left the page after the last element, as it should.
        case left
        /// Tab goes round within elements, from the last stop to the one with this selector.
        case trapped(String)
        case tooLong
    }

    /// In the order of Tab.
    package var stops: [FocusStop]
    package var end: End
    /// Selectors of what can be clicked or filled in and is shown, but was not reached.
    package var missed: [String]

    /// All that is wrong, a line each: elements that are not reached, have no name, do not show the focus, are covered
    /// or come before those that stand before them; and a focus that does not leave.
    package var faults: [String] {
        var faults = missed.map { "\($0) is not reached by Tab" }
        for stop in stops {
            if stop.name.isEmpty { faults.append("\(stop) has no accessible name") }
            if stop.changes == [] { faults.append("\(stop) does not show that it has the focus") }
            if stop.isCovered { faults.append("\(stop) has the focus while it is covered or out of sight") }
        }
        for (earlier, later) in zip(stops, stops.dropFirst()) where Self.goesBack(from: earlier, to: later) {
            faults.append("\(later) stands before \(earlier), but has the focus after it")
        }
        switch end {
        case .left: break
        case .trapped(let selector): faults.append("the focus never leaves: it comes back to \(selector)")
        case .tooLong: faults.append("the focus has not left after \(stops.count) elements")
        }
        return faults
    }

    /// Whether a reader of lines and columns, left to right, sees the second one first.
    private static func goesBack(from earlier: FocusStop, to later: FocusStop) -> Bool {
        // What floats over the page has no place in its order.
        guard !earlier.isFixed, !later.isFixed else { return false }
        let (one, two) = (earlier.box, later.box)
        if two.bottom <= one.top { return two.left < one.right }
        let overlap = min(one.bottom, two.bottom) - max(one.top, two.top)
        return overlap > min(one.height, two.height) / 2 && two.right <= one.left
    }
}
