import Entitlements
import Foundation
@testable import HTTPServing
import HTTPTypes
import Hummingbird
import Testing
@testable import UserRequests
@testable import WebAPI

/// Cases as they are sent, and bodies of a few fields as they are read.
@Suite struct CaseTests {
    private static let languages = ["de", "en", "es", "fr", "ja", "pt", "zh"]

    private func shown(_ role: UserCase.Role, _ state: UserCase.State, question: String? = nil) -> UserCase {
        UserCase(id: UUID(), role: role, reference: nil, state: state, createdAt: "", question: question)
    }

    private func message(_ shown: UserCase, _ language: String, own: String? = nil) throws -> String {
        struct Sent: Decodable { var message: String }
        let messages = try Messages(own: own.map { Array($0.utf8) })
        let sent = try JSONEncoder().encode(CaseView(shown, messages, language))
        return try JSONDecoder().decode(Sent.self, from: sent).message
    }

    @Test(arguments: languages)
    func `Every case has a text of its own in every language`(language: String) throws {
        var texts: [String] = []
        for role in UserCase.Role.allCases {
            for state in UserCase.State.allCases {
                let questions: [String?] =
                    role == .claimant && state == .question ? DeskQuestion.allCases.map(\.rawValue) : [nil]
                for question in questions {
                    texts.append(try message(shown(role, state, question: question), language))
                }
            }
        }
        let messages = try Messages()
        for key in ["reply.noted", "release.noted"] {
            texts.append(try #require(messages.text(for: key, in: language, reference: "")))
        }
        #expect(texts.allSatisfy { !$0.isEmpty && !$0.contains("{") })
        // The first question has no key here: it is told as such.
        #expect(Set(texts).count == texts.count, "\(texts)")
        if language != "en" {
            for key in Messages.caseKeys {
                let english = messages.text(for: key, reference: "")
                #expect(messages.text(for: key, in: language, reference: "") != english, "\(key)")
            }
        }
    }

    @Test func `A question of a team's own is told in its words, or as a question`() throws {
        let asked = shown(.claimant, .question, question: "shoe_size")
        #expect(try message(asked, "de").hasPrefix("Unser Kundendienst hat eine Frage"))
        let own = #"{"de":{"question.shoe_size":"Welche Größe?"}}"#
        #expect(try message(asked, "de", own: own) == "Welche Größe?")
        #expect(try message(asked, "fr", own: own).hasPrefix("Notre équipe"))
        for key in ["question.", "question.Shoe", "question.a b", "case.else"] {
            #expect(throws: Messages.Fault.self) {
                _ = try Messages(own: Array(#"{"de":{"\#(key)":"x"}}"#.utf8))
            }
        }
    }

    // MARK: Bodies

    private func answer(_ body: String, type: String? = "application/json") async throws -> Problem? {
        let router = Router(context: APIContext.self)
        let bodies = BodyBudget(security: SecurityLog())
        router.post("/") { request, context -> String in
            do {
                let body: ReleaseBody = try await bodies.fields(
                    of: request,
                    from: "ann",
                    needed: "reference",
                    context
                )
                try BodyFault.check([("reference", body.reference)])
                return ""
            } catch let problem as Problem {
                return [problem.kind.rawValue, problem.field ?? "", problem.fix ?? ""].joined(separator: "|")
            } catch { return "other" }
        }
        var headers: HTTPFields = [:]
        headers[.contentType] = type
        let text = try await RouterProbe(router: router).ask("/", .post, headers: headers, body: body).text
        let parts = text.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
        guard let kind = Problem.Kind(rawValue: parts[0]) else {
            #expect(text.isEmpty, "\(text)")
            return nil
        }
        return Problem(kind, field: parts[1].isEmpty ? nil : parts[1], fix: parts[2].isEmpty ? nil : parts[2])
    }

    @Test func `A body that is not what is asked for is refused with its field, or with what to send`() async throws {
        #expect(try await answer(#"{"reference":"R-7K3Q-92","more":[1]}"#) == nil)
        #expect(try await answer(#"{"reference":"R-7K3Q-92"}"#, type: nil) == nil)
        #expect(try await answer("{}") == Problem(.invalidField, field: "reference"))
        #expect(try await answer(#"{"reference":7}"#) == Problem(.invalidField, field: "reference"))
        #expect(try await answer(#"{"reference":null}"#) == Problem(.invalidField, field: "reference"))
        #expect(try await answer(#"{"reference":"\u0000"}"#) == Problem(.invalidField, field: "reference"))
        for body in ["", "{", "[]", "7", "null"] {
            #expect(
                try await answer(body) == Problem(.malformedBody, fix: "Send a JSON object with reference."),
                "\(body)"
            )
        }
        #expect(
            try await answer("{}", type: "text/plain")
                == Problem(.unsupportedMediaType, field: "Content-Type", fix: "Send application/json.")
        )
        let long = #"{"reference":"\#(String(repeating: "x", count: BodyBudget.fewFieldsBytes))"}"#
        #expect(try await answer(long)?.kind == .bodyTooLarge)
    }

    @Test func `A reply of the longest text, however it is written, is short enough`() {
        let escaped = String(repeating: #"😀"#, count: 2000)
        #expect(#"{"text":"\#(escaped)","decision":"object"}"#.utf8.count <= BodyBudget.fewFieldsBytes)
    }
}
