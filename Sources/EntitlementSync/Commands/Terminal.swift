import Dispatch
import Foundation
import Glibc

/// Asks at the terminal, also where input and output are something else.
enum Terminal {
    /// Asks for something, which is shown while it is typed or not; `nil`: no answer came.
    ///
    /// People think for long: not on a thread that others need.
    static func ask(_ question: String, shown: Bool) async -> String? {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async { continuation.resume(returning: line(question, shown: shown)) }
        }
    }

    /// Says something; returns whether anybody is there to read it.
    static func say(_ text: String) -> Bool {
        guard let descriptor = opened() else { return false }
        defer { close(descriptor) }
        write(text, to: descriptor)
        return true
    }

    private static func opened() -> CInt? {
        let descriptor = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        return descriptor >= 0 ? descriptor : nil
    }

    /// Keys are read one by one, so that no signal that is typed leaves the terminal silent.
    private static func line(_ question: String, shown: Bool) -> String? {
        guard let descriptor = opened() else { return nil }
        defer { close(descriptor) }
        var before = termios()
        guard tcgetattr(descriptor, &before) == 0 else { return nil }
        var raw = before
        raw.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG)
        guard tcsetattr(descriptor, TCSAFLUSH, &raw) == 0 else { return nil }
        defer { tcsetattr(descriptor, TCSAFLUSH, &before) }
        write(question, to: descriptor)
        defer { write("\n", to: descriptor) }
        var typed: [UInt8] = []
        while true {
            var byte: UInt8 = 0
            let count = read(descriptor, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1, typed.count < 1024 else { return nil }
            switch byte {
            case 0x03, 0x04, 0x1C: return nil  // Ctrl-C, Ctrl-D, Ctrl-\
            case 0x0A, 0x0D: return String(validating: typed, as: UTF8.self)
            case 0x15:  // Ctrl-U
                while !typed.isEmpty { erase(&typed, shown, descriptor) }
            case 0x08, 0x7F: erase(&typed, shown, descriptor)
            case 0x00..<0x20: continue
            default:
                typed.append(byte)
                if shown { write([byte], to: descriptor) }
            }
        }
    }

    /// Takes the last character away, however many bytes it has.
    private static func erase(_ typed: inout [UInt8], _ shown: Bool, _ descriptor: CInt) {
        while let last = typed.popLast(), last & 0xC0 == 0x80 {}
        if shown { write("\u{8} \u{8}", to: descriptor) }
    }

    private static func write(_ text: String, to descriptor: CInt) { write(Array(text.utf8), to: descriptor) }

    private static func write(_ bytes: [UInt8], to descriptor: CInt) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }
}
