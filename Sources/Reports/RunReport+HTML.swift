extension RunReport {
    /// The report as one page, which loads nothing: no scripts, its style and its charts in it.
    ///
    /// - Parameter showsUsers: whether ids of users are whole; otherwise they are cut to their first two characters.
    /// - Returns: the page, which is XML as well as HTML.
    package func html(showsUsers: Bool = true) -> String {
        ReportPage(report: self, showsUsers: showsUsers).markup.text
    }
}
