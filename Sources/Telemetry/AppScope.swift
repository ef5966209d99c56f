/// The app that a task works for, where one process serves several.
///
/// Metrics that are made within bear its name as the label `app`; it is empty for what belongs to the process as a whole.
package enum AppScope {
    /// `nil`: the process serves one app, and metrics have no such label.
    @TaskLocal package static var name: String?
}
