/// A webhook as a store would post it, ready to be posted.
package struct WebhookPost: Sendable, Hashable {
    /// The headers that say who sends it; beside them goes a content type of `application/json`.
    package var headers: [String: String]
    /// The exact bytes of the body, which are UTF-8: what is signed is these.
    package var body: String

    /// The webhook as the control endpoint shows it.
    var reply: Reply {
        var json = JSONBytes()
        json.beginObject()
        json.key("headers")
        json.beginObject()
        for (name, value) in headers.sorted(by: { $0.key < $1.key }) {
            json.key(name)
            json.value(value)
        }
        json.endObject()
        json.key("body")
        json.value(body)
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }
}
