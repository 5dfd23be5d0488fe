//! One region of Tenon on one machine: the functions wired as template.yaml says, the table in memory, the region twin,
//! simulated clusters, and the clock that moves them.

pub mod wiring;
