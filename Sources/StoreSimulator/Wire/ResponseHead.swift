/// Writes the status line and header lines of an answer.
///
/// The simulator writes its own bytes instead of using an HTTP encoder: broken answers must be possible, whole ones
/// must be cheap.
enum ResponseHead {
    /// Appends the head of an answer, the empty line included.
    static func write(_ reply: Reply, keepsAlive: Bool, to bytes: inout [UInt8]) {
        bytes.append(literal: "HTTP/1.1 ")
        bytes.append(decimal: Int64(reply.status))
        bytes.append(UInt8(ascii: " "))
        bytes.append(literal: reason(reply.status))
        bytes.append(literal: "\r\nContent-Type: ")
        bytes.append(literal: reply.contentType)
        bytes.append(literal: "\r\nContent-Length: ")
        bytes.append(decimal: Int64(reply.contentLength))
        bytes.append(literal: "\r\nDate: ")
        writeDate(reply.dateMs, to: &bytes)
        bytes.append(literal: "\r\nX-Request-Id: ")
        writeHex(reply.requestID, to: &bytes)
        for header in reply.headers {
            bytes.append(literal: "\r\n")
            bytes.append(literal: header.name)
            bytes.append(literal: ": ")
            bytes.append(text: header.value)
        }
        bytes.append(literal: keepsAlive ? "\r\n\r\n" : "\r\nConnection: close\r\n\r\n")
    }

    /// Appends a moment as RFC 9110 spells it, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
    static func writeDate(_ milliseconds: Int64, to bytes: inout [UInt8]) {
        let seconds = floorDivide(milliseconds, 1000)
        let days = floorDivide(seconds, 86_400)
        let (year, month, day) = civil(days: days)
        let ofDay = seconds - days * 86_400
        bytes.append(literal: weekdays[Int(((days + 4) % 7 + 7) % 7)])
        bytes.append(literal: ", ")
        writeTwo(day, to: &bytes)
        bytes.append(literal: months[Int(month - 1)])
        bytes.append(decimal: year)
        bytes.append(UInt8(ascii: " "))
        writeTwo(ofDay / 3600, to: &bytes)
        bytes.append(UInt8(ascii: ":"))
        writeTwo(ofDay / 60 % 60, to: &bytes)
        bytes.append(UInt8(ascii: ":"))
        writeTwo(ofDay % 60, to: &bytes)
        bytes.append(literal: " GMT")
    }

    /// Year, month and day of a day count since 1970 (Howard Hinnant's `civil_from_days`).
    static func civil(days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 719_468
        let era = floorDivide(shifted, 146_097)
        let ofEra = shifted - era * 146_097
        let yearOfEra = (ofEra - ofEra / 1460 + ofEra / 36_524 - ofEra / 146_096) / 365
        let ofYear = ofEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * ofYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        return (year, month, ofYear - (153 * shiftedMonth + 2) / 5 + 1)
    }

    static func floorDivide(_ number: Int64, _ divisor: Int64) -> Int64 {
        number >= 0 ? number / divisor : (number - divisor + 1) / divisor
    }

    private static func writeTwo(_ number: Int64, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "0") + UInt8(number / 10))
        bytes.append(UInt8(ascii: "0") + UInt8(number % 10))
    }

    private static func writeHex(_ number: UInt64, to bytes: inout [UInt8]) {
        for shift in stride(from: UInt64(60), through: 0, by: -4) {
            let digit = UInt8(truncatingIfNeeded: number >> shift) & 15
            bytes.append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
        }
    }

    private static let weekdays: [StaticString] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]

    private static let months: [StaticString] = [
        " Jan ", " Feb ", " Mar ", " Apr ", " May ", " Jun ", " Jul ", " Aug ", " Sep ", " Oct ", " Nov ", " Dec ",
    ]

    private static func reason(_ status: Int) -> StaticString {
        switch status {
        case 200: "OK"
        case 201: "Created"
        case 204: "No Content"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 409: "Conflict"
        case 413: "Content Too Large"
        case 422: "Unprocessable Content"
        case 423: "Locked"
        case 429: "Too Many Requests"
        case 500: "Internal Server Error"
        case 502: "Bad Gateway"
        case 503: "Service Unavailable"
        case 504: "Gateway Timeout"
        default: "Status"
        }
    }
}
