internal import Yams

/// The lists of STORE_APPS as they are written: each entry as the variables that it stands for.
struct StoreAppsFile {
    /// The longest file that is read, in bytes.
    static let limit = 1 << 20
    /// The most entries of one list.
    static let mostEntries = 100

    /// A list, by the store whose apps it holds.
    enum List: String, CaseIterable {
        case appStore = "app_store"
        case googlePlay = "google_play"
        case revenueCat = "revenuecat"

        /// What names an app of the store, which each entry has and no two share.
        var name: Variable {
            switch self {
            case .appStore: .appStoreBundleID
            case .googlePlay: .googlePlayPackageName
            case .revenueCat: .revenueCatProjectID
            }
        }

        /// What belongs to one app: as a variable it can't stand beside the list.
        var own: [Variable] {
            switch self {
            case .appStore:
                [.appStoreBundleID, .appStoreAppID, .appStoreIssuerID, .appStoreKeyID, .appStorePrivateKey]
            case .googlePlay:
                [.googlePlayPackageName, .googlePlayServiceAccount, .pubSubAudience, .pubSubServiceAccount]
            case .revenueCat:
                [
                    .revenueCatProjectID, .revenueCatAPIKey, .revenueCatTransferAPIKey,
                    .revenueCatWebhookAuthorization, .revenueCatWebhookSecret,
                ]
            }
        }

        /// What all apps of the store may share: the variable stands for each entry that says nothing else.
        var shared: [Variable] {
            switch self {
            case .appStore:
                [
                    .appStoreRequestsPerMinute, .appStoreBaseURL, .appStoreSandboxBaseURL, .appStoreRootCertificates,
                    .receiptRootCertificates,
                ]
            case .googlePlay:
                [
                    .googlePlayRequestsPerMinute, .googlePlayBaseURL, .googleOAuthBaseURL, .googlePlayAcknowledge,
                    .googleKeysURL,
                ]
            case .revenueCat: [.revenueCatBaseURL, .revenueCatRequestsPerMinute]
            }
        }
    }

    /// An entry of a list.
    struct Entry {
        /// Counted from 1.
        var number: Int
        /// Its texts by the variables' names; `NAME_FILE` among them.
        var values: [String: String]
    }

    /// One thing that is wrong; never with a value of the file.
    struct Fault {
        /// Where: a list, an entry of it and a key, as far as they are known.
        var place: String
        var problem: String
        var fix: String
    }

    /// The lists that are there, each with its entries.
    private(set) var lists: [List: [Entry]] = [:]
    private(set) var faults: [Fault] = []

    /// Where an entry, counted from 1, and a key of it stand.
    static func place(_ list: List, _ number: Int, _ key: String? = nil) -> String {
        "\(list.rawValue), entry \(number)" + (key.map { ", \($0)" } ?? "")
    }

    /// Reads YAML text; what can't be used is left out and noted.
    init(_ text: String) {
        let names = List.allCases.map(\.rawValue).joined(separator: ", ")
        let fix = "Write YAML with lists of entries under \(names)"
        guard text.utf8.count <= Self.limit else {
            fault("", "is larger than \(Self.limit >> 10) KiB", fix: fix)
            return
        }
        let root: Node?
        // The parser's own words quote the text, which holds keys.
        do { root = try Yams.compose(yaml: text) } catch {
            fault("", "is no YAML\(Self.line(of: error))", fix: fix)
            return
        }
        guard let mapping = root?.mapping, !mapping.isEmpty else {
            fault("", "has no lists", fix: fix)
            return
        }
        for (key, value) in mapping {
            guard let list = key.scalar.flatMap({ List(rawValue: $0.string) }) else {
                fault("", "has \(Self.quoted(key)), which is no list of store apps", fix: "Use \(names)")
                continue
            }
            lists[list] = entries(of: list, value)
        }
    }

    private mutating func entries(of list: List, _ value: Node) -> [Entry] {
        let fix = "List from 1 to \(Self.mostEntries) store apps, or take the list out"
        guard let items = value.sequence else {
            fault(list.rawValue, "is no list", fix: fix)
            return []
        }
        guard (1...Self.mostEntries).contains(items.count) else {
            fault(list.rawValue, items.isEmpty ? "is empty" : "has \(items.count) entries", fix: fix)
            return []
        }
        return items.enumerated().compactMap { entry($1, number: $0 + 1, of: list) }
    }

    private mutating func entry(_ item: Node, number: Int, of list: List) -> Entry? {
        guard let mapping = item.mapping else {
            fault(
                Self.place(list, number),
                "has no keys with values",
                fix: "Write the settings as key: value, with the keys in lower case"
            )
            return nil
        }
        let known = Dictionary(
            (list.own + list.shared).flatMap { [$0.rawValue, $0.fileVariable] }.map { ($0.lowercased(), $0) }
        ) { first, _ in first }
        var values: [String: String] = [:]
        for (key, value) in mapping {
            guard let name = key.scalar.flatMap({ known[$0.string] }) else {
                let like = key.scalar.flatMap { SimilarNames.nearest(to: $0.string, among: known.keys) }
                fault(
                    Self.place(list, number),
                    "has the unknown key \(Self.quoted(key))",
                    fix: like.map { "Did you mean \($0)?" }
                        ?? "Use the variables' names in lower case: \(known.keys.sorted().joined(separator: ", "))"
                )
                continue
            }
            guard let scalar = value.scalar else {
                fault(
                    Self.place(list, number, name.lowercased()),
                    "is neither a text nor a number",
                    fix: "Give the key one value"
                )
                continue
            }
            // Without a value it counts as not set, as with variables.
            if value.tag != Tag(.null), !scalar.string.isEmpty { values[name] = scalar.string }
        }
        return Entry(number: number, values: values)
    }

    private mutating func fault(_ place: String, _ problem: String, fix: String) {
        faults.append(Fault(place: place, problem: problem, fix: fix))
    }

    /// A key as far as it can be shown: a secret in its place is not.
    private static func quoted(_ key: Node) -> String {
        guard let text = key.scalar?.string, (1...64).contains(text.utf8.count),
            text.utf8.allSatisfy({ (0x61...0x7A).contains($0) || $0 == 0x5F })
        else { return "a key that is no variable's name in lower case" }
        return "\"\(text)\""
    }

    private static func line(of error: any Error) -> String {
        switch error {
        case YamlError.scanner(_, _, let mark, _), YamlError.parser(_, _, let mark, _),
            YamlError.composer(_, _, let mark, _):
            " in line \(mark.line)"
        case YamlError.duplicatedKeysInMapping(_, let context):
            ": a key stands twice in the mapping that begins in line \(context.mark.line)"
        default: ""
        }
    }
}
