//! Waits for the deployed stack.

use std::future::Future;
use std::time::{Duration, Instant};

/// The longest wait: a sweep, every three minutes, and the first start of a binary, beside six others, on two cores that also
/// run the servers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// How often it is looked: each look is work for the servers that are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Lines of the server's log that a failure shows.
const LOG_LINES: usize = 80;

/// Looks until there is something, and gives it.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    let (found, _) = timed(what, look).await;
    found
}

/// The same, with the time of the result.
pub(crate) async fn timed<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> (T, Instant) {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return (found, Instant::now());
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{what} didn't come within {PATIENCE:?}; the server's log:\n{}",
            log()
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The end of ministack's log, in which the functions' own output is.
pub(crate) fn log() -> String {
    let text = std::env::var("TENON_MINISTACK_LOG").ok().and_then(|path| std::fs::read_to_string(path).ok());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
