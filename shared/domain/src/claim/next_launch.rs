//! What a NodePool's next launch is like, compared with its earlier ones.
//!
//! Decides which earlier launches tell how the next one will go: after an edit of the pool or its class, none of those
//! before it. It doesn't decide how they ended. An edit that can't change what boots, such as one of the weight or the
//! limits, makes no difference; the peer's begins anew then too.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/nodepool/registrationhealth/controller.go`.

use super::Claim;
use crate::api::NodePool;
use crate::class_hash::PoolHash;
use crate::class_status::ClassStatus;
use crate::id::ImageId;
use crate::labels::{INSTANCE_TYPE, ZONE};

/// A pool as it launches now.
#[derive(Debug, Clone, Copy)]
pub struct NextLaunch<'a> {
    pool: &'a NodePool,
    template: PoolHash,
    class: Option<&'a ClassStatus>,
}

impl<'a> NextLaunch<'a> {
    /// Of a pool, with its class as it resolved.
    #[must_use]
    pub fn of(pool: &'a NodePool, class: Option<&'a ClassStatus>) -> Self {
        Self { pool, template: PoolHash::of(&pool.template), class }
    }

    /// Whether the claim was launched from the same template and the same spec of the class, as far as its hashes tell.
    #[must_use]
    pub fn has_form_of(&self, claim: &Claim) -> bool {
        let class = self.class.and_then(|class| class.hash);
        claim.pool == self.pool.name
            && claim.pool_hash.is_none_or(|hash| hash == self.template)
            && claim.class_hash.zip(class).is_none_or(|(hash, now)| hash == now)
    }

    /// Whether the next launch may be the claim's again: also with its image, subnet, security groups, type and zone.
    #[must_use]
    pub fn repeats(&self, claim: &Claim) -> bool {
        let takes = |class: &ClassStatus, image: &ImageId| class.images.iter().any(|one| one.id == *image);
        self.is_alike(claim, takes)
    }

    /// Whether it may, if the class took back the image that it rejects now.
    #[must_use]
    pub fn repeats_or_rejects(&self, claim: &Claim) -> bool {
        let knows = |class: &ClassStatus, image: &ImageId| {
            let rejected = class.rejected_images.iter().map(|one| &one.id);
            class.images.iter().map(|one| &one.id).chain(rejected).any(|id| id == image)
        };
        self.is_alike(claim, knows)
    }

    fn is_alike(&self, claim: &Claim, has_image: impl Fn(&ClassStatus, &ImageId) -> bool) -> bool {
        if !self.has_form_of(claim) {
            return false;
        }
        let Some(held) = claim.state.instance() else { return true };
        let asked = &self.pool.template.requirements;
        let resolved = self.class.is_none_or(|class| {
            let subnet = held.subnet.as_ref();
            has_image(class, &held.image)
                && has_groups(class, claim)
                && subnet.is_none_or(|id| class.subnets.iter().any(|subnet| subnet.id == *id))
        });
        resolved
            && asked.allows(INSTANCE_TYPE, held.instance_type.as_str())
            && asked.allows(ZONE, held.zone.as_str())
    }
}

fn has_groups(class: &ClassStatus, claim: &Claim) -> bool {
    claim.security_groups.as_ref().is_none_or(|had| {
        let groups = &class.security_groups;
        had.len() == groups.len() && groups.iter().all(|group| had.contains(&group.id))
    })
}
