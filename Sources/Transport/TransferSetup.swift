import CLibCurl
import Glibc

/// All options of an easy handle, in one place, so that a reader can check what is and is not allowed.
struct TransferSetup {
    private let connectTimeoutMs: Int
    private let userAgent: String
    /// The PEM file that is trusted, and nothing else; nil: what libcurl was built with.
    private let caFile: String?

    init(_ configuration: HTTPTransportConfiguration) {
        connectTimeoutMs = configuration.connectTimeout.milliseconds
        userAgent = configuration.userAgent
        // libcurl keeps a parsed bundle between connections only where no directory is searched as well, and parsing
        // one takes tens of milliseconds of the only thread: prefer the bundle alone where there is one.
        // https://curl.se/libcurl/c/CURLOPT_CA_CACHE_TIMEOUT.html
        caFile = configuration.caFile ?? Self.systemBundle()
    }

    /// Prepares a fresh or reset handle for one transfer, which keeps its header fields until the handle is reset.
    ///
    /// `box`: the transfer again, for the callbacks. After a `CurlRefusal` the handle may be reset and used again.
    func apply(to handle: EasyHandle, _ transfer: Transfer, box: UnsafeMutableRawPointer) throws(CurlRefusal) {
        let plan = transfer.submission.plan
        try route(handle, plan)
        try message(handle, transfer)
        try handle.set(CURLOPT_PRIVATE, pointer: box)
        try handle.set(CURLOPT_WRITEDATA, pointer: box)
        try handle.set(CURLOPT_HEADERDATA, pointer: box)
        try handle.set(CURLOPT_WRITEFUNCTION) { bytes, size, count, box in
            guard let bytes, let box else { return 0 }
            let piece = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return Unmanaged<Transfer>.fromOpaque(box).takeUnretainedValue().receive(body: piece) ? piece.count : 0
        }
        try handle.set(CURLOPT_HEADERFUNCTION) { bytes, size, count, box in
            guard let bytes, let box else { return 0 }
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return Unmanaged<Transfer>.fromOpaque(box).takeUnretainedValue().receive(headerLine: line) ? line.count : 0
        }
        try handle.set(CURLOPT_PREREQDATA, pointer: box)
        try handle.set { box, _, _, _, _ in
            guard let box else { return CURL_PREREQFUNC_ABORT }
            let maySend = Unmanaged<Transfer>.fromOpaque(box).takeUnretainedValue().mayBeSent()
            return maySend ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
        }
    }

    /// Where the request may go, by which protocol, and which certificates are trusted there.
    private func route(_ handle: EasyHandle, _ plan: RequestPlan) throws(CurlRefusal) {
        try handle.set(CURLOPT_URL, plan.url)
        try handle.set(CURLOPT_PATH_AS_IS, 1)
        try handle.set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1)
        try handle.set(CURLOPT_PROTOCOLS_STR, plan.scheme.rawValue)
        try handle.set(CURLOPT_FOLLOWLOCATION, 0)
        // An empty string, unlike none, also shuts out http_proxy and its kin.
        try handle.set(CURLOPT_PROXY, "")
        try handle.set(CURLOPT_NETRC, 0)
        // No signals: SIGALRM for name lookups would hit whichever thread it likes.
        try handle.set(CURLOPT_NOSIGNAL, 1)
        // Without it, giving up on a name lookup waits for the lookup, and every other transfer with it.
        try handle.set(CURLOPT_QUICK_EXIT, 1)
        try handle.set(CURLOPT_CONNECTTIMEOUT_MS, connectTimeoutMs)
        // A busy connection would otherwise live for days, on an address that its host may have left.
        try handle.set(CURLOPT_MAXLIFETIME_CONN, 600)
        // Not for child processes: one that inherits a connection keeps it open after this process hung up.
        try handle.set(openSocket: { _, _, address in
            guard let address = address?.pointee else { return CURL_SOCKET_BAD }
            return socket(address.family, address.socktype | Int32(SOCK_CLOEXEC.rawValue), address.protocol)
        })
        switch plan.scheme {
        case .http:
            try handle.set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        case .https:
            // No CURLOPT_PIPEWAIT: on a host that turns out to speak HTTP/1.1 it lets the first burst through nearly
            // one by one. The price is a few spare connections when a burst meets a cold HTTP/2 host.
            try handle.set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
            try handle.set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
            try handle.set(CURLOPT_SSL_VERIFYPEER, 1)
            try handle.set(CURLOPT_SSL_VERIFYHOST, 2)
            if let caFile {
                try handle.set(CURLOPT_CAINFO, caFile)
                try handle.set(CURLOPT_CAPATH, nil)
            }
        }
    }

    private func message(_ handle: EasyHandle, _ transfer: Transfer) throws(CurlRefusal) {
        let plan = transfer.submission.plan
        if let body = plan.body { try handle.set(body: body) }
        if plan.isHead {
            try handle.set(CURLOPT_NOBODY, 1)
        } else if plan.method != (plan.body == nil ? "GET" : "POST") {
            try handle.set(CURLOPT_CUSTOMREQUEST, plan.method)
        }
        try handle.set(CURLOPT_USERAGENT, userAgent)
        for line in plan.headerLines {
            guard let list = curl_slist_append(transfer.headerList, line) else {
                throw CurlRefusal(code: CURLE_OUT_OF_MEMORY)
            }
            transfer.headerList = list
        }
        try handle.set(CURLOPT_HTTPHEADER, list: transfer.headerList)
    }

    private static func systemBundle() -> String? {
        guard let info = curl_version_info(curl_shim_version_now), let path = info.pointee.cainfo else { return nil }
        return access(path, R_OK) == 0 ? String(cString: path) : nil
    }
}

extension Duration {
    /// Whole milliseconds, rounded up and kept within what a C `int` holds.
    var milliseconds: Int {
        guard self > .zero else { return 0 }
        let (seconds, attoseconds) = components
        guard seconds < Int64(Int32.max) / 1000 - 1 else { return Int(Int32.max) }
        return Int(seconds * 1000 + (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000)
    }
}
