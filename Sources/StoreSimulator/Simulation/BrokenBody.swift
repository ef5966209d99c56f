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
