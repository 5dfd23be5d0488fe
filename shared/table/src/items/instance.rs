//! `INSTANCE#`: whose an instance is. Written in the transaction that records the launch, so that an event of an
//! instance that isn't ours ends after one read.

use tenon_domain::id::{ClaimName, ClusterName, InstanceId};
use tenon_domain::unavailable::OfferingKey;

use super::form::{Attributes, FieldError, Fields, ItemForm};

/// Whose an instance is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOwner {
    /// The instance.
    pub instance: InstanceId,
    /// The cluster of its claim.
    pub cluster: ClusterName,
    /// Its claim.
    pub claim: ClaimName,
    /// The offering that it was had from; none where it wasn't known.
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
            offering: from
                .value_if("offering")
                .map(|_| from.word("offering", OfferingKey::parse))
                .transpose()?,
        })
    }
}
