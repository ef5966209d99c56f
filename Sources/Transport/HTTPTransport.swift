package import HTTPTypes
package import Logging
package import Metrics

/// Sends HTTP requests through libcurl, on one thread of its own.
///
/// Connections are kept alive and shared; HTTP/2 is spoken where the server offers it over TLS. Redirects are returned,
/// never followed, so credentials go to the host they were meant for and nowhere else. Cookies, `.netrc` and proxy
/// variables of the environment play no part. TLS is always verified.
///
/// Call ``shutdown()`` before the process exits.
package final class HTTPTransport: Sendable {
    private let mailbox: Mailbox
    private let thread: CurlThread
    private let metrics: TransportMetrics
    private let logger: Logger

    /// Starts a transport and its thread; traps on counts that make no sense.
    ///
    /// Failed requests are logged at debug level, by code only, and libcurl's own failures as errors.
    package init(
        configuration: HTTPTransportConfiguration = .init(),
        logger: Logger,
        metricsFactory: any MetricsFactory = MetricsSystem.factory
    ) {
        configuration.preconditionValid()
        precondition(CurlLibrary.isReady, "libcurl cannot be initialised")
        let mailbox = Mailbox(capacity: configuration.maxInFlight + configuration.maxQueued)
        self.mailbox = mailbox
        self.metrics = TransportMetrics(factory: metricsFactory)
        self.logger = logger
        self.thread = CurlThread {
            TransferLoop(mailbox: mailbox, configuration: configuration, logger: logger).run()
        }
    }

    deinit { mailbox.abandon() }

    /// Sends a request and collects the whole response.
    ///
    /// The path goes out as it is, dot segments and all. Fields that frame the message (`Host`, `Content-Length`,
    /// `Transfer-Encoding`, `Connection` and the like) belong to the transport and are refused. A request that is not
    /// idempotent is never sent twice, not even when a kept-alive connection turns out to be dead.
    /// The request is absolute; plain http goes to loopback hosts only. A body without a `Content-Type` of the caller's
    /// has none. `timeout` covers everything from this call to the last byte, waiting for a place included.
    /// `metricsLabel` is one of a small fixed set.
    package func send(
        _ request: HTTPRequest,
        body: [UInt8]? = nil,
        timeout: Duration,
        maxResponseBytes: Int = 4 << 20,
        metricsLabel: String? = nil
    ) async throws(TransportError) -> HTTPExchange {
        let started = ContinuousClock.now
        do throws(TransportError) {
            let plan = try RequestPlan(request, body: body)
            if Task.isCancelled { throw TransportError(.cancelled, "the calling task was cancelled") }
            let answer = try await answer(to: plan, before: started + timeout, maxResponseBytes).get()
            let response = try ResponseHead.parse(status: answer.status, block: answer.head)
            let exchange = HTTPExchange(
                response: response,
                body: answer.body,
                elapsed: started.duration(to: .now),
                httpVersion: answer.version,
                connectionReused: answer.connectionReused
            )
            let outcome = TransportMetrics.outcome(status: response.status.code)
            metrics.record(target: metricsLabel, outcome: outcome, elapsed: exchange.elapsed)
            return exchange
        } catch {
            metrics.record(target: metricsLabel, outcome: error.code.rawValue, elapsed: started.duration(to: .now))
            logger.debug(
                "HTTP request failed",
                metadata: ["error.code": "\(error.code.rawValue)", "http.target": "\(metricsLabel ?? "other")"]
            )
            throw error
        }
    }

    /// Requests taken on and not yet answered, those that wait included.
    package var unfinishedRequests: Int { mailbox.admitted }

    /// Stops the transport: whatever is unfinished fails with `.closed`, connections close, the thread ends.
    ///
    /// May be called any number of times; every call returns after the thread let go of all it held.
    package func shutdown() async {
        await mailbox.close()
        // The thread has done all its work by now and is on its way out, so this waits for microseconds.
        thread.join()
    }

    private func answer(
        to plan: RequestPlan,
        before deadline: ContinuousClock.Instant,
        _ maxResponseBytes: Int
    ) async -> Submission.Outcome {
        let ticket = Ticket()
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                mailbox.submit(
                    Submission(
                        plan: plan,
                        deadline: deadline,
                        maxResponseBytes: maxResponseBytes,
                        ticket: ticket,
                        continuation: continuation
                    )
                )
            }
        } onCancel: {
            mailbox.cancel(ticket)
        }
    }
}
