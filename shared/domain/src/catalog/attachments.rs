//! How many EBS volumes pods may attach to a node of a type, before the node's CSI driver has said so.
//!
//! Decides the estimate for new nodes. The Node's CSINode, once it is there, is the truth. It doesn't know other CSI
//! drivers, whose limits aren't EC2's.
//!
//! Source: `getVolumesLimit` of kubernetes-sigs/aws-ebs-csi-driver `pkg/driver/node.go` and `pkg/cloud/limits`, read
//! 2026-11: EC2's number, less the node's own volumes and, where the limit is shared, the interfaces beyond the first.

use crate::catalog::facts::{EbsAttachments, Hypervisor, InstanceTypeFacts};
use crate::catalog::settings::NodeSettings;

/// Volumes that Linux attaches on Xen. EC2 states 39 or 40, and the driver counts 39 for all.
const XEN_VOLUMES: u32 = 39;
/// Interfaces that the VPC CNI attaches beyond the first on nearly every node, mostly before the driver counts them
/// (`WARM_ENI_TARGET` is 1).
const WARM_INTERFACES: u32 = 1;

/// The volumes that pods may attach to a node of a class; `None` where EC2 doesn't say.
#[must_use]
pub fn attachable_volumes(facts: &InstanceTypeFacts, settings: &NodeSettings) -> Option<u32> {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mapped = count(settings.block_devices.len());
    // Every instance has a root volume.
    let own = mapped.max(count(settings.ami_family.default_devices().len())).max(1);
    let left = match facts.ebs.attachments? {
        _ if facts.hypervisor == Some(Hypervisor::Xen) => XEN_VOLUMES,
        EbsAttachments::Dedicated(most) => most,
        EbsAttachments::Shared(most) => {
            let given = count(settings.network_interfaces.len()).saturating_sub(1);
            most.saturating_sub(given.max(WARM_INTERFACES))
        }
    };
    // The driver never reports less than one.
    Some(left.saturating_sub(own).max(1))
}
