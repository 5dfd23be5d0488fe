//! The region twin on EC2's Query protocol (a form in, XML out), the Pricing API's JSON and ARC's, on one loopback port.
//!
//! For tests of the real adapters. Decides how the port's requests and answers look on the wire, for the calls that the
//! port has; what they do is the twin's. Signatures aren't looked at: whoever reaches the port may ask.
//!
//! Invariant: a parameter that isn't understood refuses the request, so that nothing that an adapter says is lost.
//! Sources: "Amazon EC2 API Reference", version 2016-11-15, Query requests; "AWS Price List Query API", GetProducts;
//! "Zonal Shift API Reference", GetManagedResource (all read November 2026).

mod answer;
mod error;
mod fleet;
mod form;
mod pricing;
mod request;
mod serve;
mod template;
mod types;
mod xml;
mod zonal_shift;

pub use serve::serve;
