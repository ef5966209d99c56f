import CLibCurl
import Glibc
import Logging
import Synchronization

/// Runs every transfer on the one thread that owns the multi handle.
///
/// Not Sendable, and made on that thread. A turn: take the commands, end what is overdue, fill free places, let libcurl
/// begin, collect what finished, resume the callers, sleep until something happens and let libcurl work on it.
final class TransferLoop {
    private let multi: UnsafeMutableRawPointer
    private let events: SocketEvents
    private let mailbox: Mailbox
    private let configuration: HTTPTransportConfiguration
    private let setup: TransferSetup
    private let logger: Logger

    private var live: [ObjectIdentifier: Transfer] = [:]
    private var inFlight = 0
    private var waiting = WaitingLine<Transfer>()
    private var spareHandles: [EasyHandle] = []
    private var finished: [(CheckedContinuation<Submission.Outcome, Never>, Submission.Outcome)] = []

    /// No live transfer is due before; it may lag behind, because a needless wake-up is cheaper than sorted deadlines.
    private var earliestDeadline: ContinuousClock.Instant?

    init(mailbox: Mailbox, configuration: HTTPTransportConfiguration, logger: Logger) {
        guard let multi = curl_multi_init() else { fatalError("libcurl cannot create a multi handle") }
        self.multi = multi
        self.events = SocketEvents(of: multi)
        self.mailbox = mailbox
        self.configuration = configuration
        self.setup = TransferSetup(configuration)
        self.logger = logger
        curl_shim_multi_set_long(multi, CURLMOPT_PIPELINING, curl_shim_pipe_multiplex)
        curl_shim_multi_set_long(multi, CURLMOPT_MAX_HOST_CONNECTIONS, configuration.maxConnectionsPerHost)
        curl_shim_multi_set_long(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, configuration.maxTotalConnections)
        curl_shim_multi_set_long(multi, CURLMOPT_MAXCONNECTS, configuration.maxTotalConnections)
    }

    /// Works until the mailbox closes, then fails what is left and frees everything.
    func run() {
        mailbox.attach(events.waker)
        var batch: [Mailbox.Command] = []
        while mailbox.take(into: &batch) {
            // Before anything is given up: an answer that is there counts.
            collectFinished()
            for command in batch { accept(command) }
            endOverdue()
            fillPlaces()
            report(events.fireTimeout())
            collectFinished()
            resumeFinished()
            workUntilNeeded()
        }
        collectFinished()
        for command in batch { accept(command) }
        let closed = TransportError(.closed, "the transport was shut down")
        for transfer in Array(live.values) { finish(transfer, failure: closed) }
        for handle in spareHandles { curl_easy_cleanup(handle.raw) }
        mailbox.detach()
        events.detach()
        curl_multi_cleanup(multi)
        resumeFinished()
        mailbox.markClosed()
    }

    // MARK: Steps of a turn

    private func accept(_ command: Mailbox.Command) {
        switch command {
        case .submit(let submission):
            let transfer = Transfer(submission, maxHeaderBytes: configuration.maxResponseHeaderBytes)
            live[ObjectIdentifier(submission.ticket)] = transfer
            transfer.place = waiting.append(transfer)
            if submission.ticket.isCancelled.load(ordering: .acquiring) {
                // The cancellation came before the submission and found nothing, or is still on its way.
                finish(transfer, failure: Self.cancelled)
            } else {
                earliestDeadline = min(earliestDeadline ?? submission.deadline, submission.deadline)
            }
        case .cancel(let ticket):
            if let transfer = live[ObjectIdentifier(ticket)] { finish(transfer, failure: Self.cancelled) }
        }
    }

    private func endOverdue() {
        guard let due = earliestDeadline else { return }
        let now = ContinuousClock.now
        guard due <= now else { return }
        earliestDeadline = live.values.lazy.map(\.submission.deadline).filter { $0 > now }.min()
        for transfer in live.values.filter({ $0.submission.deadline <= now }) {
            finish(transfer, failure: TransportError(.timeout, "no complete response in the time given"))
        }
    }

    private func fillPlaces() {
        while inFlight < configuration.maxInFlight, let transfer = waiting.popFirst() {
            transfer.place = nil
            start(transfer)
        }
    }

    private func collectFinished() {
        var left: Int32 = 0
        while let message = curl_multi_info_read(multi, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let raw = message.pointee.easy_handle else { continue }
            // Read before the handle goes: libcurl frees the message with it.
            let code = message.pointee.data.result
            var box: UnsafeMutableRawPointer?
            curl_shim_easy_get_pointer(raw, CURLINFO_PRIVATE, &box)
            guard let box else { continue }
            let transfer = Unmanaged<Transfer>.fromOpaque(box).takeUnretainedValue()
            conclude(transfer, EasyHandle(raw: raw), code)
        }
    }

