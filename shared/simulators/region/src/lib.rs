//! One region of Tenon on one machine: the functions with the wiring of template.yaml, the table in memory, the
//! region twin, simulated clusters, and their clock.

pub mod asked;
pub mod bill;
pub mod clock;
pub mod engine;
pub mod functions;
pub mod gate;
pub mod gated_ec2;
pub mod gated_kube;
pub mod happening;
mod kept;
pub mod kubelet;
#[cfg(feature = "live")]
pub mod live;
pub mod outside;
pub mod ports;
pub mod queue;
mod record;
pub mod scenario;
pub mod site;
pub mod timeline;
pub mod usage;
pub mod view;
pub mod wiring;
pub mod yaml;
