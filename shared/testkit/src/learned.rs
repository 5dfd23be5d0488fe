//! What holds of memory that is learned of nodes, and of what is planned with it.
//!
//! Decides what a kubelet could have reported: what the region's kubelets do report of a type and an image, which is more
//! than is estimated. So a plan with the memory of another image, or with more than anybody reported, shows.

use std::collections::BTreeSet;

use tenon_cloud::data::Ec2Data;
use tenon_cloud::port::CreateFleetRequest;
use tenon_domain::catalog::describe::facts;
use tenon_domain::catalog::learned::stated_bytes;
use tenon_domain::catalog::{InstanceTypeFacts, LearnedMemory, LearnedRecord, NodeSettings, node_shape};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ImageId, InstanceType, LaunchId};
use tenon_domain::launch::Launch;
use tenon_domain::resources::ResourceName;
use tenon_region::engine::Region;
use tenon_region::kubelet::reported_memory;
use tenon_table::Key;
use tenon_table::items::{from_item, keys};

use crate::history::Moment;
use crate::invariants::Invariant;

type Found = Result<(), (Invariant, String)>;

fn found(invariant: Invariant, text: String) -> Found {
    Err((invariant, text))
}

/// Nothing is learned that is more than EC2 states for the type, and nothing that kubelets of the type and image don't
/// report.
///
/// # Errors
/// The invariant and what was found.
pub fn invariant_learned_is_reported(region: &Region) -> Found {
    let pk = keys::region_pk(&region.installation().region);
    for (sk, stored) in region.table().peek_prefix(&pk, keys::LEARNED) {
        let key = Key::new(pk.as_str(), &*sk);
        let Ok(record) = from_item::<LearnedRecord>(&key, stored.item()) else {
            return found(Invariant::LearnedIsReported, format!("{key} can't be read"));
        };
        let Some(facts) = facts_of(&record.instance_type) else { continue };
        let (stated, LearnedMemory(learned)) = (stated_bytes(&facts), record.memory);
        if learned > stated {
            let text = format!("{key} says {learned} bytes, and EC2 states {stated}");
            return found(Invariant::LearnedWithinStated, text);
        }
        let LearnedMemory(reported) = reported_memory(stated, &record.instance_type, &record.image);
        if learned != reported
            || key != keys::learned(&region.installation().region, &facts.name, &record.image)
        {
            let text = format!("{key} says {learned} bytes, and kubelets report {reported}");
            return found(Invariant::LearnedIsReported, text);
        }
    }
    Ok(())
}

/// What a claim's pods ask for in memory is there on each type and image that its launch asks EC2 for.
///
/// # Errors
/// The invariant and what was found.
pub fn invariant_planned_memory_is_there(moment: &Moment, judged: &mut BTreeSet<LaunchId>) -> Found {
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

/// The memory for pods on nodes of the type that boot the image.
fn room_on(instance_type: &InstanceType, image: &ImageId) -> Option<u64> {
    let facts = facts_of(instance_type)?;
    let reported = reported_memory(stated_bytes(&facts), instance_type, image);
    Some(node_shape(&facts, &NodeSettings::default(), Some(reported)).allocatable.memory_bytes)
}

fn facts_of(instance_type: &InstanceType) -> Option<InstanceTypeFacts> {
    let data = Ec2Data::get().ok()?;
    facts(data.types.get(instance_type)?, &data.limits).ok()
}
