import CLibCurl

/// Requests with nothing around libcurl, on one thread: the limit beside which ``HTTPTransport`` is measured.
package enum RawRequests {
    package struct Failure: Error, CustomStringConvertible {
        package var description: String
    }

    /// Sends GET requests, `connections` at a time, and blocks until every answer; throws at the first that is no 200.
    package static func get(_ urls: [String], authorization: String, connections: Int) throws {
        guard CurlLibrary.isReady, let multi = curl_multi_init() else {
            throw Failure(description: "libcurl could not be prepared")
        }
        var handles: [UnsafeMutableRawPointer] = []
        let header = curl_slist_append(nil, "Authorization: \(authorization)")
        defer {
            for handle in handles {
                curl_multi_remove_handle(multi, handle)
                curl_easy_cleanup(handle)
            }
            curl_multi_cleanup(multi)
            curl_slist_free_all(header)
        }
        var next = urls.makeIterator()
        for _ in 0..<min(connections, urls.count) {
            guard let url = next.next(), let handle = curl_easy_init() else {
                throw Failure(description: "libcurl has no memory for a request")
            }
            handles.append(handle)
            let easy = EasyHandle(raw: handle)
            try easy.set(CURLOPT_NOSIGNAL, 1)
            try easy.set(CURLOPT_TIMEOUT_MS, 20_000)
            try easy.set(CURLOPT_HTTPHEADER, list: header)
            try easy.set(CURLOPT_WRITEFUNCTION, write: { _, size, count, _ in size * count })
            try easy.set(CURLOPT_URL, url)
            curl_multi_add_handle(multi, handle)
        }
        var left = urls.count
        var running: Int32 = 0
        var queued: Int32 = 0
        while left > 0 {
            guard curl_multi_perform(multi, &running) == CURLM_OK else {
                throw Failure(description: "libcurl's loop failed")
            }
            while let message = curl_multi_info_read(multi, &queued) {
                guard message.pointee.msg == CURLMSG_DONE, let handle = message.pointee.easy_handle else { continue }
                let easy = EasyHandle(raw: handle)
                let status = easy.long(CURLINFO_RESPONSE_CODE)
                guard message.pointee.data.result == CURLE_OK, status == 200 else {
                    throw Failure(description: "the store answered with status \(status)")
                }
                left -= 1
                curl_multi_remove_handle(multi, handle)
                guard let url = next.next() else { continue }
                try easy.set(CURLOPT_URL, url)
                curl_multi_add_handle(multi, handle)
            }
            if left > 0 { curl_multi_poll(multi, nil, 0, 100, nil) }
        }
    }
}
