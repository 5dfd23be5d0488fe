//! The catalogue: facts about instance types, and the capacity of their nodes.
//!
//! Facts belong to the region and depend on no class. A node's shape (labels, capacity, allocatable) follows from
//! facts and a class's settings. Everything is whole numbers and a pure function of its arguments.

pub mod attachments;
pub mod compatibility;
pub mod describe;
pub mod facts;
pub mod held;
pub mod learned;
pub mod node_labels;
pub mod node_shape;
pub mod offering;
pub mod option;
pub mod parts;
pub mod places;
pub mod reserved;
pub mod settings;

pub use attachments::attachable_volumes;
pub use compatibility::{Incompatibility, compatibility};
pub use facts::InstanceTypeFacts;
pub use held::{HeldOffering, held_offerings};
pub use learned::{Learned, LearnedOf, LearnedRecord, MemoryBounds, MemoryReport, Reach};
pub use node_shape::{LearnedMemory, NodeShape, node_shape};
pub use offering::{Availability, CapacityType, Offering, OfferingRank, PriceRank, Unavailability};
pub use option::{InstanceTypeOption, OptionRank, Surroundings, find_option};
pub use parts::{Catalog, PartData, SpotPrices, ZoneOfferings};
pub use places::{ClassNodes, Exhaustion, Places};
pub use reserved::OfferedReservation;
pub use settings::{AmiFamily, NodeSettings};
