//! Launches: exact CreateFleet requests for planned claims.
//!
//! Decides how planned claims become launches ([`build`]), from [`fleet`], [`template`] and [`user_data`]. It sends
//! nothing: only `provisioner` has the right to launch.

pub mod build;
pub mod fleet;
mod interfaces;
pub mod min_values;
pub mod template;
#[cfg(test)]
mod testing;
pub mod user_data;
pub mod zones;
