//! Launching: what the functions that plan nodes share between a cluster's view and its launches.
//!
//! Decides how a cluster, as the table and the agent tell it, becomes the input of provisioning ([`world`]), and how
//! planned claims become launches with the exact request that EC2 is sent ([`build`]), from [`fleet`], [`template`] and
//! [`user_data`]; and what a [`pass`] of such a function begins and ends with. It sends nothing: who may launch is decided by whose rights allow it.

pub mod build;
pub mod commit;
pub mod fleet;
#[cfg(feature = "testing")]
pub mod harness;
mod learned;
pub mod min_values;
pub mod observe;
pub mod pass;
pub mod template;
#[cfg(test)]
mod testing;
pub mod user_data;
pub mod world;
