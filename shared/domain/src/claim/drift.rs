//! The difference between a claim and a new one of its pool and class.
//!
//! Decides its words, and what makes it another drift. `tenon_planning` decides whether a claim drifted.

use jiff::Timestamp;

use super::record::Claim;
use crate::digest::Digest;

/// Digits of the digest of a drift's target.
const TARGET_DIGITS: usize = 10;

/// What a drift of requirements is from, before the key, where the Node hasn't the label at all.
pub const NO_LABEL: &str = "no label ";

/// The difference between a claim and a new one of its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which part.
    pub reason: DriftReason,
    /// Since when it is known; orders replacement.
    pub since: Timestamp,
    /// The claim's value.
    pub from: String,
    /// The value of a new claim.
    pub to: String,
    /// The edited fields of a pool's template or of a class's spec, as far as they are known.
    pub fields: Vec<String>,
}

crate::words! {
    /// The drifted part, in the peer's words. The condition `Drifted` has its word.
    pub enum DriftReason {
        /// Its pool's template changed.
        NodePoolDrifted,
        /// Its Node's labels aren't what its pool requires.
        RequirementsDrifted,
        /// Its pool has its instance type no longer, or not as it is paid for in its zone.
        InstanceTypeNotFound,
        /// Its class changed.
        NodeClassDrift,
        /// The class selects other security groups.
        SecurityGroupDrift,
        /// The class resolves to another image.
        AmiDrift = "AMIDrift",
        /// The class doesn't select its subnet.
        SubnetDrift,
        /// The class doesn't select its reservation.
        CapacityReservationDrift,
        /// The class selects another placement group, or selects one only before or since the launch.
        PlacementGroupDrift,
    }
}

impl Drift {
    /// A digest of what a new claim has instead: another one is another drift, whose replacement may be had.
    #[must_use]
    pub fn target(&self) -> String {
        Digest::of_texts([self.reason.as_str(), self.to.as_str()]).base36(TARGET_DIGITS)
    }

    /// What of the claim differs, in a sentence's end: "NodeClaim `x` drifted: …". Of an edited spec it names the fields
    /// where they are known: people can do nothing with hashes.
    #[must_use]
    pub fn words(&self, claim: &Claim) -> String {
        let Claim { pool, class, created_at: made, .. } = claim;
        let Self { from, to, .. } = self;
        match self.reason {
            DriftReason::NodePoolDrifted => {
                let fields = self.edited("spec.template.");
                format!("the template of NodePool `{pool}` changed since its launch at `{made:.0}`{fields}")
            }
            DriftReason::NodeClassDrift => {
                let fields = self.edited("spec.");
                format!("the spec of EC2NodeClass `{class}` changed since its launch at `{made:.0}`{fields}")
            }
            DriftReason::RequirementsDrifted => match from.strip_prefix(NO_LABEL) {
                Some(key) => format!("its Node has no label `{key}`, its NodePool requires `{to}`"),
                None => format!("its Node has `{from}`, its NodePool requires `{to}`"),
            },
            DriftReason::InstanceTypeNotFound => {
                format!("it is a `{from}`, and its NodePool has {to}")
            }
            DriftReason::AmiDrift
            | DriftReason::SecurityGroupDrift
            | DriftReason::SubnetDrift
            | DriftReason::CapacityReservationDrift
            | DriftReason::PlacementGroupDrift => {
                format!("it has `{from}`, its EC2NodeClass resolves to `{to}`")
            }
        }
    }

    /// The end of a sentence that names the edited fields, if they are known.
    fn edited(&self, under: &str) -> String {
        let names: Vec<String> = self.fields.iter().map(|field| format!("`{under}{field}`")).collect();
        if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
    }
}
