//! What a node class resolves to, and its conditions.
//!
//! [`ClassStatus`] is what is kept of a class, [`Condition`] what is told of it in the words of the peer, and
//! [`ClassObservation`] what one pass of looking saw, from which both follow. It doesn't decide which subnets, groups
//! or images a class selects: that is `node-classes`'.

mod condition;
mod observation;
mod status;

pub use condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
pub use observation::{ClassObservation, Seen, SeenReservations};
pub use status::{ClassStatus, ClassSubnet, ResolvedImage, image_for};
