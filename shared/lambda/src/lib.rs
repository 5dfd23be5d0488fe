//! A handler as a Lambda function: its configuration, its ports over AWS, and the loop of invocations.
//!
//! Decides the kinds of payload, the end of an invocation's time, the sending of doorbells and the logging of errors.
//! It doesn't know any function: [`run`] takes a handler, and `tenon_runtime` turns messages into wakes.
//!
//! Invariants: neither the SDK nor a loop retries; an error is logged once, with its stable `error_type`; clients are
//! created once, before the first invocation, and connect at their first use.

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
