import CLibCurl
import CLinux
import Glibc

/// What libcurl waits for: its sockets, its next timeout, and a wake-up by another thread.
///
/// libcurl says by callbacks which sockets it waits on and until when. So a turn of the loop costs what has happened,
/// however many transfers are in flight. Not Sendable: it belongs to the thread that owns the multi handle.
/// - SeeAlso: https://curl.se/libcurl/c/curl_multi_socket_action.html
final class SocketEvents {
    private let multi: UnsafeMutableRawPointer
    private let queue: Int32
    private let alarm: Int32
    private var ready: [epoll_event]
    /// A socket that the system would not watch: its transfer can only time out.
    private var hasRefused = false
    /// When libcurl wants to be called although no socket is ready.
    private var timeout: ContinuousClock.Instant?

    /// Makes itself known to a multi handle; `detach` undoes that before either is freed.
    init(of multi: UnsafeMutableRawPointer) {
        self.multi = multi
        queue = epoll_create1(Int32(EPOLL_CLOEXEC))
        alarm = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        // As hopeless as failing to allocate memory, and at start-up only.
        precondition(queue >= 0 && alarm >= 0, "the system has no descriptor left for the transport")
        ready = Array(repeating: epoll_event(), count: 64)
        watch(alarm, for: CURL_POLL_IN)
        precondition(!hasRefused, "the system does not watch the transport's descriptor")
        let context = Unmanaged.passUnretained(self).toOpaque()
        curl_shim_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, context)
        curl_shim_multi_set_socket(multi) { _, socket, action, context, _ in
            guard let context else { return 0 }
            Unmanaged<SocketEvents>.fromOpaque(context).takeUnretainedValue().watch(socket, for: action)
            return 0
        }
        curl_shim_multi_set_pointer(multi, CURLMOPT_TIMERDATA, context)
        curl_shim_multi_set_timer(multi) { _, milliseconds, context in
            guard let context else { return 0 }
            Unmanaged<SocketEvents>.fromOpaque(context).takeUnretainedValue().setTimeout(milliseconds)
            return 0
        }
    }

    /// Ends the callbacks; the handle may be freed afterwards, and so may this.
    func detach() {
        curl_shim_multi_set_socket(multi, nil)
        curl_shim_multi_set_timer(multi, nil)
    }

    deinit {
        close(queue)
        close(alarm)
    }

    /// What ends `wait` from any thread.
    var waker: Waker { Waker(alarm: alarm) }

    /// Lets libcurl do what its timeouts ask for, which is also how transfers begin.
    func fireTimeout() -> CURLMcode {
        guard let due = timeout, due <= .now else { return CURLM_OK }
        timeout = nil
        let code = act(on: CURL_SOCKET_BAD, 0)
        // libcurl reports a timeout once.
        var milliseconds = -1
        if timeout == nil, curl_multi_timeout(multi, &milliseconds) == CURLM_OK { setTimeout(milliseconds) }
        return code
    }

    /// Sleeps until there is work or the time is over, then lets libcurl work; `nil`: the system can't wait.
    func wait(upTo limit: Duration) -> CURLMcode? {
        guard !hasRefused else {
            hasRefused = false
            return nil
        }
        var limit = limit
        if let timeout { limit = min(limit, ContinuousClock.now.duration(to: timeout)) }
        let count = epoll_wait(queue, &ready, Int32(ready.count), Int32(limit.milliseconds))
        guard count >= 0 else { return errno == EINTR ? CURLM_OK : nil }
        var verdict = CURLM_OK
        for event in ready.prefix(Int(count)) {
            guard event.data.fd != alarm else {
                var number: UInt64 = 0
                read(alarm, &number, 8)
                continue
            }
            let code = act(on: event.data.fd, Self.mask(of: event.events))
            if code != CURLM_OK { verdict = code }
        }
        return verdict
    }

    private func act(on socket: curl_socket_t, _ mask: Int32) -> CURLMcode {
        var running: Int32 = 0
        return curl_multi_socket_action(multi, socket, mask, &running)
    }

    private static func mask(of events: UInt32) -> Int32 {
        var mask: Int32 = 0
        if events & EPOLLIN.rawValue != 0 { mask |= CURL_CSELECT_IN }
        if events & EPOLLOUT.rawValue != 0 { mask |= CURL_CSELECT_OUT }
        // A peer that hung up may have sent something before.
        if events & EPOLLHUP.rawValue != 0 { mask |= CURL_CSELECT_IN }
        if events & EPOLLERR.rawValue != 0 { mask |= CURL_CSELECT_ERR }
        return mask
    }

    // MARK: What libcurl says

    private func watch(_ socket: curl_socket_t, for action: Int32) {
        guard action != CURL_POLL_REMOVE else {
            // Where it is closed already the system has forgotten it by itself.
            epoll_ctl(queue, EPOLL_CTL_DEL, socket, nil)
            return
        }
        var event = epoll_event()
        event.data.fd = socket
        if action & CURL_POLL_IN != 0 { event.events |= EPOLLIN.rawValue }
        if action & CURL_POLL_OUT != 0 { event.events |= EPOLLOUT.rawValue }
        guard epoll_ctl(queue, EPOLL_CTL_MOD, socket, &event) != 0 else { return }
        if epoll_ctl(queue, EPOLL_CTL_ADD, socket, &event) != 0 { hasRefused = true }
    }

    private func setTimeout(_ milliseconds: Int) {
        timeout = milliseconds < 0 ? nil : .now + .milliseconds(milliseconds)
    }
}

/// The right to end a wait of ``SocketEvents`` from any thread, until they are freed.
struct Waker: Sendable {
    fileprivate let alarm: Int32

    func wake() {
        var one: UInt64 = 1
        // It fails only where the number is full, which wakes as well.
        _ = write(alarm, &one, 8)
    }
}
