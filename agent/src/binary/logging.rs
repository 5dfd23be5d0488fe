//! The log: one line of JSON for each event, on standard output.
//!
//! Decides the form. `RUST_LOG` sets the level; the default is `info`.

use std::error::Error;
use std::io::stdout;

use tracing_subscriber::EnvFilter;

/// Starts logging.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).with_writer(stdout).init();
}

/// An error with all its sources.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(under) = cause {
        text.push_str(": ");
        text.push_str(&under.to_string());
        cause = under.source();
    }
    text
}
