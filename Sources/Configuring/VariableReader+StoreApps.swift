package import Entitlements

/// The store apps over the one user base, as the configuration has them.
struct StoreApps {
    var appStore: AppStoreSettings
    var googlePlay: [GooglePlaySettings] = []
    var revenueCat: [RevenueCatSettings] = []
    var webhooks = APIConfig.Webhooks()
    var listedStores: Set<Store> = []
}

extension Config {
    /// A fault of a variable as one of an app's settings, where STORE_APPS lists the apps of the store.
    package func named(_ fault: ConfigurationFault, of app: String, in store: Store) -> ConfigurationFault {
        guard listedStores.contains(store) else { return fault }
        let key = fault.variable.lowercased()
        return ConfigurationFault(
            variable: "\(Variable.storeApps.rawValue) (\(store.rawValue), \(app), \(key))",
            problem: fault.problem,
            fix: fault.fix.replacing("\(fault.variable)_FILE", with: "\(key)_file")
        )
    }
}

extension VariableReader {
    /// Reads the lists of STORE_APPS and, for each store without a list, its variables.
    mutating func storeApps() -> StoreApps {
        let file = storeAppsFile()
        for fault in file?.faults ?? [] {
            self.fault(.storeApps, as: Self.name(fault.place), fault.problem, fix: fault.fix)
        }
        var apps = StoreApps(appStore: AppStoreSettings(rootCertificates: [nil], receiptRootCertificates: [nil]))
        for list in StoreAppsFile.List.allCases where file?.lists[list] != nil {
            refuseVariables(beside: list)
            if let store = Store(rawValue: list.rawValue) { apps.listedStores.insert(store) }
        }
        if let entries = file?.lists[.appStore] {
            let settings = read(entries, of: .appStore) { $0.appStore() }
            refuseHalves(of: .appStore, zip(entries, settings).map { ($0.number, $1.isAsked) }, by: .appStorePrivateKey)
            refuseOtherRoots(zip(entries, settings).map { ($0.number, $1.rootCertificates) }, .appStoreRootCertificates)
            refuseOtherRoots(
                zip(entries, settings).map { ($0.number, $1.receiptRootCertificates) },
                .receiptRootCertificates
            )
            apps.appStore = AppStoreSettings(
                apps: settings.flatMap(\.apps),
                rootCertificates: settings.first?.rootCertificates ?? [nil],
                receiptRootCertificates: settings.first?.receiptRootCertificates ?? [nil]
            )
        } else {
            apps.appStore = appStore()
        }
        if let entries = file?.lists[.googlePlay] {
            let settings = read(entries, of: .googlePlay) { ($0.googlePlay(), $0.push()) }
            refuseHalves(
                of: .googlePlay,
                zip(entries, settings).map { ($0.number, $1.0 != nil) },
                by: .googlePlayServiceAccount
            )
            for (access, push) in settings {
                if let access { apps.googlePlay.append(access) }
                if let push { apps.webhooks.push.append(push) }
            }
        } else {
            if let access = googlePlay() { apps.googlePlay = [access] }
            if let push = push() { apps.webhooks.push = [push] }
        }
        if let entries = file?.lists[.revenueCat] {
            let settings = read(entries, of: .revenueCat) { ($0.revenueCat(), $0.revenueCatSender()) }
            apps.revenueCat = settings.compactMap(\.0)
            apps.webhooks.revenueCat = settings.compactMap(\.1)
            refuseAmbiguous(zip(entries, settings).compactMap { entry, made in made.1.map { (entry.number, $0) } })
        } else {
            if let access = revenueCat() { apps.revenueCat = [access] }
            if let sender = revenueCatSender() { apps.webhooks.revenueCat = [sender] }
        }
        return apps
    }

    private mutating func storeAppsFile() -> StoreAppsFile? {
        guard let text = text(.storeApps) else { return nil }
        // With STORE_APPS_FILE the value is the file's own text.
        guard !text.contains("\n"), !text.contains(": "), text.last != ":" else { return StoreAppsFile(text) }
        do throws(ValueFile.Failure) {
            return StoreAppsFile(try ValueFile.read(text, upTo: StoreAppsFile.limit))
        } catch {
            fault(.storeApps, error.problem, fix: "Set the path of a YAML file with lists of store apps")
            return nil
        }
    }

    private static func name(_ place: String) -> String {
        Variable.storeApps.rawValue + (place.isEmpty ? "" : " (\(place))")
    }

    /// What one app of a store is set up with can't stand beside the list of them.
    private mutating func refuseVariables(beside list: StoreAppsFile.List) {
        for variable in list.own where values[variable.rawValue] != nil {
            fault(
                variable,
                "is set, and STORE_APPS has the list \(list.rawValue)",
                fix: "Move it into an entry of the list, or take the list out"
            )
        }
    }

