//! EC2, the Pricing API and ARC of a real account: the ports of `tenon-ec2` over the AWS SDK for Rust.
//!
//! Decides how a port's request is written for EC2, how EC2's answer is read, and what is known of a call that
//! failed ([`FailedCall`]). Doesn't decide what an error code means (that is `tenon_ec2::classify`) nor what is done
//! about it, and never retries: retries belong to the next wake.
//!
//! Invariants: one call of a port is one request, except where the port's answer isn't paged and EC2's is; a request
//! follows from its arguments alone, so that a committed CreateFleet is replayed as it was; a field that EC2 left out
//! or that can't be read is an error with its name, never a default.

mod call;
mod ec2;
mod filters;
mod fleet;
mod images;
mod instances;
mod network;
mod prices;
mod pricing;
mod reading;
mod reservations;
mod settings;
mod templates;
#[cfg(test)]
mod tests;
mod types;
mod zonal_shift;

pub use call::{CallEffect, FailedCall, FailedCallSink};
pub use ec2::AwsEc2;
pub use pricing::AwsPricing;
pub use zonal_shift::AwsZonalShift;
