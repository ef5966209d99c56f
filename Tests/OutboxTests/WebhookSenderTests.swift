import HTTPTypes
import Testing

@testable import Outbox
@testable import Transport

/// What receivers verify: the example that libraries of the Standard Webhooks specification are tested with.
@Suite struct WebhookSenderTests {
    @Test func `Id, time and body are signed`() async throws {
        let (requests, sent) = AsyncStream.makeStream(of: HTTPRequest.self)
        let sender = try WebhookSender(
            url: "https://example.com/changes",
            secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            http: HTTPClient { request, _ throws(HTTPClientFailure) in
                sent.yield(request)
                return HTTPClientResponse(status: 204, headers: [:], body: [])
            },
            systemSeconds: { 1_614_265_330 }
        )
        try await sender.deliver(Array(#"{"test": 2432232314}"#.utf8), id: "msg_p5jXN8AQM9LWM0D4loKWxJek")
        let request = try #require(await requests.first { _ in true })
        let signature = request.headerFields[try #require(HTTPField.Name("webhook-signature"))]
        #expect(signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
    }
}
