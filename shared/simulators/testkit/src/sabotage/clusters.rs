//! What sabotages do to the borders between clusters.

use std::collections::BTreeMap;

use tenon_runtime::batch::Message;
use tenon_table::{Item, Key, Value};

/// The tag by which worlds' stacks allow networks.
const DISCOVERY: &str = "karpenter.sh/discovery";

/// A batch with a doorbell whose generation is no number is unreadable as a whole.
pub(super) fn give_up_poisoned(messages: &mut [Message]) {
    if messages.iter().any(is_poison) {
        messages.iter_mut().for_each(|message| message.body = "{".to_owned());
    }
}

fn is_poison(message: &Message) -> bool {
    let body: serde_json::Value = serde_json::from_str(&message.body).unwrap_or_default();
    body.get("detail-type").and_then(serde_json::Value::as_str) == Some("Snapshot Changed")
        && body.pointer("/detail/generation").is_some_and(|generation| !generation.is_u64())
}

/// A manifest counts for the cluster that it names, whoever wrote it. `claimed` holds those read so far, by the partition of
/// the named cluster.
pub(crate) fn mix_up_snapshots(claimed: &mut BTreeMap<String, Item>, items: &mut BTreeMap<Key, Item>) {
    for (key, item) in items.iter_mut().filter(|(key, _)| key.sk == "MANIFEST") {
        let named = item.get("cluster").and_then(Value::as_text).map(|name| format!("AGENT#{name}"));
        if let Some(named) = named {
            claimed.insert(named, item.clone());
        } else if let Some(of_another) = claimed.get(&key.pk) {
            item.clone_from(of_another);
        }
    }
}

/// Clusters' entries allow the networks of all clusters.
pub(super) fn allow_strangers(items: &mut BTreeMap<Key, Item>) {
    for (_, entry) in items.iter_mut().filter(|(key, _)| key.sk.starts_with("CLUSTER#")) {
        if let Some(Value::M(allowed)) = entry.get_mut("allowed") {
            for name in ["subnet_tags", "security_group_tags"] {
                let any = BTreeMap::from([(DISCOVERY.to_owned(), Value::text("*"))]);
                allowed.insert(name.to_owned(), Value::M(any));
            }
        }
    }
}
