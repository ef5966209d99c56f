extension Simulation.State {
    /// Answers a request to RevenueCat, with the faults in force.
    mutating func answerRevenueCat(_ request: StoreRequest) -> Reply {
        let nowMs = clock.nowMs
        requestNumber += 1
        var reply: Reply
        var effect: FaultBook.Effect?
        switch RevenueCatRoute.read(method: request.method, target: request.target) {
        case .route(let route):
            tally.count(route.endpoint, customer: route.customer)
            effect = strike(route, method: request.method)
            reply = answer(request, route: route, effect: effect, nowMs: nowMs)
        case .wrongMethod:
            tally.countUnknown()
            reply = RevenueCatFailure(status: 405, type: "invalid_request", message: "Method not allowed")
                .reply(unit: revenueCat.unit)
        case .unknown:
            tally.countUnknown()
            reply = RevenueCatFailure.missing.reply(unit: revenueCat.unit)
        }
        reply.dateMs = nowMs
        reply.requestID = SplitMix64.mix(requestNumber)
        if let effect { mangle(&reply, effect: effect, nowMs: nowMs) }
        tally.count(reply)
        return reply
    }

    private mutating func strike(_ route: RevenueCatRoute, method: String) -> FaultBook.Effect? {
        guard !faults.isEmpty else { return nil }
        var ids: [String] = []
        if faults.namesCustomers, let asked = route.customer {
            ids = revenueCat.book.customer(asked)?.ids ?? [asked]
        }
        return faults.strike(endpoint: route.endpoint, method: method, ids: ids)
    }

    private mutating func answer(
        _ request: StoreRequest,
        route: RevenueCatRoute,
        effect: FaultBook.Effect?,
        nowMs: Int64
    ) -> Reply {
        guard let effect, let status = effect.status else {
            // A connection that drops before the answer loses the request as well.
            if effect?.connection == .dropBefore { return Reply(status: 0) }
            return revenueCat.answer(
                request,
                route: route,
                nowMs: nowMs,
                repeatsCursor: effect?.repeatsCursor ?? false
            )
        }
        if effect.processed {
            _ = revenueCat.answer(request, route: route, nowMs: nowMs, repeatsCursor: false)
        }
        guard status >= 300 else { return Reply(status: status) }
        var failure = RevenueCatFailure.usual(status: status, backoffMs: effect.backoffMs)
        if let type = effect.errorType { failure.type = type }
        if let retryable = effect.retryable { failure.retryable = retryable }
        if !failure.retryable { failure.backoffMs = nil }
        return failure.reply(unit: revenueCat.unit)
    }

    private mutating func mangle(_ reply: inout Reply, effect: FaultBook.Effect, nowMs: Int64) {
        if let delay = effect.delay {
            reply.delayMs =
                delay.lowerBound == delay.upperBound ? delay.lowerBound : Int64.random(in: delay, using: &draws)
        }
        if let skew = effect.dateSkew { reply.dateMs = skew.milliseconds(from: nowMs) }
        if let body = effect.body { BrokenBody.apply(body, size: effect.size, to: &reply) }
        if let drip = effect.drip { reply.delivery = .drip(bytes: drip.bytes, everyMs: drip.everyMs) }
        switch effect.connection {
        case .dropBefore: reply.delivery = .drop
        case .dropMidway: reply.delivery = .cut
        case .resetAfter: reply.delivery = .reset
        case nil: break
        }
    }
}

/// Bodies that no client should trust.
enum BrokenBody {
    /// Replaces the body of an answer; `size` is the bytes of a huge body, or the levels of a deep one.
    static func apply(_ fault: FaultRule.BodyFault, size: Int?, to reply: inout Reply) {
        switch fault {
        case .html:
            reply.contentType = "text/html; charset=utf-8"
            reply.body = Array(page.utf8)
        case .empty:
            reply.body = []
        case .truncated:
            reply.body.removeLast(reply.body.count - reply.body.count / 2)
        case .deep:
            let depth = size ?? 100_000
            reply.body = Array(repeating: UInt8(ascii: "["), count: depth)
            reply.body += repeatElement(UInt8(ascii: "]"), count: depth)
        case .huge:
            let start = #"{"object":"list","next_page":null,"items":[],"url":""#
            let end = #""}"#
            reply.body = Array(start.utf8)
            reply.fillerBytes = max(0, (size ?? 52_428_800) - start.utf8.count - end.utf8.count)
            reply.tail = Array(end.utf8)
        }
    }

    private static let page = """
        <!DOCTYPE html>
        <html><head><title>502 Bad Gateway</title></head>
        <body><center><h1>502 Bad Gateway</h1></center><hr><center>proxy</center></body></html>

        """
}
