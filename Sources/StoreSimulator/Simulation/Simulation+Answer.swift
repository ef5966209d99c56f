extension Simulation.State {
    /// Answers a request to a store, with the faults in force.
    mutating func answer(_ request: StoreRequest) -> Reply {
        let nowMs = clock.nowMs
        tally.note(request, nowMs: clock.nowMs)
        if let route = appStore.route(request) {
            shareWithAppStore(route.subjects.first ?? "")
            return answer(request, route, \.appStore, nowMs: nowMs)
        }
        if let route = googlePlay.route(request) {
            shareWithGooglePlay(route.subjects.first ?? "")
            return answer(request, route, \.googlePlay, nowMs: nowMs)
        }
        if let route = onside.route(request) { return answer(request, route, \.onside, nowMs: nowMs) }
        if let route = identity.route(request) { return answer(request, route, \.identity, nowMs: nowMs) }
        return answerRevenueCat(request)
    }

    /// Answers a request to a store other than RevenueCat.
    private mutating func answer(
        _ request: StoreRequest,
        _ route: StoreRoute,
        _ store: WritableKeyPath<Self, some SimulatedStore>,
        nowMs: Int64
    ) -> Reply {
        requestNumber += 1
        tally.count(route.template)
        let effect =
            faults.isEmpty ? nil : faults.strike(endpoint: route.endpoint, method: request.method, ids: route.subjects)
        var reply: Reply
        switch (effect?.status, effect) {
        case (let status?, let effect?):
            if effect.processed { _ = self[keyPath: store].answer(request, route: route, nowMs: nowMs) }
            reply =
                status >= 300
                ? self[keyPath: store].failure(status: status, effect: effect, nowMs: nowMs) : Reply(status: status)
        case (nil, let effect?) where effect.connection == .dropBefore:
            reply = Reply(status: 0)
        default:
            reply = self[keyPath: store].answer(request, route: route, nowMs: nowMs)
        }
        reply.dateMs = nowMs
        reply.requestID = SplitMix64.mix(requestNumber)
        if let effect { mangle(&reply, effect: effect, nowMs: nowMs) }
        tally.count(reply)
        return reply
    }

    /// Answers a request to RevenueCat, with the faults in force.
    private mutating func answerRevenueCat(_ request: StoreRequest) -> Reply {
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
        return faults.strike(endpoint: route.endpoint.rawValue, method: method, ids: ids)
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
