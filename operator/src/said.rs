//! Log lines with a level that is known only while the program runs; `tracing`'s macros for others.

/// How much a line matters to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something does not work.
    Error,
    /// Something works on in a way that is probably not meant.
    Warning,
    /// What is done.
    Information,
}

/// Logs a line of the priority [`Priority::Information`].
pub fn say(text: &str) {
    say_at(Priority::Information, text);
}

/// Logs a line of this priority.
pub fn say_at(priority: Priority, text: &str) {
    match priority {
        Priority::Error => tracing::error!("{text}"),
        Priority::Warning => tracing::warn!("{text}"),
        Priority::Information => tracing::info!("{text}"),
    }
}
