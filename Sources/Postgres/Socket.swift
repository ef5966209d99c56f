import Glibc

/// Tests sockets that libpq owns.
enum Socket {
    /// Whether reading would return at once: with data, with the end, or with an error.
    static func isReadable(_ descriptor: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) != 0
    }
}
