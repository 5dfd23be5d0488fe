//! The region twin on the Query protocol of EC2, IAM and STS (a form in, XML out), and on the JSON of the Pricing API, ARC
//! and Systems Manager, on one loopback port.
//!
//! For tests of the real adapters. Decides the wire form of the port's calls; the twin decides their effects.
//! Signatures aren't checked.
//!
//! Invariant: an unknown parameter refuses the request, so that nothing in an adapter's request is ignored. Sources:
//! "Amazon EC2 API Reference", version 2016-11-15, Query requests; "AWS Price List Query API", GetProducts; "Zonal
//! Shift API Reference", GetManagedResource; "AWS Systems Manager API Reference", GetParameters; "IAM API Reference",
//! version 2010-05-08, GetInstanceProfile; "STS API Reference", version 2011-06-15, AssumeRole and
//! DecodeAuthorizationMessage (all read November 2026).

mod answer;
mod authorization_message;
mod error;
mod fleet;
mod form;
mod instance_profile;
mod launch_role;
mod parameters;
mod pricing;
mod request;
mod serve;
mod template;
mod types;
mod xml;
mod zonal_shift;

pub use serve::serve;
