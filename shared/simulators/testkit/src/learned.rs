//! The invariants of learned memory and of plans with it.
//!
//! Decides the memory that kubelets of a type and image report, which is more than the estimate. So it finds a plan
//! with another image's memory, or with more than any report.

use std::collections::BTreeSet;

use tenon_domain::catalog::{LearnedMemory, LearnedRecord};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ImageId, InstanceType, LaunchId};
use tenon_domain::launch::Launch;
use tenon_domain::resources::ResourceName;
use tenon_ec2::port::CreateFleetRequest;
use tenon_region::engine::SimulatedRegion;
use tenon_region::kubelet::reported_memory;
use tenon_table::Key;
use tenon_table::items::{from_item, keys};

use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};

fn found(invariant: Invariant, text: String) -> Found {
    Err((invariant, text))
}

/// Learned memory never exceeds EC2's stated memory, and always equals a report of kubelets of the type and image.
///
/// # Errors The invariant, and the finding.
pub fn invariant_learned_is_reported(region: &SimulatedRegion) -> Found {
    let pk = keys::region_pk(&region.installation().region);
    for (sk, stored) in region.table().peek_prefix(&pk, keys::LEARNED) {
        let key = Key::new(pk.as_str(), &*sk);
        let Ok(record) = from_item::<LearnedRecord>(&key, stored.item()) else {
            return found(Invariant::LearnedIsReported, format!("{key} can't be read"));
        };
        let Some(stated) = stated(&record.instance_type) else { continue };
        let Some(cluster) = &record.cluster else {
            return found(
                Invariant::LearnedIsReported,
                format!("{key} doesn't name the cluster that reported it"),
            );
        };
        let LearnedMemory(learned) = record.memory;
        if learned > stated {
            let text = format!("{key} has {learned} bytes, more than EC2's {stated}");
            return found(Invariant::LearnedWithinStated, text);
        }
        let LearnedMemory(reported) = reported_memory(stated, &record.instance_type, &record.image);
        if learned != reported
            || *sk != *format!("LEARNED#{}#{}#{cluster}", record.instance_type, record.image)
        {
            let text = format!("{key} has {learned} bytes, but kubelets report {reported}");
            return found(Invariant::LearnedIsReported, text);
        }
    }
    Ok(())
}

/// The memory requests of a claim's pods fit on each type and image of its launch.
///
/// # Errors The invariant, and the finding.
pub fn invariant_planned_memory_is_there(moment: &ClusterMoment, judged: &mut BTreeSet<LaunchId>) -> Found {
    for launch in &moment.launches {
        if !judged.insert(launch.id.clone()) {
            continue;
        }
        let of_launch: BTreeSet<&ClaimName> = launch.claims.iter().map(|claim| &claim.name).collect();
        for claim in moment.claims.iter().filter(|claim| of_launch.contains(&claim.name)) {
            room_for(claim, launch)?;
        }
    }
    Ok(())
}

fn room_for(claim: &Claim, launch: &Launch) -> Found {
    let asked = claim.requests.get(&ResourceName::MEMORY).value_ceil();
    let asked = u64::try_from(asked).unwrap_or(0);
    let Ok(request) = CreateFleetRequest::from_stored(&launch.request) else { return Ok(()) };
    let overrides = request.launch_templates.iter().flat_map(|template| &template.overrides);
    for (with, image) in overrides.filter_map(|with| Some((with, with.image.as_ref()?))) {
        let Some(room) = room_on(&with.instance_type, image) else { continue };
        if asked > room {
            let name = &with.instance_type;
            let text = format!(
                "{} is planned with {asked} bytes for pods, and {name} with {image} has {room}",
                claim.name
            );
            return found(Invariant::PlannedMemoryIsThere, text);
        }
    }
    Ok(())
}

/// The memory for pods on nodes of the type with the image: the kubelet's report, less AL2023's reserve for the
/// kubelet (255 MiB, and 11 for each possible pod) and the eviction threshold of 100 MiB.
fn room_on(instance_type: &InstanceType, image: &ImageId) -> Option<u64> {
    let (_, gibibytes, pods) = *SIZES.iter().find(|(name, ..)| *name == instance_type.as_str())?;
    let LearnedMemory(reported) = reported_memory(gibibytes * 1024 * MIB, instance_type, image);
    Some(reported.saturating_sub((255 + 11 * pods + 100) * MIB))
}

/// The memory of a type according to EC2, in bytes.
fn stated(instance_type: &InstanceType) -> Option<u64> {
    let (_, gibibytes, _) = SIZES.iter().find(|(name, ..)| *name == instance_type.as_str())?;
    Some(gibibytes * 1024 * MIB)
}

const MIB: u64 = 1 << 20;

/// The types of the worlds: GiB of memory and the most pods, from EC2's pages of instance types and
/// `eni-max-pods.txt` of amazon-eks-ami (read November 2026).
const SIZES: [(&str, u64, u64); 12] = [
    ("c5.large", 4, 29),
    ("c5.xlarge", 8, 58),
    ("c6i.large", 4, 29),
    ("c6i.2xlarge", 16, 58),
    ("m5.large", 8, 29),
    ("m5.xlarge", 16, 58),
    ("m5.2xlarge", 32, 58),
    ("m6i.large", 8, 29),
    ("m6i.xlarge", 16, 58),
    ("m7i.large", 8, 29),
    ("r5.large", 16, 29),
    ("r6i.xlarge", 32, 58),
];
