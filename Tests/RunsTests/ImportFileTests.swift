import Runs
import Testing

/// Files of purchases, line by line.
struct ImportFileTests {
    private static func lines(_ text: String) throws -> [ImportFile.Line] {
        var file = try ImportFile(Array((ImportFile.header + "\n" + text).utf8))
        return file.lines(upTo: 1_000)
    }

    @Test func `Fields may stand in quotation marks, and empty lines count as lines alone`() throws {
        let lines = try Self.lines(
            "\"u,\"\"1\"\"\",google_play,purchase_token,a.b-C_9\r\n\n\u{20AC},onside,order_id,o-1"
        )
        #expect(lines.map(\.number) == [2, 4])
        #expect(lines.map(\.userID) == ["u,\"1\"", "\u{20AC}"] && lines.allSatisfy { $0.fault == nil })
        #expect(lines[0].value == "a.b-C_9" && lines[1].store == "onside")
    }

    @Test func `What is wrong with a line is named by its field`() throws {
        let faults: [(String, ImportFile.LineFault)] = [
            (",app_store,order_id,M1", .user), ("u\u{1},app_store,order_id,M1", .user),
            ("u,revenuecat,order_id,M1", .store), ("u,app_store,purchase_token,t", .kind), ("u,google_play,,t", .kind),
            ("u,app_store,original_transaction_id,12a", .value), ("u,google_play,purchase_token,", .value),
            ("u,google_play,order_id,a b", .value), ("u,app_store,order_id", .fields),
            ("u,app_store,order_id,1,2", .fields), ("u,app_store,order_id,\"1", .fields),
            ("u,app_store,order_id,\"1\"2", .fields),
            ("u,app_store,order_id," + String(repeating: "1", count: ImportFile.mostLineBytes), .tooLong),
        ]
        for (line, fault) in faults { #expect(try Self.lines(line).first?.fault == fault, "\(line.prefix(60))") }
        var odd = try ImportFile(Array((ImportFile.header + "\nu,").utf8) + [0xFF, 0x2C])
        #expect(odd.lines(upTo: 1).first?.fault == .encoding)
        // A name that can't be stored is left out, every other is shown in the result.
        #expect(try Self.lines("u\u{0},app_store,order_id,M1").first?.userID == nil)
        #expect(try Self.lines("u,app_store,order_id,a b").first?.userID == "u")
    }

    @Test func `A line that says exactly what another one says names the first`() throws {
        let lines = try Self.lines(
            "u,onside,order_id,1\nv,onside,order_id,1\n\"u\",onside,order_id,1\r\nu,onside,order_id,2"
        )
        #expect(lines.map(\.first) == [nil, nil, 2, nil])
    }

    @Test func `A file is taken as a whole, or not at all`() throws {
        func fault(_ bytes: [UInt8]) -> ImportFile.Fault? {
            do throws(ImportFile.Fault) {
                _ = try ImportFile(bytes)
                return nil
            } catch { return error }
        }
        let header = Array(ImportFile.header.utf8)
        #expect(fault(header) == nil && fault([0xEF, 0xBB, 0xBF] + header + [13, 10]) == nil)
        #expect(fault([]) == .header && fault(Array("user_id;store;kind;value\n".utf8)) == .header)
        #expect(fault(header + [UInt8](repeating: 10, count: ImportFile.mostLines + 1)) == nil)
        #expect(fault(header + [UInt8](repeating: 10, count: ImportFile.mostLines + 2)) == .tooManyLines)
        #expect(fault([UInt8](repeating: 120, count: ImportFile.mostBytes + 1)) == .tooLarge)
        let (one, other) = (try ImportFile(header), try ImportFile(header + [10]))
        #expect(one.digest != other.digest && one.digest.count == 32)
    }
}
