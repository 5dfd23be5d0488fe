//! Colours on a terminal: never into a pipe, and not where `NO_COLOR` is set.

use std::io::{self, IsTerminal};

/// Whether terminal colours are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    /// They are: a terminal reads, and `NO_COLOR` isn't set.
    On,
    /// They aren't.
    Off,
}

impl Colour {
    /// The colours of standard output.
    pub(crate) fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if io::stdout().is_terminal() && !refused { Self::On } else { Self::Off }
    }

    /// The text in an SGR style such as `1` or `32`.
    pub(crate) fn paint(self, style: &str, text: &str) -> String {
        match self {
            Self::On => format!("\u{1b}[{style}m{text}\u{1b}[0m"),
            Self::Off => text.to_owned(),
        }
    }
}
