import SignedTokens
import TextFormats

/// What the App Store answers: which app and environment it is about, and signed texts to verify.
enum AppStoreWire {
    /// One subscription, as the list of statuses has it.
    struct Line: Sendable {
        /// 1 to 5 are known.
        var status: Int64
        var originalTransactionID: String
        var signedTransaction: String
        var signedRenewal: String?
    }

    struct Statuses: Sendable {
        var environment: String
        var bundleID: String
        var lines: [Line]
        /// One of the lines is nothing that can be read.
        var hasOddLines = false
    }

    /// One page of a list.
    struct Page: Sendable {
        /// `nil` where answers of the kind do not say it.
        var environment: String?
        var bundleID: String?
        var signed: [String]
        /// One of the signed texts is none.
        var hasOddTexts = false
        /// Names the place after this page.
        var next: String?
        var hasMore: Bool
    }

    /// The longest text of a signature with all that it signs, in bytes.
    private static let signedLimit = CompactJWS.maximumBytes

    // MARK: Statuses

    private enum StatusField: String, CaseIterable { case environment, bundleId, data }
    private enum LineField: String, CaseIterable {
        case status, originalTransactionId, signedTransactionInfo, signedRenewalInfo
    }

    private static let statusFields = JSONFields<StatusField>()
    private static let group = JSONFields(only: "lastTransactions")
    private static let lineFields = JSONFields<LineField>()

    /// Reads a `StatusResponse`.
    static func statuses(_ body: [UInt8]) throws(JSONFault) -> Statuses {
        var environment: String?
        var bundleID: String?
        var lines: [Line]?
        var hasOddLines = false
        try JSONReader.readObject(in: body, statusFields) { reader, field throws(JSONFault) in
            switch field {
            case .environment: environment = try reader.readOptionalString()
            case .bundleId: bundleID = try reader.readOptionalString()
            case .data:
                var read: [Line] = []
                try reader.readArray { reader throws(JSONFault) in
                    try reader.readObject(group) { reader, _ throws(JSONFault) in
                        let group = try reader.readSoundElements(line)
                        read += group.values
                        hasOddLines = hasOddLines || group.hasOdd
                    }
                }
                lines = read
            }
        }
        // An object without them is none of the App Store's: nothing may be inferred from what it does not list.
        guard let environment, let bundleID, let lines else { throw .missing }
        return Statuses(environment: environment, bundleID: bundleID, lines: lines, hasOddLines: hasOddLines)
    }

    private static func line(_ reader: inout JSONReader) throws(JSONFault) -> Line {
        var status: Int64?
        var original: String?
        var transaction: String?
        var renewal: String?
        try reader.readObject(lineFields) { reader, field throws(JSONFault) in
            switch field {
            case .status: status = try reader.readInteger()
            case .originalTransactionId: original = try reader.readString()
            case .signedTransactionInfo: transaction = try reader.readString(upTo: signedLimit)
            case .signedRenewalInfo:
                renewal = try reader.readNull() ? nil : try reader.readString(upTo: signedLimit)
            }
        }
        guard let status, let original, let transaction else { throw .missing }
        return Line(
            status: status,
            originalTransactionID: original,
            signedTransaction: transaction,
            signedRenewal: renewal
        )
    }

    // MARK: Lists

    private enum ListField: String, CaseIterable {
        case environment, bundleId, signedTransactions, revision, hasMore
    }

    private static let listFields = JSONFields<ListField>()

    /// Reads a `HistoryResponse`.
    static func history(_ body: [UInt8]) throws(JSONFault) -> Page {
        let page = try list(body)
        guard page.environment != nil, page.bundleID != nil else { throw .missing }
        return page
    }

    /// Reads a `RefundHistoryResponse`, which is a list without the app's name.
    static func list(_ body: [UInt8]) throws(JSONFault) -> Page {
        var page = Page(signed: [], hasMore: false)
        var hasMore: Bool?
        var signed: (values: [String], hasOdd: Bool)?
        try JSONReader.readObject(in: body, listFields) { reader, field throws(JSONFault) in
            switch field {
            case .environment: page.environment = try reader.readOptionalString()
            case .bundleId: page.bundleID = try reader.readOptionalString()
            case .signedTransactions:
                signed = try reader.readSoundElements { reader throws(JSONFault) in
                    try reader.readString(upTo: signedLimit)
                }
            case .revision: page.next = try reader.readOptionalString()
            case .hasMore: hasMore = try reader.readBool()
            }
        }
        guard let hasMore, let signed else { throw .missing }
        page.hasMore = hasMore
        page.signed = signed.values
        page.hasOddTexts = signed.hasOdd
        return page
    }

