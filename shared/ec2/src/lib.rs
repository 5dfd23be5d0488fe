//! EC2 as Tenon's adapters see it: the ports ([`Ec2`] and those beside it, [`Ec2Ports`]), the meaning of error codes
//! ([`classify`]), and facts about instance types ([`data`]).
//!
//! Decides the form of a call to EC2, and the meaning of its errors. It doesn't decide what to launch, and never
//! retries: that is for the next wake.

mod blame;
mod classify;
pub mod data;
mod denial;
mod effect;
mod error;
pub mod port;

pub use blame::{ClassPart, blame, blamed_image};
pub use classify::{ErrorClass, classify};
pub use denial::{DecodedMessage, Denial, DenialCause, PolicyKind, encoded_message};
pub use effect::{Effect, effect, launched_reason, launched_reason_of};
pub use error::{Ec2Error, right_of};
pub use port::{
    AuthorizationMessages, Ec2, Ec2Account, Ec2Ports, InstanceProfiles, LaunchRights, Parameters, Pricing,
    ZonalShift,
};
