//! Whether Nodes have what their instance types promise.
//!
//! Decides from the Node's labels, which its registration took from the catalogue, so nothing is read for it. Only
//! resources that the claim's pods request count. It doesn't decide what becomes of such a Node: a person does, as with
//! the peer. The peer's other check, a drain that something holds, is `draining`'s.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/nodeclaim/consistency/nodeshape.go`.

use tenon_domain::api::Node;
use tenon_domain::catalog::node_shape::LEAST_PERCENT;
use tenon_domain::catalog::settings::PartsPerMillion;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::report::{CONSISTENCY_CHECK_FAILED, Finding, Report};
use tenon_domain::resources::ResourceName;

use crate::input::LifecycleInput;
use crate::step::subject;

/// Tells claims whose Node has less.
pub(crate) fn tell(input: &LifecycleInput, report: &mut Report) {
    let found = input.claims.values().filter_map(|claim| lacking(claim, input));
    found.for_each(|finding| report.tell(finding));
}

fn lacking(claim: &Claim, input: &LifecycleInput) -> Option<Finding> {
    let is_up = matches!(claim.phase(), ClaimPhase::Initialized | ClaimPhase::Disrupting);
    let instance = claim.state.instance().filter(|_| is_up)?;
    let node = input.node_of(instance, claim.created_at).node()?;
    let requested = claim.requests.iter().filter(|(_, quantity)| !quantity.is_zero());
    let lacks: Vec<(&str, String)> =
        requested.filter_map(|(name, _)| Some((name.as_str(), lack(name, node)?))).collect();
    if lacks.is_empty() {
        return None;
    }
    let names: Vec<&str> = lacks.iter().map(|(name, _)| *name).collect();
    // Without amounts: claims that lack the same resources are one finding.
    let why = format!(
        "the Node has less than {LEAST_PERCENT} % of what its instance type promises of `{}`; check its kubelet and \
         device plugins, or delete the NodeClaim to replace it",
        names.join("`, `")
    );
    let sentence = "less capacity than expected for {}";
    let found = Finding::refused(subject(claim), CONSISTENCY_CHECK_FAILED, sentence, why);
    let found = found.condition(names.join(","));
    Some(lacks.iter().fold(found, |found, (name, words)| found.detail(name, words)))
}

/// How much the Node has of a resource, if that is too little.
fn lack(name: &ResourceName, node: &Node) -> Option<String> {
    let (expected, has) = (expected(name, node)?, node.capacity.get(name));
    let least = expected.nanos().saturating_mul(i128::from(LEAST_PERCENT));
    if has.nanos().saturating_mul(100) >= least {
        return None;
    }
    let permille = has.nanos().saturating_mul(1000).checked_div(expected.nanos())?;
    let (percent, tenths) = (permille.checked_div(10)?, permille.checked_rem(10)?);
    Some(format!("{has} of {expected} ({percent}.{tenths} %)"))
}

/// The amount that the type promises; `None` where labels don't tell it.
fn expected(name: &ResourceName, node: &Node) -> Option<Quantity> {
    let label = match name.as_str() {
        "cpu" => labels::INSTANCE_CPU,
        "memory" => labels::INSTANCE_MEMORY,
        "nvidia.com/gpu" | "amd.com/gpu" | "habana.ai/gaudi" => labels::INSTANCE_GPU_COUNT,
        "aws.amazon.com/neuron" => labels::INSTANCE_ACCELERATOR_COUNT,
        _ => return None,
    };
    let stated: u64 = node.meta.labels.get(label)?.parse().ok()?;
    if label != labels::INSTANCE_MEMORY {
        return i64::try_from(stated).ok().map(Quantity::from_integer);
    }
    // As before a kubelet reported it.
    let usable = stated.saturating_sub(PartsPerMillion::VM_MEMORY_OVERHEAD.of_rounded_up(stated));
    i64::try_from(usable).ok().map(Quantity::from_mebi)
}