    // MARK: Single answers

    private enum OrderField: String, CaseIterable { case status, signedTransactions }

    private static let transactionInfo = JSONFields(only: "signedTransactionInfo")
    private static let orderFields = JSONFields<OrderField>()

    /// Reads a `TransactionInfoResponse`.
    static func transaction(_ body: [UInt8]) throws(JSONFault) -> String {
        var signed: String?
        try JSONReader.readObject(in: body, transactionInfo) { reader, _ throws(JSONFault) in
            signed = try reader.readString(upTo: signedLimit)
        }
        guard let signed else { throw .missing }
        return signed
    }

    /// Reads an `OrderLookupResponse`: nothing where the number is not valid for the app.
    static func order(_ body: [UInt8]) throws(JSONFault) -> [String] {
        var status: Int64?
        var signed: [String]?
        try JSONReader.readObject(in: body, orderFields) { reader, field throws(JSONFault) in
            switch field {
            case .status: status = try reader.readInteger()
            case .signedTransactions:
                guard try !reader.readNull() else { return }
                signed = []
                try reader.readArray { reader throws(JSONFault) in
                    signed?.append(try reader.readString(upTo: signedLimit))
                }
            }
        }
        guard let status else { throw .missing }
        guard status == 0 else { return [] }
        guard let signed else { throw .missing }
        return signed
    }

    /// Whether a body is JSON of any kind.
    static func isJSON(_ body: [UInt8]) -> Bool {
        do throws(JSONFault) {
            var reader = try JSONReader(body)
            try reader.passOver()
            try reader.finish()
            return true
        } catch { return false }
    }

    // MARK: Test notifications

    private static let testToken = JSONFields(only: "testNotificationToken")
    private enum TestField: String, CaseIterable { case signedPayload, sendAttempts }
    private static let testFields = JSONFields<TestField>()
    private enum AttemptField: String, CaseIterable { case attemptDate, sendAttemptResult }
    private static let attemptFields = JSONFields<AttemptField>()

    /// Reads a `SendTestNotificationResponse`.
    static func testToken(_ body: [UInt8]) throws(JSONFault) -> String {
        var token: String?
        try JSONReader.readObject(in: body, testToken) { reader, _ throws(JSONFault) in token = try reader.readString()
        }
        guard let token else { throw .missing }
        return token
    }

    /// Reads a `CheckTestNotificationResponse`: the payload, and the words of its attempts, the newest last.
    static func testStatus(_ body: [UInt8]) throws(JSONFault) -> (signed: String?, attempts: [String]) {
        var signed: String?
        var attempts: [(atMs: Int64, result: String)] = []
        try JSONReader.readObject(in: body, testFields) { reader, field throws(JSONFault) in
            switch field {
            case .signedPayload: signed = try reader.readString(upTo: signedLimit)
            case .sendAttempts:
                try reader.readArray { reader throws(JSONFault) in
                    var attempt: (atMs: Int64, result: String?) = (0, nil)
                    try reader.readObject(attemptFields) { reader, field throws(JSONFault) in
                        switch field {
                        case .attemptDate: attempt.atMs = try reader.readInteger()
                        case .sendAttemptResult: attempt.result = try reader.readString()
                        }
                    }
                    if let result = attempt.result { attempts.append((attempt.atMs, result)) }
                }
            }
        }
        return (signed, attempts.sorted { $0.atMs < $1.atMs }.map(\.result))
    }

    // MARK: Notifications

    private enum HistoryField: String, CaseIterable { case notificationHistory, hasMore, paginationToken }

    private static let historyFields = JSONFields<HistoryField>()
    private static let item = JSONFields(only: "signedPayload")

    /// Reads a `NotificationHistoryResponse`.
    static func notifications(_ body: [UInt8]) throws(JSONFault) -> Page {
        var page = Page(signed: [], hasMore: false)
        var hasMore: Bool?
        var isListed = false
        try JSONReader.readObject(in: body, historyFields) { reader, field throws(JSONFault) in
            switch field {
            case .hasMore: hasMore = try reader.readBool()
            case .paginationToken: page.next = try reader.readOptionalString()
            case .notificationHistory:
                isListed = true
                try reader.readArray { reader throws(JSONFault) in
                    try reader.readObject(item) { reader, _ throws(JSONFault) in
                        page.signed.append(try reader.readString(upTo: signedLimit))
                    }
                }
            }
        }
        guard let hasMore, isListed else { throw .missing }
        page.hasMore = hasMore
        return page
    }
}
