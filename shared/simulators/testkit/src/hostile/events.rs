//! Events in the third cluster's name. IAM pins their source; the rest is the sender's.

use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_runtime::BusEvent;

use crate::random::Dice;
use crate::world::set;

/// EventBridge takes events of 256 KB.
const HUGE: usize = 250_000;

/// An event that names another cluster, mostly as a doorbell: with numbers that can't be, with another function's form,
/// or huge.
pub(super) fn forged_event(third: &ClusterName, others: &[ClusterName], dice: &mut Dice) -> BusEvent {
    let named = dice.pick(others).map_or("", ClusterName::as_str);
    let generation = match dice.below(5) {
        0 => json!(-1),
        1 => json!("many"),
        2 => json!(u64::MAX),
        _ => json!(3),
    };
    let mut detail = json!({
        "v": 1, "cluster": named, "installation": "tenon", "generation": generation,
        "changed": ["pods", "nodes", "nodepools", "nodeclasses", "reports"],
        "pending_pods": 1_000_000, "deletions": 999, "freed": 999,
        "instance-id": "i-00000000000000001", "ImageId": "ami-00000000000000001", "part": "offerings",
    });
    if dice.permille(5) {
        set(&mut detail, &["padding"], json!("x".repeat(HUGE)));
    }
    let forms = ["Sweep", "Refresh", "Image Available", "EC2 Spot Instance Interruption Warning"];
    let form = dice.pick(&forms).copied().unwrap_or("Sweep");
    let detail_type = if dice.permille(100) { form } else { "Snapshot Changed" };
    BusEvent { source: format!("tenon.agent.{third}"), detail_type: detail_type.to_owned(), detail }
}
