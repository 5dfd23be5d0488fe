//! Logs: JSON on standard output, one line for each occurrence; Lambda forwards it.
//!
//! Decides the level and the form. `error_type` is stable and documented in docs/functions.md: alarms key on it.

use std::collections::BTreeMap;
use tenon_domain::journal::JournalRecord;

use tenon_runtime::batch::MessageFailure;
use tracing_subscriber::filter::LevelFilter;

use crate::invocation::InvocationError;

/// Lambda's variable for the level of a function's own lines.
const LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";

/// Begins to log, panics too.
pub(crate) fn begin() {
    let level = level(std::env::var(LEVEL).ok().as_deref());
    let lines = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_target(false)
        .with_max_level(level)
        .finish();
    // An earlier subscriber stays.
    let _ = tracing::subscriber::set_global_default(lines);
    std::panic::set_hook(Box::new(|panic| tracing::error!(error_type = "Panic", "{panic}")));
}

/// The level of Lambda's name; the default is INFO.
fn level(name: Option<&str>) -> LevelFilter {
    match name {
        Some("TRACE") => LevelFilter::TRACE,
        Some("DEBUG") => LevelFilter::DEBUG,
        Some("WARN") => LevelFilter::WARN,
        // FATAL is Lambda's own, and nothing here is worse than an error.
        Some("ERROR" | "FATAL") => LevelFilter::ERROR,
        Some(_) | None => LevelFilter::INFO,
    }
}

/// Logs failed messages: one line for all with the same cause.
pub(crate) fn failures(failures: &[MessageFailure]) {
    let mut causes: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for failure in failures {
        causes.entry((failure.error_type, &failure.error)).or_default().push(&failure.message_id);
    }
    for ((error_type, error), messages) in causes {
        let messages = messages.join(" ");
        tracing::error!(error_type, messages, "{error}");
    }
}

/// Logs an invocation that failed before any message was read.
pub(crate) fn invocation(error: &InvocationError) {
    tracing::error!(error_type = error.error_type, "{}", error.message);
}

/// Logs a refusal or a wait.
pub(crate) fn told(record: &JournalRecord) {
    let JournalRecord { subject, decision, message, details, .. } = record;
    let reason = details.get("reason").map_or("", String::as_str);
    tracing::info!(subject = %subject, decision = decision.as_str(), reason, "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_lambdas_word_for_it() {
        assert_eq!(level(None), LevelFilter::INFO);
        assert_eq!(level(Some("DEBUG")), LevelFilter::DEBUG);
        assert_eq!(level(Some("FATAL")), LevelFilter::ERROR);
        assert_eq!(level(Some("loud")), LevelFilter::INFO);
    }
}
