//! Names of instances in EC2, after their claims.
//!
//! Decides the rate. Nothing waits for names: the audit repairs what is missing.

use tenon_domain::claim::Claim;
use tenon_domain::id::InstanceId;
use tenon_domain::tags;
use tenon_ec2::port::Tags;
use tenon_ec2::{Ec2Error, Ec2Ports};

use crate::launcher::Launcher;

/// Calls for tags that are made side by side. EC2 takes 100 at once and 10 a second after them.
const TAGS_SIDE_BY_SIDE: usize = 10;
/// Most instances that are tagged in one wake: the audit tags the others.
const TAGGED_AT_ONCE: usize = 50;

/// Names the instances after their claims, at a bounded rate. Best effort: the audit repairs what is missing.
pub(crate) async fn tag<E: Ec2Ports>(launcher: &Launcher<'_, E>, launched: &[Claim]) {
    let instances = launched.iter().filter_map(|claim| Some((claim, claim.state.instance()?)));
    let named: Vec<(&InstanceId, Tags)> = instances
        .map(|(claim, instance)| {
            let tags = [tags::CLAIM, tags::NAME].map(|tag| (tag.to_owned(), claim.name.to_string()));
            (&instance.id, Tags::from(tags))
        })
        .take(TAGGED_AT_ONCE)
        .collect();
    for some in named.chunks(TAGS_SIDE_BY_SIDE) {
        let calls = some.iter().map(|(id, tags)| launcher.create_tags(std::slice::from_ref(*id), tags));
        let refused = |answer: &Result<(), Ec2Error>| {
            matches!(answer, Err(Ec2Error::Throttled { .. } | Ec2Error::Unauthorized { .. }))
        };
        if futures::future::join_all(calls).await.iter().any(refused) {
            break;
        }
    }
}
