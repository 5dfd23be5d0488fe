//! What is learned of nodes: the memory that their kubelets report when they register, by type and image.
//!
//! Decides whose report counts: a Node's that registers in this pass, of a type whose stated memory is known. What of it is
//! new is [`LearnedRecord`]'s to say, and who plans with it is the planners' business.

use std::collections::BTreeMap;

use tenon_domain::catalog::settings::MIB;
use tenon_domain::catalog::{LearnedMemory, LearnedRecord, MemoryReport};
use tenon_domain::id::{ImageId, InstanceType};
use tenon_domain::journal::Decision;
use tenon_domain::labels;

use crate::input::Input;
use crate::plan::ClaimStep;

/// The records that change, each under the revision after the one that was read.
pub(crate) fn learned(steps: &[ClaimStep], input: &Input) -> Vec<LearnedRecord> {
    let mut least: BTreeMap<(&InstanceType, &ImageId), LearnedMemory> = BTreeMap::new();
    for (key, memory) in steps.iter().filter_map(|step| report(step, input)) {
        least.entry(key).and_modify(|known| *known = memory.min(*known)).or_insert(memory);
    }
    let records = least.into_iter().filter_map(|((instance_type, image), memory)| {
        let report = MemoryReport {
            instance_type,
            image,
            memory,
            stated_bytes: stated_bytes(instance_type, input)?,
            cluster: &input.cluster,
            now: input.now,
        };
        let before = input.learned.get(&(instance_type.clone(), image.clone()));
        LearnedRecord::reported(before, &report)
    });
    records.collect()
}

/// What the Node of a claim that registers says.
fn report<'a>(
    step: &'a ClaimStep,
    input: &Input,
) -> Option<((&'a InstanceType, &'a ImageId), LearnedMemory)> {
    if !step.decisions().any(|decision| decision == Decision::Registered) {
        return None;
    }
    let instance = step.after.state.instance()?;
    let node = input.node_of(instance, step.before.created_at).node()?;
    Some(((&instance.instance_type, &instance.image), LearnedMemory::of_capacity(&node.capacity)?))
}

/// What EC2 states for the type; nothing where the catalogue's item isn't there, and nothing is learned then.
fn stated_bytes(instance_type: &InstanceType, input: &Input) -> Option<u64> {
    let mebibytes = input.types.get(instance_type)?.labels.get(labels::INSTANCE_MEMORY)?;
    mebibytes.parse::<u64>().ok()?.checked_mul(MIB)
}
