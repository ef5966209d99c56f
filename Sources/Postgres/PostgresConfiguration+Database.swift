extension PostgresConfiguration {
    /// The same server and user, another database.
    ///
    /// A `dbname` at the end of the keywords outranks the one before.
    package func inDatabase(_ name: String) -> PostgresConfiguration {
        var copy = self
        copy.databaseName = name
        return copy
    }

    /// The server, user and database as libpq's `PG*` variables, for another program; holds the password.
    ///
    /// - Throws: `PostgresError` with `.configuration`.
    package func libpqEnvironment() throws(PostgresError) -> [String: String] {
        try ConnectParameters(self).environment()
    }
}
