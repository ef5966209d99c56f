extension Browser {
    /// Turns a driver's refusal into a failure that tells what the page showed.
    func explained<Value>(_ what: String, _ work: () async throws -> Value) async throws -> Value {
        do {
            return try await work()
        } catch let refusal as WebDriverClient.Refusal {
            throw await failure("\(what): \(refusal)")
        }
    }

    /// A failure with what the page shows.
    func failure(_ message: String) async -> BrowserFailure {
        await BrowserFailure("\(message)\n\(pageDescription)")
    }

    /// The page's address, title and the beginning of its visible text.
    package var pageDescription: String {
        get async {
            let look = "return [location.href, document.title, document.body ? document.body.innerText : '']"
            do {
                let parts = try await rawScript(look, []).list?.map { $0.text ?? "" } ?? []
                guard parts.count == 3 else { return "no page" }
                return "page \(parts[0]) “\(parts[1])”:\n\(parts[2].prefix(2000))"
            } catch {
                return "no page: \(error)"
            }
        }
    }
}
