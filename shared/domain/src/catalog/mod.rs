//! The catalogue: what EC2 says of an instance type, and what a node of it offers to pods.
//!
//! Facts are of the region and don't depend on any class; a node's shape (labels, capacity, allocatable) is computed
//! from facts and a class's settings. Everything is whole numbers and a pure function of its arguments.

pub mod describe;
pub mod facts;

pub use facts::InstanceTypeFacts;
