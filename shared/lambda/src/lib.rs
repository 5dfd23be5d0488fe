//! What makes a handler a Lambda function: its configuration, its ports over AWS, and the loop of invocations.
//!
//! Decides what an invocation's payload is, when its time is up, how doorbells are sent and how errors are told. It
//! doesn't know what any function does: [`run`] takes a handler, and `tenon_runtime` turns messages into wakes.
//!
//! Invariants: nothing is retried here, neither by the SDK nor by a loop; an error is logged once, with its stable
//! `error_type`; what a function needs of the outside is made once, before the first invocation, and connects only
//! when it is first used.

mod clients;
mod configuration;
#[cfg(test)]
mod fake_http;
mod invocation;
mod log;
mod ports;
mod runtime;
mod signals;

pub use clients::sdk_config;
pub use configuration::{ConfigurationError, FunctionConfiguration, VariableProblem};
pub use invocation::InvocationError;
pub use ports::AwsPorts;
pub use runtime::{StartError, main, run, serve};
pub use signals::AwsSignals;
