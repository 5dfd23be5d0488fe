//! The stacks' policies against the code's requests.
//!
//! [`stack`] reads roles and policies from the real templates; [`recording`] plays the scenarios and records the
//! requests of each function and the agent; [`calls`] has the rights that AWS checks for each call; [`judge`] decides
//! like IAM, with a library's evaluation and [`mod@reference`]'s condition keys of each action; [`forgeries`] are
//! forbidden requests. The tests compare both ways: every real request is allowed, every forbidden one is denied.

pub mod calls;
pub mod forgeries;
pub mod judge;
pub mod mutation;
pub mod platform;
pub mod recording;
pub mod reference;
pub mod request;
pub mod stack;
