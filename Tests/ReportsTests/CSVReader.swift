/// Reads CSV by RFC 4180 alone: CR LF after every line, quotation marks only around whole fields.
enum CSVReader {
    struct Fault: Error { var text: String }

    static func rows(_ text: String) throws -> [[String]] {
        let bytes = Array(text.utf8)
        var rows: [[String]] = []
        var row: [String] = []
        var place = 0
        while place < bytes.count {
            var field: [UInt8] = []
            if bytes[place] == 0x22 {
                place += 1
                while true {
                    guard place < bytes.count else { throw Fault(text: "a field without an end") }
                    if bytes[place] != 0x22 {
                        field.append(bytes[place])
                        place += 1
                    } else if place + 1 < bytes.count, bytes[place + 1] == 0x22 {
                        field.append(0x22)
                        place += 2
                    } else {
                        place += 1
                        break
                    }
                }
            } else {
                while place < bytes.count, bytes[place] != 0x2C, bytes[place] != 0x0D {
                    guard bytes[place] != 0x22, bytes[place] != 0x0A else { throw Fault(text: "a stray sign") }
                    field.append(bytes[place])
                    place += 1
                }
            }
            row.append(String(decoding: field, as: UTF8.self))
            guard place < bytes.count else { throw Fault(text: "a line without an end") }
            if bytes[place] == 0x2C {
                place += 1
                // A comma at the end of all would announce a field that does not come.
                guard place < bytes.count else { throw Fault(text: "a comma at the end") }
            } else {
                guard bytes[place] == 0x0D, place + 1 < bytes.count, bytes[place + 1] == 0x0A else {
                    throw Fault(text: "a stray sign after a field")
                }
                place += 2
                rows.append(row)
                row = []
            }
        }
        return rows
    }
}
