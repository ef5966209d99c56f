import Glibc

/// The one thread of a relay: its sockets, and what is on its way between them.
struct RelayLoop {
    /// What goes from one socket to another.
    private struct Flow {
        var from: Int32
        var to: Int32
        var held: ArraySlice<UInt8> = []
        var restsUntil: ContinuousClock.Instant?
        var hasEnded = false

        /// The socket and the event that this waits for; nil while it rests or when nothing more comes.
        func interest(at now: ContinuousClock.Instant) -> pollfd? {
            if !held.isEmpty { return pollfd(fd: to, events: Int16(POLLOUT), revents: 0) }
            guard !hasEnded, restsUntil.map({ $0 <= now }) ?? true else { return nil }
            return pollfd(fd: from, events: Int16(POLLIN), revents: 0)
        }

        /// Moves what can be moved.
        ///
        /// - Returns: false when a socket is broken.
        mutating func move(_ weather: Relay.Weather) -> Bool {
            var size = 1 << 16
            var pause: Duration?
            if case .slow(let wanted, let bytes) = weather { (size, pause) = (bytes, wanted) }
            if held.isEmpty {
                var bytes = [UInt8](repeating: 0, count: size)
                let count = recv(from, &bytes, size, 0)
                guard count >= 0 else { return errno == EAGAIN || errno == EINTR }
                guard count > 0 else {
                    hasEnded = true
                    return shutdown(to, Int32(SHUT_WR)) == 0
                }
                held = bytes[..<count]
                restsUntil = pause.map { .now + $0 }
            }
            let count = held.withUnsafeBytes { send(to, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count >= 0 else { return errno == EAGAIN || errno == EINTR }
            held = held.dropFirst(count)
            return true
        }
    }

    private struct Pair {
        var flows: [Flow]
        /// Whether the network has swallowed it.
        var isLost = false
        var isBroken = false

        var isOver: Bool { isBroken || !isLost && flows.allSatisfy { $0.hasEnded && $0.held.isEmpty } }
    }

    private let listener: Int32
    private let bell: Int32
    private let target: UInt16
    private var pairs: [Pair] = []
    private var order = Relay.Order()

    init(listener: Int32, bell: Int32, target: UInt16) {
        self.listener = listener
        self.bell = bell
        self.target = target
    }

    /// Takes over new weather.
    mutating func obey(_ new: Relay.Order) {
        guard new.number != order.number else { return }
        order = new
        switch new.weather {
        case .cut: for index in pairs.indices { pairs[index].isBroken = true }
        case .silent: for index in pairs.indices { pairs[index].isLost = true }
        case .fair, .slow: break
        }
        bury()
    }

    /// Waits for the next event and handles all that are there.
    mutating func turn() {
        let now = ContinuousClock.now
        var polls = [
            pollfd(fd: listener, events: Int16(POLLIN), revents: 0),
            pollfd(fd: bell, events: Int16(POLLIN), revents: 0),
        ]
        var places: [(pair: Int, flow: Int)] = []
        var wait: Duration?
        for (index, pair) in pairs.enumerated() where !pair.isLost {
            for (number, flow) in pair.flows.enumerated() {
                if let interest = flow.interest(at: now) {
                    polls.append(interest)
                    places.append((index, number))
                } else if !flow.hasEnded, let rest = flow.restsUntil {
                    wait = min(wait ?? .seconds(60), rest - now)
                }
            }
        }
        let limit = wait.map { Int32(max(1, $0 / .milliseconds(1))) } ?? -1
        guard poll(&polls, nfds_t(polls.count), limit) > 0 else { return }
        for (event, place) in zip(polls.dropFirst(2), places) where event.revents != 0 {
            if !pairs[place.pair].flows[place.flow].move(order.weather) { pairs[place.pair].isBroken = true }
        }
        bury()
        if polls[1].revents != 0 {
            var bytes = [UInt8](repeating: 0, count: 64)
            _ = read(bell, &bytes, bytes.count)
            // The weather first: a connection that comes now comes under the new one.
            return
        }
        if polls[0].revents != 0 { welcome() }
    }

    mutating func end() {
        for index in pairs.indices { pairs[index].isBroken = true }
        bury()
        close(listener)
        close(bell)
    }

    private mutating func welcome() {
        while true {
            let client = accept(listener, nil, nil)
            guard client >= 0 else { return }
            _ = fcntl(client, F_SETFD, FD_CLOEXEC)
            _ = fcntl(client, F_SETFL, O_NONBLOCK)
            switch order.weather {
            case .cut:
                Self.reset(client)
            case .silent:
                pairs.append(Pair(flows: [Flow(from: client, to: client)], isLost: true))
            case .fair, .slow:
                guard let server = reachTarget() else {
                    Self.reset(client)
                    continue
                }
                pairs.append(Pair(flows: [Flow(from: client, to: server), Flow(from: server, to: client)]))
            }
        }
    }

    private func reachTarget() -> Int32? {
        let server = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        let isReached = withLoopback(target) { connect(server, $0, $1.pointee) == 0 }.0
        guard isReached, fcntl(server, F_SETFL, O_NONBLOCK) == 0 else {
            close(server)
            return nil
        }
        return server
    }

    /// Takes out the pairs that are over: with a reset, unless both ends closed it.
    private mutating func bury() {
        for pair in pairs where pair.isOver {
            for socket in Set(pair.flows.flatMap { [$0.from, $0.to] }) {
                if pair.isBroken { Self.reset(socket) } else { close(socket) }
            }
        }
        pairs.removeAll(where: \.isOver)
    }

    private static func reset(_ socket: Int32) {
        var hard = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &hard, socklen_t(MemoryLayout<linger>.size))
        close(socket)
    }
}
