//! Both stacks, deployed with the released binaries, driven like by AWS and an agent.
//!
//! All tests share one deployment, which the first of them creates, and take turns. They are independent of each
//! other.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of an integration test fail as tests do"
)]

mod account;
mod alarms;
mod catalog;
mod classes;
mod cluster;
mod command_line;
mod control_plane;
mod dead_letters;
mod deploy;
mod doctor;
mod eks;
mod figures;
mod images;
mod install;
mod kubelet;
mod launches;
mod marks;
mod network;
mod page;
mod page_shell;
mod readme;
mod remove;
mod restore;
mod tools;
mod versions;
mod wait;
mod world;
