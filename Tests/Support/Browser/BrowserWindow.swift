/// The window that a page sees.
package struct BrowserWindow: Sendable, Hashable {
    /// The viewport in CSS pixels at a zoom of 1.
    package var width: Int
    var height: Int
    /// Whether it is a phone: with touch, and a viewport that pages have to ask for.
    var isPhone = false
    var isDark = false
    var isCalm = false
    /// How much larger the user wants everything; 2 is 200 %.
    var zoom = 1
    /// Whether pages may run scripts; those of tests run in any case.
    var runsScripts = true

    package static let desktop = BrowserWindow(width: 1280, height: 900)
    package static let phone = BrowserWindow(width: 390, height: 844, isPhone: true)

    package var dark: BrowserWindow { with { $0.isDark = true } }
    package var calm: BrowserWindow { with { $0.isCalm = true } }
    /// The same at 200 %: half as many CSS pixels each way, each twice as large.
    package var zoomed: BrowserWindow { with { $0.zoom = 2 } }
    /// The same without scripts of the page's own.
    package var scriptless: BrowserWindow { with { $0.runsScripts = false } }

    private func with(_ change: (inout BrowserWindow) -> Void) -> BrowserWindow {
        var window = self
        change(&window)
        return window
    }

    /// The browser's commands for it, in this order.
    var commands: [(name: String, parameters: PageValue)] {
        [
            (
                "Emulation.setDeviceMetricsOverride",
                [
                    "width": .number(Double(width / zoom)), "height": .number(Double(height / zoom)),
                    "deviceScaleFactor": .number(Double(zoom)), "mobile": .flag(isPhone),
                ]
            ),
            ("Emulation.setTouchEmulationEnabled", ["enabled": .flag(isPhone)]),
            (
                "Emulation.setEmulatedMedia",
                [
                    "features": [
                        ["name": "prefers-color-scheme", "value": isDark ? "dark" : "light"],
                        ["name": "prefers-reduced-motion", "value": isCalm ? "reduce" : "no-preference"],
                    ]
                ]
            ),
            ("Emulation.setScriptExecutionDisabled", ["value": .flag(!runsScripts)]),
        ]
    }
}
