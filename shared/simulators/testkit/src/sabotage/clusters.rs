//! What sabotages do to the borders between clusters, and to what clusters report.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::DeflateDecoder;
use tenon_runtime::batch::Message;
use tenon_snapshot::snapshot::{CHUNK_PREFIX, Chunk, ChunkKind};
use tenon_table::{Commit, Item, Key, Value, Write};

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

/// The snapshot's NodeClaims lack the times when pods left their Nodes.
pub(super) fn forget_leaving(commit: &mut Commit) {
    let of_claims = format!("{CHUNK_PREFIX}{}#", ChunkKind::NodeClaims);
    for write in &mut commit.writes {
        if let Write::Put { key, item } = write
            && key.sk.starts_with(&of_claims)
            && let Some(Value::B(data)) = item.get_mut("data")
        {
            *data = without_leaving(data).unwrap_or_default();
        }
    }
}

fn without_leaving(packed: &[u8]) -> Option<Vec<u8>> {
    let mut content = String::new();
    DeflateDecoder::new(packed).read_to_string(&mut content).ok()?;
    let mut content: serde_json::Value = serde_json::from_str(&content).ok()?;
    for claim in content.get_mut("items")?.as_array_mut()? {
        let status = claim.get_mut("status").and_then(serde_json::Value::as_object_mut);
        status.map(|status| status.remove("lastPodEventTime"));
    }
    Some(Chunk::pack(ChunkKind::NodeClaims, 0, &content.to_string()).data)
}
