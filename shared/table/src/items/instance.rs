//! `INSTANCE#`: the owner of an instance. It is written in the transaction that settles the launch, so that one read
//! ends an event of a foreign instance.

use tenon_domain::id::{ClaimName, ClusterName, InstanceId};
use tenon_domain::unavailable::OfferingKey;

use super::form::{Attributes, FieldError, Fields, ItemForm};

/// The owner of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOwner {
    /// The instance.
    pub instance: InstanceId,
    /// The cluster of its claim.
    pub cluster: ClusterName,
    /// Its claim.
    pub claim: ClaimName,
    /// Its offering; absent if unknown.
    pub offering: Option<OfferingKey>,
}

impl ItemForm for InstanceOwner {
    fn write(&self, to: &mut Attributes) {
        to.text("instance", &self.instance);
        to.text("cluster", &self.cluster);
        to.text("claim", &self.claim);
        to.text_if("offering", self.offering.as_ref().map(ToString::to_string));
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            instance: from.parsed("instance")?,
            cluster: from.parsed("cluster")?,
            claim: from.parsed("claim")?,
            offering: from.known_word_if("offering", OfferingKey::parse)?,
        })
    }
}
