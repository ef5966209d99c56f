import CLibCurl
import Glibc
import Synchronization

/// A joinable thread, because Foundation's cannot be joined and OpenSSL's exit handler races a thread that still runs.
final class CurlThread: Sendable {
    private let thread: Mutex<pthread_t?>

    init(_ body: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let start = Unmanaged.passRetained(Start(body))
        let code = pthread_create(
            &thread,
            nil,
            { context in
                if let context { Unmanaged<Start>.fromOpaque(context).takeRetainedValue().body() }
                return nil
            },
            start.toOpaque()
        )
        // As hopeless as failing to allocate memory, and at start-up only.
        precondition(code == 0, "cannot start the transport's thread")
        self.thread = Mutex(thread)
    }

    /// Blocks until the thread ends, so call it only when `body` has nothing left to do; later calls return at once.
    func join() {
        if let thread = takeThread() { pthread_join(thread, nil) }
    }

    deinit {
        // Not joined: let the system reap the thread whenever it ends.
        if let thread = takeThread() { pthread_detach(thread) }
    }

    private func takeThread() -> pthread_t? {
        thread.withLock { thread in
            defer { thread = nil }
            return thread
        }
    }

    private final class Start: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
}

/// Prepares libcurl once for the whole process; reading it again is free.
///
/// SIGPIPE is ignored here: OpenSSL writes to sockets without asking for that to be suppressed, and a peer that hangs
/// up must not end the process.
enum CurlLibrary {
    static let isReady: Bool = {
        signal(SIGPIPE, SIG_IGN)
        return curl_global_init(curl_shim_global_all) == CURLE_OK
    }()
}
