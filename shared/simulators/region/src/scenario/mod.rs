//! Scenarios: a world, steps, and the results of each step. The built-in tour is one; golden transcripts are others.
//!
//! The form is documented in docs/scenarios.md.

mod form;
mod names;
mod play;
mod setup;
mod standing;
mod transcript;

pub use form::{ClusterForm, ImageForm, Scenario, ScenarioError, ScenarioStep};
pub use names::UnknownName;
pub use play::{Player, Progress};
pub(crate) use setup::new_image;
pub use setup::{SetupError, SetupOptions, add_outside, build, change_allowances, change_settings};
pub use transcript::{PlayError, Transcript, play_to_transcript};

/// The built-in scenarios by name.
pub const BUILT_IN: [(&str, &str); 3] = [
    ("tour", include_str!("../../scenarios/tour.yaml")),
    ("idle-day", include_str!("../../scenarios/idle-day.yaml")),
    ("busy-day", include_str!("../../scenarios/busy-day.yaml")),
];

/// A built-in scenario's text.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