    /// Apps that can be asked about beside some that can't: silence about a purchase would mean something for a part of them.
    private mutating func refuseHalves(
        of list: StoreAppsFile.List,
        _ entries: [(number: Int, isAsked: Bool)],
        by variable: Variable
    ) {
        guard isSound(.storeApps), let asked = entries.first(where: \.isAsked) else { return }
        for entry in entries where !entry.isAsked {
            fault(
                .storeApps,
                as: Self.name(StoreAppsFile.place(list, entry.number, variable.rawValue.lowercased())),
                "is not set, but that of entry \(asked.number) is",
                fix: "Give each store app its credentials, or none of them"
            )
        }
    }

    /// Reads each entry as if its keys were variables, by the same rules.
    private mutating func read<Settings>(
        _ entries: [StoreAppsFile.Entry],
        of list: StoreAppsFile.List,
        _ read: (inout VariableReader) -> Settings
    ) -> [Settings] {
        var names: [String: Int] = [:]
        return entries.map { entry in
            var own = entry.values
            var taken: Set<String> = []
            for variable in list.shared where own[variable.rawValue] == nil && own[variable.fileVariable] == nil {
                own[variable.rawValue] = values[variable.rawValue]
                taken.insert(variable.rawValue)
            }
            var reader = VariableReader(environment: own)
            let settings = read(&reader)
            let key = list.name.rawValue.lowercased()
            if let name = reader.values[list.name.rawValue] {
                if let first = names[name] {
                    reader.fault(
                        list.name,
                        "is also that of entry \(first)",
                        fix: "List each store app once"
                    )
                } else {
                    names[name] = entry.number
                }
            } else if reader.isSound(list.name) {
                reader.fault(list.name, "is not set", fix: "Name the store app by \(key)")
            }
            for fault in reader.faults { take(fault, entry: entry.number, of: list, shared: taken) }
            return settings
        }
    }

    /// Notes what is wrong with an entry, in the words of its keys; what it shares with others is wrong once.
    private mutating func take(
        _ fault: ConfigurationFault,
        entry number: Int,
        of list: StoreAppsFile.List,
        shared: Set<String>
    ) {
        let isShared = values[fault.variable] != nil && shared.contains(fault.variable)
        if isShared, let variable = Variable(rawValue: fault.variable) {
            guard isSound(variable) else { return }
            return self.fault(variable, fault.problem, fix: fault.fix)
        }
        var (problem, fix) = (fault.problem, fault.fix)
        for variable in (list.own + list.shared).map(\.rawValue).sorted(by: { $0.count > $1.count }) {
            problem = problem.replacing(variable, with: variable.lowercased())
            fix = fix.replacing(variable, with: variable.lowercased())
        }
        self.fault(
            .storeApps,
            as: Self.name(StoreAppsFile.place(list, number, fault.variable.lowercased())),
            problem.replacing("_FILE", with: "_file"),
            fix: fix.replacing("_FILE", with: "_file")
        )
    }

    /// One who has the key of one root could sign for every app of the list.
    private mutating func refuseOtherRoots(_ roots: [(number: Int, paths: [String?])], _ variable: Variable) {
        for (number, paths) in roots.dropFirst() where paths != roots.first?.paths {
            fault(
                .storeApps,
                as: Self.name(StoreAppsFile.place(.appStore, number, variable.rawValue.lowercased())),
                "is not that of the first entry",
                fix: "Set \(variable.rawValue) for all of them, or keep an app that is signed for otherwise to itself"
            )
        }
    }

    /// Two projects with one secret: neither could be replaced without the other.
    private mutating func refuseAmbiguous(_ senders: [(number: Int, sender: APIConfig.RevenueCatSender)]) {
        for (index, (number, sender)) in senders.enumerated() {
            for (other, earlier) in senders.prefix(index) {
                guard let variable = Self.ambiguity(sender, earlier) else { continue }
                fault(
                    .storeApps,
                    as: Self.name(StoreAppsFile.place(.revenueCat, number, variable.rawValue.lowercased())),
                    "is also that of entry \(other)",
                    fix: "Give each project's webhook a secret of its own"
                )
                break
            }
        }
    }

    /// By what a webhook of one project would pass for one of the other's; `nil`: it would not.
    private static func ambiguity(
        _ one: APIConfig.RevenueCatSender,
        _ other: APIConfig.RevenueCatSender
    ) -> Variable? {
        func isSame(_ one: Secret, _ other: Secret) -> Bool { one.reveal().utf8.elementsEqual(other.reveal().utf8) }
        if let secret = one.secret, let known = other.secret {
            return isSame(secret, known) ? .revenueCatWebhookSecret : nil
        }
        guard let word = one.authorization, let known = other.authorization else { return nil }
        return isSame(word, known) ? .revenueCatWebhookAuthorization : nil
    }
}

extension [String?] {
    fileprivate var withoutRepeats: [String?] {
        var seen: Set<String?> = []
        return filter { seen.insert($0).inserted }
    }
}
