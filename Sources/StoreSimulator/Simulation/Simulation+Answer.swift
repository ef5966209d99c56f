extension Simulation.State {
    /// Answers a request to a store, with the faults in force.
    mutating func answer(_ request: StoreRequest) -> Reply {
        let nowMs = clock.nowMs
        tally.note(request, nowMs: nowMs)
        if let route = appStore.route(request) {
            shareWithAppStore(route.subjects.first ?? "")
            return answer(request, route, \.appStore, nowMs: nowMs)
        }
        if let route = googlePlay.route(request) {
            shareWithGooglePlay(route.subjects.first ?? "")
            return answer(request, route, \.googlePlay, nowMs: nowMs)
        }
        if let route = onside.route(request) { return answer(request, route, \.onside, nowMs: nowMs) }
        if let route = identity.route(request) {
            identity.isLetIn = googlePlay.isLetIn(request.bearer, for: GoogleServiceAccount.identityToolkit)
            return answer(request, route, \.identity, nowMs: nowMs)
        }
        return answerRevenueCat(request, nowMs: nowMs)
    }

    /// Answers a request to a store other than RevenueCat.
    private mutating func answer(
        _ request: StoreRequest,
        _ route: StoreRoute,
        _ store: WritableKeyPath<Self, some SimulatedStore>,
        nowMs: Int64
    ) -> Reply {
        tally.count(route.template)
        let effect = strike(route.endpoint, request, ids: route.subjects)
        return reply(with: effect, nowMs: nowMs) { state, _ in
            state[keyPath: store].answer(request, route: route, nowMs: nowMs)
        } failure: { state, status, effect in
            state[keyPath: store].failure(status: status, effect: effect, nowMs: nowMs)
        }
    }

    /// Answers a request to RevenueCat, with the faults in force.
    private mutating func answerRevenueCat(_ request: StoreRequest, nowMs: Int64) -> Reply {
        switch RevenueCatRoute.read(request) {
        case .route(let route):
            tally.count(route.endpoint, customer: route.customer)
            var ids: [String] = []
            if faults.namesCustomers, let asked = route.customer {
                ids = revenueCat.book.customer(asked)?.ids ?? [asked]
            }
            let effect = strike(route.endpoint.rawValue, request, ids: ids)
            return reply(with: effect, nowMs: nowMs) { state, repeatsCursor in
                state.revenueCat.answer(request, route: route, nowMs: nowMs, repeatsCursor: repeatsCursor)
            } failure: { state, status, effect in
                var failure = RevenueCatFailure.usual(status: status, backoffMs: effect.backoffMs)
                if let type = effect.errorType { failure.type = type }
                if let retryable = effect.retryable { failure.retryable = retryable }
                if !failure.retryable { failure.backoffMs = nil }
                return failure.reply(unit: state.revenueCat.unit)
            }
        case .wrongMethod:
            return refuse(.init(status: 405, type: "invalid_request", message: "Method not allowed"), nowMs: nowMs)
        case .unknown: return refuse(.missing, nowMs: nowMs)
        }
    }

    /// Answers a request that reaches no endpoint of RevenueCat's, and so no fault.
    private mutating func refuse(_ failure: RevenueCatFailure, nowMs: Int64) -> Reply {
        tally.count("unknown")
        return reply(with: nil, nowMs: nowMs) { state, _ in
            failure.reply(unit: state.revenueCat.unit)
        } failure: { _, status, _ in
            Reply(status: status)
        }
    }

    private mutating func strike(_ endpoint: String, _ request: StoreRequest, ids: [String]) -> FaultRule? {
        faults.isEmpty ? nil : faults.strike(endpoint: endpoint, method: request.method, ids: ids)
    }

    /// Carries a request out as far as its faults let it come, and counts the answer.
    ///
    /// The flag that `perform` gets says whether lists are to name the same cursor for ever.
    private mutating func reply(
        with effect: FaultRule?,
        nowMs: Int64,
        perform: (inout Self, Bool) -> Reply,
        failure: (Self, Int, FaultRule) -> Reply
    ) -> Reply {
        requestNumber += 1
        var reply: Reply
        if let effect, let status = effect.status {
            if effect.processed { _ = perform(&self, false) }
            reply = status >= 300 ? failure(self, status, effect) : Reply(status: status)
        } else if effect?.connection == .dropBefore {
            // A connection that drops before the answer loses the request as well.
            reply = Reply(status: 0)
        } else {
            reply = perform(&self, effect?.repeatCursor ?? false)
        }
        reply.dateMs = nowMs
        reply.requestID = SplitMix64.mix(requestNumber)
        if let effect { mangle(&reply, effect: effect, nowMs: nowMs) }
        tally.count(reply)
        return reply
    }

    private mutating func mangle(_ reply: inout Reply, effect: FaultRule, nowMs: Int64) {
        if let delay = effect.delay {
            reply.delayMs =
                delay.lowerBound == delay.upperBound ? delay.lowerBound : Int64.random(in: delay, using: &draws)
        }
        if let skew = effect.dateSkew { reply.dateMs = skew.milliseconds(from: nowMs) }
        if let body = effect.body { BrokenBody.apply(body, size: effect.size, to: &reply) }
        if let bytes = effect.dripBytes {
            reply.delivery = .drip(bytes: bytes, everyMs: effect.dripEvery?.milliseconds ?? 50)
        }
        switch effect.connection {
        case .dropBefore: reply.delivery = .drop
        case .dropMidway: reply.delivery = .cut
        case .resetAfter: reply.delivery = .reset
        case nil: break
        }
    }
}
