//! Quantities in Kubernetes' grammar, as exact integers.
//!
//! [`Quantity`] is the value with its arithmetic; `text` reads and writes its text. Neither knows resources or units
//! (cores, bytes, pods).

mod text;
mod value;

pub use text::{ParseQuantityError, QuantityProblem};
pub use value::{Format, Quantity};
