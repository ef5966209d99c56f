import CLibCurl

/// libcurl refused an option; with a library new enough this means it ran out of memory.
struct CurlRefusal: Error {
    var code: CURLcode
}

/// A borrowed view of a libcurl easy handle, owned and freed by the loop.
struct EasyHandle {
    let raw: UnsafeMutableRawPointer

    func set(_ option: CURLoption, _ value: Int) throws(CurlRefusal) {
        try check(curl_shim_easy_set_long(raw, option, value))
    }

    func set(_ option: CURLoption, _ value: String?) throws(CurlRefusal) {
        try check(curl_shim_easy_set_string(raw, option, value))
    }

    func set(_ option: CURLoption, pointer: UnsafeMutableRawPointer) throws(CurlRefusal) {
        try check(curl_shim_easy_set_pointer(raw, option, pointer))
    }

    func set(_ option: CURLoption, list: UnsafeMutablePointer<curl_slist>?) throws(CurlRefusal) {
        try check(curl_shim_easy_set_list(raw, option, list))
    }

    func set(_ option: CURLoption, write: @escaping curl_write_callback) throws(CurlRefusal) {
        try check(curl_shim_easy_set_write(raw, option, write))
    }

    func set(prereq: @escaping curl_prereq_callback) throws(CurlRefusal) {
        try check(curl_shim_easy_set_prereq(raw, prereq))
    }

    func set(openSocket: @escaping curl_opensocket_callback) throws(CurlRefusal) {
        try check(curl_shim_easy_set_opensocket(raw, openSocket))
    }

    /// Sets the request's body, which libcurl copies; an empty one is sent as such.
    func set(body: [UInt8]) throws(CurlRefusal) {
        try check(curl_shim_easy_set_offset(raw, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.count)))
        let code = body.withUnsafeBytes { bytes in
            // An empty array may have no address, and libcurl takes NULL for "no body at all".
            var nothing: UInt8 = 0
            return withUnsafeMutableBytes(of: &nothing) { placeholder in
                let address = UnsafeMutableRawPointer(mutating: bytes.baseAddress) ?? placeholder.baseAddress
                return curl_shim_easy_set_pointer(raw, CURLOPT_COPYPOSTFIELDS, address)
            }
        }
        try check(code)
    }

    func long(_ info: CURLINFO) -> Int {
        var value = 0
        curl_shim_easy_get_long(raw, info, &value)
        return value
    }

    /// The length the response announced, where it did.
    var announcedLength: Int? {
        var value: curl_off_t = -1
        curl_shim_easy_get_offset(raw, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &value)
        return value >= 0 ? Int(value) : nil
    }

    var httpVersion: HTTPExchange.Version {
        switch long(CURLINFO_HTTP_VERSION) {
        case Int(CURL_HTTP_VERSION_1_0): .http1_0
        case Int(CURL_HTTP_VERSION_1_1): .http1_1
        case Int(CURL_HTTP_VERSION_2_0): .http2
        default: .unknown
        }
    }

    private func check(_ code: CURLcode) throws(CurlRefusal) {
        guard code == CURLE_OK else { throw CurlRefusal(code: code) }
    }
}
