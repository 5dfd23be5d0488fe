//! Quantities in Kubernetes' grammar, as exact integers.
//!
//! [`Quantity`] is the value with its arithmetic; what its text means and how it is written is in `text`. Neither
//! decides which resources exist or what a quantity counts (cores, bytes, pods).

mod text;
mod value;

pub use text::{ParseQuantityError, QuantityProblem};
pub use value::{Format, Quantity};