    private func resumeFinished() {
        guard !finished.isEmpty else { return }
        // Room first: a caller that sends again at once must find it.
        mailbox.release(finished.count)
        for (continuation, outcome) in finished { continuation.resume(returning: outcome) }
        finished.removeAll(keepingCapacity: true)
    }

    private func workUntilNeeded() {
        var limit = Duration.seconds(60)
        if let due = earliestDeadline { limit = min(limit, ContinuousClock.now.duration(to: due)) }
        let hasMore = !waiting.isEmpty && inFlight < configuration.maxInFlight
        // Sockets that are ready have their turn, however many commands come in.
        if hasMore || limit < .zero || !mailbox.preparePoll() { limit = .zero }
        let code = events.wait(upTo: limit)
        if code != CURLM_OK {
            report(code ?? CURLM_INTERNAL_ERROR)
            // Out of memory or descriptors: without this pause the loop would burn a core on it.
            usleep(10_000)
        }
    }

    // MARK: One transfer

    private func start(_ transfer: Transfer) {
        guard let handle = spareHandles.popLast() ?? curl_easy_init().map(EasyHandle.init(raw:)) else {
            return finish(transfer, failure: TransportError(.protocol_, "libcurl cannot create a handle"))
        }
        // The box holds the transfer for libcurl's callbacks; `release` of the handle in `detach` undoes it, once.
        let box = Unmanaged.passRetained(transfer)
        transfer.handle = handle
        inFlight += 1
        do throws(CurlRefusal) {
            try setup.apply(to: handle, transfer, box: box.toOpaque())
        } catch {
            return finish(transfer, failure: TransportError(curl: error.code, requestSent: false))
        }
        let code = curl_multi_add_handle(multi, handle.raw)
        guard code == CURLM_OK else {
            report(code)
            return finish(transfer, failure: TransportError(.protocol_, "libcurl did not take the request"))
        }
    }

    /// Turns libcurl's verdict into an outcome.
    private func conclude(_ transfer: Transfer, _ handle: EasyHandle, _ code: CURLcode) {
        if let refusal = transfer.refusal {
            finish(transfer, failure: refusal)
        } else if code == CURLE_OK, !transfer.isHeadComplete {
            finish(transfer, failure: TransportError(.reset, "the peer ended the exchange inside the header"))
        } else if code == CURLE_OK {
            let answer = RawAnswer(
                status: handle.long(CURLINFO_RESPONSE_CODE),
                head: transfer.head,
                body: transfer.body,
                version: handle.httpVersion,
                connectionReused: handle.long(CURLINFO_NUM_CONNECTS) == 0
            )
            finish(transfer, .success(answer))
        } else {
            finish(transfer, failure: TransportError(curl: code, requestSent: transfer.mayHaveBeenSent))
        }
    }

    private func finish(_ transfer: Transfer, failure: TransportError) {
        var failure = failure
        failure.requestSent = transfer.mayHaveBeenSent
        finish(transfer, .failure(failure))
    }

    /// Ends a live transfer in whichever state it is and notes its outcome for the caller.
    private func finish(_ transfer: Transfer, _ outcome: Submission.Outcome) {
        live[ObjectIdentifier(transfer.submission.ticket)] = nil
        if let place = transfer.place {
            _ = waiting.remove(place)
            transfer.place = nil
        }
        if let handle = transfer.handle {
            transfer.handle = nil
            detach(handle, transfer)
            inFlight -= 1
        }
        finished.append((transfer.submission.continuation, outcome))
    }

    /// Takes a handle out of libcurl's hands and keeps it for the next transfer.
    private func detach(_ handle: EasyHandle, _ transfer: Transfer) {
        // Harmless where the handle was never added. An unfinished exchange loses its connection (HTTP/1.1) or stream.
        curl_multi_remove_handle(multi, handle.raw)
        curl_easy_reset(handle.raw)
        curl_slist_free_all(transfer.headerList)
        transfer.headerList = nil
        Unmanaged.passUnretained(transfer).release()
        if spareHandles.count < configuration.maxInFlight {
            spareHandles.append(handle)
        } else {
            curl_easy_cleanup(handle.raw)
        }
    }

    private func report(_ code: CURLMcode) {
        guard code != CURLM_OK else { return }
        logger.error("libcurl failed on its multi handle", metadata: ["error.code": "\(code.rawValue)"])
    }

    private static let cancelled = TransportError(.cancelled, "the calling task was cancelled")
}
