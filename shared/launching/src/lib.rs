//! Launches: how EC2 is asked for the nodes that were planned.
//!
//! Decides how planned claims become launches with the exact request that EC2 is sent ([`build`]), from [`fleet`],
//! [`template`] and [`user_data`]. It sends nothing: who may launch is decided by whose rights allow it.

pub mod build;
pub mod fleet;
pub mod min_values;
pub mod template;
#[cfg(test)]
mod testing;
pub mod user_data;
