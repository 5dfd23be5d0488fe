//! EC2, the Pricing API, ARC, Systems Manager, IAM and STS of a real account: the ports of `tenon-ec2` over the AWS SDK
//! for Rust.
//!
//! Decides how a port's request is written, how an answer is read, and the facts about a failed call
//! ([`FailedCall`]). It doesn't decide the meaning of an error code (`tenon_ec2::classify` does) or what follows, and
//! never retries: that is for the next wake.
//!
//! Invariants: one call of a port is one request, except for lists that only EC2 pages; a request follows from its
//! arguments alone, so that a committed CreateFleet is replayed unchanged; an absent or unreadable field is an error
//! with its name, never a default.

mod authorization_messages;
mod call;
mod ec2;
mod filters;
mod fleet;
mod images;
mod instance_profiles;
mod instances;
mod launch_sessions;
mod network;
mod paging;
mod parameters;
mod placement;
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

pub use authorization_messages::AwsAuthorizationMessages;
pub use call::{CallEffect, FailedCall, FailedCallSink};
pub use ec2::AwsEc2;
pub use instance_profiles::AwsInstanceProfiles;
pub use parameters::AwsParameters;
pub use pricing::AwsPricing;
pub use zonal_shift::AwsZonalShift;
