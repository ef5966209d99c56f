import CLibCurl

/// One request on the transport's thread: its easy handle while in flight, and what has arrived so far.
///
/// Confined to that thread. States: waiting (`place` set) -> in flight (`handle` set) -> finished (neither).
final class Transfer {
    let submission: Submission
    let maxHeaderBytes: Int
    var place: WaitingLine<Transfer>.Ticket?
    var handle: EasyHandle?
    var headerList: UnsafeMutablePointer<curl_slist>?

    /// Set by a callback that stopped the transfer; outranks libcurl's word on it.
    private(set) var refusal: TransportError?
    private(set) var head: [UInt8] = []
    private(set) var body: [UInt8] = []
    private var headState = HeadState.receiving
    private var headerBytes = 0
    private var headerLines = 0
    private var attempts = 0

    private enum HeadState {
        /// Lines are added to `head`.
        case receiving
        /// An interim (1xx) block ended; the next status line replaces it.
        case interim
        /// The final block ended; lines that still come are trailers.
        case complete
    }

    /// Fields accepted in one response; far above any real one, far below where swift-http-types traps.
    private static let maxHeaderLines = 1000

    /// Largest buffer reserved on the word of a Content-Length alone.
    private static let maxReservation = 1 << 20

    init(_ submission: Submission, maxHeaderBytes: Int) {
        self.submission = submission
        self.maxHeaderBytes = maxHeaderBytes
        head.reserveCapacity(512)
    }

    /// Takes one header line; `false` stops the transfer.
    func receive(headerLine line: UnsafeRawBufferPointer) -> Bool {
        headerBytes += line.count
        headerLines += 1
        guard headerBytes <= maxHeaderBytes, headerLines <= Self.maxHeaderLines else {
            return refuse(.tooLarge, "the response header exceeds its cap")
        }
        switch headState {
        case .complete: return true
        case .interim:
            head.removeAll(keepingCapacity: true)
            headState = .receiving
        case .receiving: break
        }
        head.append(contentsOf: line)
        if line.first == UInt8(ascii: "\r") || line.first == UInt8(ascii: "\n") {
            headState = isInterim ? .interim : .complete
        }
        return true
    }

    /// Takes a piece of the body; `false` stops the transfer.
    func receive(body bytes: UnsafeRawBufferPointer) -> Bool {
        if body.isEmpty, let announced = handle?.announcedLength, announced > bytes.count {
            guard announced <= submission.maxResponseBytes else { return refuse(.tooLarge, Self.bodyReason) }
            body.reserveCapacity(min(announced, Self.maxReservation))
        }
        guard bytes.count <= submission.maxResponseBytes - body.count else { return refuse(.tooLarge, Self.bodyReason) }
        body.append(contentsOf: bytes)
        return true
    }

    /// Whether libcurl was let loose to send the request, on a connection that was ready.
    var mayHaveBeenSent: Bool { attempts > 0 }

    /// Called before each sending of the request; `false` forbids it.
    ///
    /// libcurl repeats a request by itself when a kept-alive connection dies before the first byte of the answer. The
    /// server may have acted on it by then, so a request that is not idempotent is never sent twice.
    func mayBeSent() -> Bool {
        attempts += 1
        guard attempts > 1, !submission.plan.isIdempotent else { return true }
        return refuse(.reset, "the peer closed the connection before answering")
    }

    /// libcurl reports success for a peer that hangs up inside the header, as if an empty body had followed.
    var isHeadComplete: Bool { headState == .complete }

    /// Whether the block in `head` is a 1xx, by the first digit of its status.
    private var isInterim: Bool {
        guard let space = head.firstIndex(of: UInt8(ascii: " ")), space + 1 < head.count else { return false }
        return head[space + 1] == UInt8(ascii: "1")
    }

    private static let bodyReason: StaticString = "the response body exceeds its cap"

    private func refuse(_ code: TransportError.Code, _ reason: StaticString) -> Bool {
        refusal = TransportError(code, reason, requestSent: true)
        return false
    }
}
