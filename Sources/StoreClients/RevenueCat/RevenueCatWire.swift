import TextFormats

/// One page of a list.
struct WirePage<Item: Sendable>: Sendable {
    var items: [Item]
    /// Items that are well-formed JSON but not what they ought to be.
    var badItems: Int
    var next: NextPage
    /// Served in an incident, from a copy that may be old.
    var isDegraded = false
}

/// Where a list goes on.
enum NextPage: Hashable, Sendable {
    case end
    /// The id of this page's last item.
    case after(String)
    /// There is more, but not said where.
    case unusable

    /// Takes the cursor out of a `next_page`, absolute or relative, and nothing else: the host in it gets no key.
    init(_ text: String?) {
        guard let text else {
            self = .end
            return
        }
        let whole = Array(text.utf8)
        let url = whole.prefix { $0 != UInt8(ascii: "#") }
        guard let mark = url.firstIndex(of: UInt8(ascii: "?")) else {
            self = .unusable
            return
        }
        let name = Array("starting_after=".utf8)
        let pair = url[(mark + 1)...].split(separator: UInt8(ascii: "&")).first { $0.starts(with: name) }
        guard let pair, let cursor = PercentCoding.decode(pair.dropFirst(name.count)), !cursor.isEmpty else {
            self = .unusable
            return
        }
        self = .after(cursor)
    }
}

private enum ListField: String, CaseIterable {
    case object, items, nextPage = "next_page"
}

private let listFields = JSONFields<ListField>()

/// Reads a whole answer that is a list; an element that `item` refuses is counted and skipped, and the others stand.
///
/// Nothing is used of a text that is not JSON: what came before its fault is no better than what follows.
func decodePage<Item: Sendable>(
    _ body: [UInt8],
    item: (inout JSONReader) throws(JSONFault) -> Item
) throws(JSONFault) -> WirePage<Item> {
    var reader = try JSONReader(body)
    let page = try readList(&reader, item: item)
    try reader.finish()
    return page
}

private func readList<Item: Sendable>(
    _ reader: inout JSONReader,
    item: (inout JSONReader) throws(JSONFault) -> Item
) throws(JSONFault) -> WirePage<Item> {
    var isList = false
    var items: [Item]?
    var badItems = 0
    var next: String?
    try reader.readObject(listFields) { reader, field throws(JSONFault) in
        switch field {
        case .object:
            guard try reader.readString() == "list" else { throw .wrongType }
            isList = true
        case .items:
            var read: [Item] = []
            try reader.readArray { reader throws(JSONFault) in
                let value = try reader.readIfSound { reader throws(JSONFault) in try item(&reader) }
                if let value { read.append(value) } else { badItems += 1 }
            }
            items = read
        case .nextPage:
            next = try reader.readOptionalString()
        }
    }
    guard isList, let items else { throw .missing }
    return WirePage(items: items, badItems: badItems, next: NextPage(next))
}

private let lookupKey = JSONFields(only: "lookup_key")
private let aliasID = JSONFields(only: "id")

/// Reads an entitlement down to its lookup key.
func readEntitlement(_ reader: inout JSONReader) throws(JSONFault) -> String {
    var key: String?
    try reader.readObject(lookupKey) { reader, _ throws(JSONFault) in key = try readName(&reader) }
    guard let key else { throw .missing }
    return key
}

/// Reads an alias down to its id.
func readAlias(_ reader: inout JSONReader) throws(JSONFault) -> String {
    var id: String?
    try reader.readObject(aliasID) { reader, _ throws(JSONFault) in
        do throws(JSONFault) {
            id = try readName(&reader)
        } catch {
            // What is no text is no user's id, and hides no other alias.
            guard error == .badString else { throw error }
            id = ""
        }
    }
    guard let id else { throw .missing }
    return id
}

/// Reads an item's list of entitlements: the first page of what may have more.
func readEntitlements(_ reader: inout JSONReader) throws(JSONFault) -> (keys: [String], next: NextPage) {
    guard try !reader.readNull() else { return ([], .end) }
    let page = try readList(&reader, item: readEntitlement)
    // An entitlement we cannot name could be the one that counts.
    return (page.items, page.badItems == 0 ? page.next : .unusable)
}

/// Reads a string that must say something.
func readName(_ reader: inout JSONReader) throws(JSONFault) -> String {
    let name = try reader.readString()
    guard !name.isEmpty else { throw .outOfRange }
    return name
}
