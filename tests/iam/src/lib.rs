//! The stacks' policies against what the code asks for.
//!
//! [`stack`] reads roles and policies from the real templates; [`recording`] plays the scenarios and hears what each
//! function and the agent ask; [`calls`] says which rights AWS asks for each call; [`judge`] decides as IAM does, with
//! a library's evaluation and [`mod@reference`]'s knowledge of which condition keys AWS gives with which action;
//! [`forgeries`] are the requests that nobody may make. The tests compare both ways: nothing that is asked is denied,
//! nothing is allowed that isn't asked.

pub mod calls;
pub mod forgeries;
pub mod judge;
pub mod mutation;
pub mod platform;
pub mod recording;
pub mod reference;
pub mod request;
pub mod stack;
