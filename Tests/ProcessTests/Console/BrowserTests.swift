import Foundation
import TestSupport
import Testing

/// The browser that other tests rely on: it does what users do, and its checks find what is wrong.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct BrowserTests {
    /// A server of good and bad pages.
    private struct Pages {
        let program: Program
        let port: Int

        init() async throws {
            program = try await Program(
                ["/usr/bin/env", "python3", Paths.fixtures + "/browser_pages.py"],
                environment: Site.environment(["PYTHONDONTWRITEBYTECODE": "1"])
            )
            port = try await listeningPort(of: program)
        }

        func url(_ path: String, host: String = "127.0.0.1") -> String { "http://\(host):\(port)\(path)" }
    }

    @Test func `A form is filled in with keys and mouse, sent, and answered`() async throws {
        let pages = try await Pages()
        try await Browser.with { browser in
            try await browser.open(pages.url("/good"))
            #expect(try await browser.title == "Good page")
            #expect(try await browser.text(of: "h1") == "Good page")
            #expect(try await browser.exists("#name"))
            #expect(try await !browser.exists("#done"))
            #expect(try await !browser.text().contains("Never shown"))

            try await browser.type("#name", "Änne ☃")
            #expect(try await browser.value(of: "#name") == "Änne ☃")
            #expect(try await browser.focused()?.description == "textbox “Name” (#name)")
            try await browser.select("#colour", "Green")
            try await browser.click("[value=l]")
            try await browser.submit()
            #expect(try await browser.text(of: "p") == "colour=g name=Änne ☃ size=l")
            #expect(try await browser.url == pages.url("/good"))

            try await browser.open(pages.url("/good"))
            try await browser.keys("j")
            #expect(try await browser.focused()?.name == "First")
            try await browser.keys(.shift(.tab), .shift(.tab))
            #expect(try await browser.focused()?.name == "Send")
            try await browser.click("#name")
            try await browser.leaving { try await browser.keys("nobody", .enter) }
            #expect(try await browser.text(of: "p") == "colour=r name=nobody size=s")
            #expect(try await browser.consoleErrors(expecting: 422) == [])

            try await browser.back()
            try await browser.click("#later")
            try await browser.wait(for: "#done")
            try await browser.wait(forText: "It is later now")
            try await browser.follow("nav a:last-of-type")
            #expect(try await browser.title == "Other page")
            try await browser.wait(forNo: "#done")
        }
    }

    @Test(.full) func `What does not come to pass is told with what the page shows`() async throws {
        let pages = try await Pages()
        try await Browser.with { browser in
            try await browser.open(pages.url("/good"))
            let failures = try await [
                #require(throws: BrowserFailure.self) { try await browser.wait(for: "#never", within: .seconds(1)) },
                #require(throws: BrowserFailure.self) { try await browser.click("#never") },
                #require(throws: BrowserFailure.self) { try await browser.submit() },
                #require(throws: BrowserFailure.self) { try await browser.script("throw new Error('#never')") },
            ]
            for failure in failures {
                for part in ["“Good page”", pages.url("/good"), "Colour"] {
                    #expect(failure.description.contains(part), "\(failure)")
                }
            }
            #expect(failures[0].description.hasPrefix("no #never after 1.0 seconds"), "\(failures[0])")
            #expect(failures[1].description.contains("#never"), "\(failures[1])")
            #expect(failures[2].description.contains("name: Please fill out this field"), "\(failures[2])")
            #expect(failures[3].description.contains("#never"), "\(failures[3])")
            await #expect(throws: BrowserFailure.self) { try await browser.open("http://example.com/") }
        }
    }

    @Test(.full) func `Nothing is found wrong with a good page`() async throws {
        let pages = try await Pages()
        for window in [BrowserWindow.desktop, .phone.dark] {
            try await Browser.with(window) { browser in
                try await browser.open(pages.url("/good"))
                #expect(try await browser.accessibilityFaults() == [])
                let walk = try await browser.walkFocus()
                #expect(walk.faults == [])
                #expect(
                    walk.stops.map(\.name) == [
                        "Home", "Other", "Name", "Colour", "Day", "Small", "Send", "Later", "First", "Second",
                    ]
                )
                #expect(walk.stops.first?.role == "link" && walk.end == .left)
                #expect(try await browser.consoleErrors() == [])
            }
        }
    }

    @Test(.full) func `The focus leaves a page, however many were walked before`() async throws {
        let pages = try await Pages()
        try await Browser.with { browser in
            for turn in 1...4 {
                try await browser.open(pages.url("/other"))
                #expect(try await browser.walkFocus().end == .left, "walk \(turn)")
                try await browser.open(pages.url("/good"))
                let walk = try await browser.walkFocus()
                #expect(walk.end == .left && walk.stops.count == 10, "walk \(turn): \(walk)")
            }
        }
    }

    @Test func `What is wrong with a bad page is found`() async throws {
        let pages = try await Pages()
        try await Browser.with { browser in
            try await browser.open(pages.url("/bad"))
            let faults = try await browser.accessibilityFaults()
            for (rule, selector) in [("color-contrast (serious)", "#faint"), ("label (critical)", "#nameless")] {
                #expect(faults.contains { $0.hasPrefix(rule) && $0.contains(": \(selector): ") }, "\(faults)")
            }
            #expect(try await browser.accessibilityFaults(tags: [.wcag2a]).allSatisfy { !$0.hasPrefix("color-") })
            #expect(try await browser.accessibilityFaults(within: "h1") == [])

            let errors = try await browser.consoleErrors()
            for text in ["security: ", "inline style", "inline script", "/missing.png - Failed to load resource"] {
                #expect(errors.contains { $0.contains(text) }, "\(errors)")
            }
            #expect(try await browser.consoleErrors() == [], "each is told once")

            let walk = try await browser.walkFocus()
            for text in [
                "#dead is not reached by Tab", "textbox “” (#nameless) has no accessible name",
                "link “Without a ring” (#unseen) does not show that it has the focus",
                "textbox “” (#nameless) stands before link “Out of turn” (#early), but has the focus after it",
            ] {
                #expect(walk.faults.contains(text), "\(walk.faults)")
            }
            #expect(walk.faults.count == 4, "\(walk.faults)")

            try await browser.open(pages.url("/trap"))
            let trapped = try await browser.walkFocus()
            #expect(trapped.end == .trapped("#pit"))
            #expect(
                trapped.faults == ["#beyond is not reached by Tab", "the focus never leaves: it comes back to #pit"]
            )
        }
    }

    @Test(
        .full,
        arguments: [
            (BrowserWindow.desktop, "1280x900 @1 light"), (.desktop.dark, "1280x900 @1 dark"),
            (.desktop.calm, "1280x900 @1 light calm"), (.phone, "390x844 @1 light touch"),
            (.desktop.zoomed, "640x450 @2 light"), (.phone.dark, "390x844 @1 dark touch"),
        ]
    )
    func `A page sees the window that the test asked for, on its next pages too`(
        window: BrowserWindow,
        seen: String
    ) async throws {
        let pages = try await Pages()
        try await Browser.with(window) { browser in
            for host in ["127.0.0.1", "localhost"] {
                try await browser.open(pages.url("/good", host: host))
                let answer = try await browser.script(
                    """
                    const is = query => matchMedia(query).matches;
                    return `${innerWidth}x${innerHeight} @${devicePixelRatio} `
                        + (is("(prefers-color-scheme: dark)") ? "dark" : "light")
                        + (is("(prefers-reduced-motion: reduce)") ? " calm" : "")
                        + (is("(pointer: coarse)") ? " touch" : "");
                    """
                )
                #expect(answer.text == seen)
            }
        }
    }

    @Test(.full) func `Pages of a browser without scripts run none, and tests still do`() async throws {
        let pages = try await Pages()
        try await Browser.with(.desktop.scriptless) { browser in
            try await browser.open(pages.url("/good"))
            try await browser.keys("j")
            #expect(try await browser.focused() == nil)
            try await browser.type("#name", "Ann")
            try await browser.follow("#send")
            #expect(try await browser.text(of: "p") == "colour=r name=Ann size=s")
        }
    }

    @Test(.full) func `A screenshot shows the whole page`() async throws {
        let wish = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_SCREENSHOTS"] ?? ""
        #expect(Browser.screenshotFolder == (wish.isEmpty ? Paths.folder + "/.screenshots" : wish))
        let pages = try await Pages()
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        for (window, scale) in [(BrowserWindow.desktop, 1), (.phone, 1), (.desktop.zoomed, 2)] {
            try await Browser.with(window) { browser in
                try await browser.open(pages.url("/good"))
                let path = "\(folder)/new/\(window.width)@\(scale).png"
                try await browser.screenshot(to: path)
                let bytes = try [UInt8](Data(contentsOf: URL(filePath: path)))
                try #require(
                    bytes.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) && bytes.count > 5000
                )
                func number(at place: Int) -> Int { bytes[place..<place + 4].reduce(0) { $0 << 8 | Int($1) } }
                #expect(number(at: 16) == window.width, "in pixels of the device")
                #expect(number(at: 20) > 1500 * scale, "in pixels of the device")
            }
        }
    }

    @Test(.full, arguments: ["127.0.0.1", "localhost"])
    func `A cookie for secure connections is kept and sent over plain HTTP on loopback`(host: String) async throws {
        let pages = try await Pages()
        try await Browser.with { browser in
            try await browser.open(pages.url("/cookie", host: host))
            let cookie = try #require(try await browser.cookie("__Host-x"))
            #expect(cookie.value == "1" && cookie.path == "/" && cookie.domain == host && cookie.expiry == nil)
            #expect(cookie.secure == true && cookie.httpOnly == true && cookie.sameSite == "Strict")
            #expect(try await browser.script("return document.cookie") == "")
            try await browser.open(pages.url("/seen", host: host))
            #expect(try await browser.text(of: "p") == "__Host-x=1")

            try await browser.forgetCookies()
            try await browser.setCookie(BrowserCookie("other", "2"))
            try await browser.reload()
            #expect(try await browser.text(of: "p") == "other=2")
        }
    }

    @Test(.full) func `Sessions know nothing of each other`() async throws {
        let pages = try await Pages()
        try await Browser.with { ann in
            try await ann.open(pages.url("/cookie"))
            try await Browser.with { ben in
                try await ben.open(pages.url("/seen"))
                #expect(try await ben.text(of: "p") == "nothing")
            }
            try await ann.open(pages.url("/seen"))
            #expect(try await ann.text(of: "p") == "__Host-x=1")
        }
    }

    @Test(.full) func `A driver that is stopped leaves neither a process nor a file, whatever was open`() async throws {
        let pages = try await Pages()
        let driver = try await ChromeDriver.start()
        await #expect(throws: BrowserFailure.self) {
            try await Browser.with(on: driver) { browser in
                try await browser.open(pages.url("/good"))
                try await driver.stop()
                #expect(!FileManager.default.fileExists(atPath: driver.folder))
                _ = try await browser.title
            }
        }
        try await eventually("all its processes are gone") {
            Self.commandLines().allSatisfy { !$0.contains(driver.folder) }
        }
    }

    @Test func `Where there is no browser, what to do is told`() throws {
        for name in ["chromedriver", "chromium", "none"] {
            let failure = try #require(throws: BrowserFailure.self) {
                try ChromeDriver.programs { $0 == name ? "/usr/bin/\(name)" : nil }
            }
            #expect(failure.description.contains("run deploy/test.sh"), "\(failure)")
            #expect(failure.description.contains("apt-get install chromium chromium-driver"), "\(failure)")
        }
    }

    /// How the processes of this machine were called.
    private static func commandLines() -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { name in
            guard Int(name) != nil, let data = FileManager.default.contents(atPath: "/proc/\(name)/cmdline") else {
                return nil
            }
            return String(decoding: data, as: UTF8.self)
        }
    }
}
