/// What a database lacks of the source, found out before anything is written.
package struct SchemaPlan: Sendable {
    /// What a database says of itself.
    struct State: Sendable {
        /// By version.
        var migrations: [Int32: (name: String, checksum: String)] = [:]
        /// The newest; without a checksum where it was begun and not finished.
        var release: (number: Int32, checksum: String?)?
        /// The checksums under which objects were applied.
        var applied: [SchemaObject.ID: String] = [:]
        /// The functions, views and triggers that the schema has at this moment.
        var present: Set<SchemaObject.ID> = []
    }

    /// One thing that is applied or dropped.
    package struct Change: Sendable, Equatable {
        package enum Reason: String, Sendable {
            case new, changed
            case lost = "is gone from the database"
            case removed = "is no longer in its file"
        }

        /// `migration`, or the kind of the object.
        package var kind: String
        package var name: String
        package var reason: Reason
    }

    var migrations: [MigrationFile] = []
    var objects: [SchemaObject] = []
    /// Triggers, then views, then functions: what stands on others comes first.
    var removed: [SchemaObject.ID] = []
    package var changes: [Change] = []

    /// Compares a database with the source.
    ///
    /// Throws `.edited` for a migration that was applied with another text, or for a release whose text was changed
    /// without a new number; `.incompatible` for a database that a newer build has migrated.
    init(source: SchemaSource, state: State) throws(MigrationError) {
        for file in source.migrations {
            guard let row = state.migrations[file.version], row.checksum != file.checksum else { continue }
            throw MigrationError(
                .edited,
                "migration \(file.name) was edited after it was applied; restore the file and add a new migration instead"
            )
        }
        if let ahead = state.migrations.keys.max(), ahead > Int32(source.migrations.count) {
            throw MigrationError(
                .incompatible,
                "the database has migration \(ahead), this build knows \(source.migrations.count): nothing was applied; use the newer"
                    + " build"
            )
        }
        if let release = state.release {
            guard release.number <= source.release else {
                throw MigrationError(
                    .incompatible,
                    "the database is at release \(release.number), this build has \(source.release): nothing was applied; use the"
                        + " newer build"
                )
            }
            guard release.number < source.release || release.checksum.map({ $0 == source.checksum }) ?? true else {
                throw MigrationError(
                    .edited,
                    "the SQL differs from the one that was applied as release \(release.number); restore the files, or raise the"
                        + " number in sql/release"
                )
            }
        }
        migrations = source.migrations.filter { state.migrations[$0.version] == nil }
        changes = migrations.map { Change(kind: "migration", name: $0.name, reason: .new) }
        for object in source.objects {
            let checksum = state.applied[object.id]
            let isLost = object.id.kind != .privileges && !state.present.contains(object.id)
            guard checksum != object.checksum || isLost else { continue }
            objects.append(object)
            let reason: Change.Reason = checksum == nil ? .new : checksum == object.checksum ? .lost : .changed
            changes.append(Change(kind: object.id.kind.rawValue, name: object.id.name, reason: reason))
        }
        let kept = Set(source.objects.map(\.id))
        let order: [SchemaObject.Kind] = [.trigger, .view, .function]
        removed = order.flatMap { kind in
            state.applied.keys.filter { $0.kind == kind && !kept.contains($0) }.sorted { $0.name < $1.name }
        }
        changes += removed.map { Change(kind: $0.kind.rawValue, name: $0.name, reason: .removed) }
        if let release = state.release, release.number < source.release || release.checksum == nil {
            changes.append(Change(kind: "release", name: "\(source.release)", reason: .new))
        }
    }
}
