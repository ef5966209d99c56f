extension PostgresConfiguration {
    /// The same server and user, another database.
    ///
    /// A `dbname` at the end of the keywords outranks the one before.
    package func inDatabase(_ name: String) -> PostgresConfiguration {
        var copy = self
        copy.databaseName = name
        return copy
    }
}
