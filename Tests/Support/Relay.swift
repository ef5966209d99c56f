import Foundation
import Glibc
import Synchronization

/// A TCP relay on loopback whose network a test can break and mend.
package final class Relay: Sendable {
    /// What becomes of connections.
    package enum Weather: Sendable {
        /// Everything passes.
        case fair
        /// Connections are reset, new ones at once.
        case cut
        /// What is sent vanishes, for good on the connections of this time; new ones are accepted and never answered.
        case silent
        /// A few bytes at a time, with a pause after each.
        case slow(pause: Duration, bytes: Int)
    }

    struct Order: Sendable {
        var weather = Weather.fair
        /// Raised by each change.
        var number = 0
        var isEnd = false
    }

    private let order = Mutex(Order())
    private let bell: Int32
    package let port: UInt16

    /// Begins to relay to a port on loopback.
    package init(to target: UInt16) {
        var ends: [Int32] = [-1, -1]
        _ = socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends)
        bell = ends[1]
        let (listener, number) = bindLoopback(listening: true)
        port = number
        _ = fcntl(listener, F_SETFL, O_NONBLOCK)
        let heard = ends[0]
        Thread.detachNewThread { [weak self] in
            var loop = RelayLoop(listener: listener, bell: heard, target: target)
            while let order = self?.order.withLock({ $0 }), !order.isEnd {
                loop.obey(order)
                loop.turn()
            }
            loop.end()
        }
    }

    deinit {
        end()
        // The thread hears the end of it.
        close(bell)
    }

    /// Changes the weather; takes effect within an instant.
    package func turn(_ weather: Weather) {
        order.withLock { order in
            order.weather = weather
            order.number += 1
        }
        ring()
    }

    /// Resets all connections and stops listening.
    package func end() {
        order.withLock { $0.isEnd = true }
        ring()
    }

    private func ring() { _ = send(bell, "!", 1, Int32(MSG_NOSIGNAL)) }
}
