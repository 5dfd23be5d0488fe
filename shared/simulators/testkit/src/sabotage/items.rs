//! What sabotages do to items on their way into the table, or out of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::Region;
use tenon_domain::quantity::Quantity;
use tenon_domain::unavailable::{FIRST_HOLD, Mark};
use tenon_table::items::{CatalogMeta, Refresh, from_item, refresh, to_item};
use tenon_table::{Commit, Item, Key, Number, Value, Write, WriteCondition};

/// Adds an empty part's item at that key if there is none.
pub(super) fn believe_empty(key: &Key, items: &mut BTreeMap<Key, Item>) {
    let Some(region) = key.pk.strip_prefix("REGION#").and_then(|name| Region::parse(name).ok()) else {
        return;
    };
    for (part, refresh) in empty_parts(&region) {
        for write in refresh.commits().flat_map(|commit| &commit.writes) {
            match write {
                Write::Put { key: piece, item } if piece == key => {
                    items.entry(key.clone()).or_insert_with(|| item.clone());
                }
                Write::Set { key: pointer, set, .. } if pointer == key => {
                    let known = items.entry(key.clone()).or_insert_with(|| set.clone());
                    if let Some(empty) = set.get(part.as_str()) {
                        known.entry(part.to_string()).or_insert_with(|| empty.clone());
                    }
                }
                Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Delete { .. } => {}
            }
        }
    }
}

/// Refreshes of parts without content, at the end of time: they never go stale.
fn empty_parts(region: &Region) -> Vec<(CatalogPart, Refresh)> {
    let parts = [
        PartData::InstanceTypes(BTreeMap::new()),
        PartData::Offerings(ZoneOfferings::default()),
        PartData::OnDemandPrices(BTreeMap::new()),
        PartData::SpotPrices(BTreeMap::new()),
    ];
    let empty = |data: &PartData| refresh(region, &CatalogMeta::default(), data, Timestamp::MAX).ok();
    parts.iter().filter_map(|data| Some((data.part(), empty(data)?))).collect()
}

/// Writes marks with another count.
pub(super) fn count_marks(commit: &mut Commit, counted: impl Fn(i64) -> i64) {
    for write in &mut commit.writes {
        if let Write::Set { key, set, .. } = write
            && is_mark(key)
            && let Some(count) = set.get("count").and_then(Value::as_number).and_then(|count| count.to_i64())
        {
            set.insert("count".to_owned(), Value::number(counted(count).unsigned_abs()));
        }
    }
}

/// Makes a mark look as if EC2 had answered a minute before the end of its hold.
pub(super) fn ask_later((key, item): &mut (Key, Item)) {
    if !is_mark(key) {
        return;
    }
    let Ok(mark) = from_item::<Mark>(key, item) else { return };
    if let Ok(asked_at) = mark.until.checked_sub(FIRST_HOLD) {
        *item = to_item(&Mark { asked_at: asked_at.max(mark.asked_at), ..mark });
    }
}

/// A class looks as if its cluster weren't shifted away from any of its zones.
pub(super) fn shift_back((key, item): &mut (Key, Item)) {
    let Some(Value::L(subnets)) = item.get_mut("subnets").filter(|_| key.sk.starts_with("NODECLASS#")) else {
        return;
    };
    for subnet in subnets {
        if let Value::M(fields) = subnet {
            fields.remove("shifted");
        }
    }
}

/// Shows a launch as if no pod were counted on its claims.
pub(super) fn forget_pods((key, item): &mut (Key, Item)) {
    let Some(Value::L(claims)) = item.get_mut("claims").filter(|_| key.sk.starts_with("LAUNCH#")) else {
        return;
    };
    for claim in claims {
        if let Value::M(fields) = claim {
            fields.remove("pods");
        }
    }
}

/// Shows a claim whose Node didn't join as if something else had ended it.
pub(super) fn forget_timeout((key, item): &mut (Key, Item)) {
    let timed_out = item.get("removal").and_then(Value::as_text) == Some("RegistrationTimeout");
    if timed_out && key.sk.starts_with("NODECLAIM#") {
        item.insert("removal".to_owned(), Value::text("InstanceTerminated"));
    }
}

/// Commits launches as if none of their offerings were marked.
pub(super) fn drop_leases(commit: &mut Commit) {
    if commit.writes.iter().any(|write| write.key().sk.starts_with("LAUNCH#")) {
        commit.writes.retain(|write| !is_mark(write.key()));
        commit.conditions.retain(|condition| !is_mark(&condition.key()));
    }
}

/// Leaves out that templates' items go and that their names leave.
pub(super) fn keep_templates(commit: &mut Commit) {
    commit.writes.retain(|write| !write.key().sk.starts_with("TEMPLATE"));
    commit.conditions.retain(|condition| !condition.key().sk.starts_with("TEMPLATE"));
}

pub(super) fn forget_unneeded(commit: &mut Commit) {
    for write in &mut commit.writes {
        if let Write::Set { key, set, .. } = write
            && key.sk == "UNNEEDED"
        {
            set.insert("since".to_owned(), Value::M(BTreeMap::new()));
        }
    }
}

fn is_mark(key: &Key) -> bool {
    key.sk.starts_with("UNAVAILABLE#")
}

pub(super) fn claims_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } | Write::Put { key, item: set } if key.sk.starts_with("NODECLAIM#") => {
            Some(set)
        }
        Write::Set { .. } | Write::Put { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

pub(super) fn actions_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } | Write::Put { key, item: set } if key.sk.starts_with("ACTION#") => {
            Some(set)
        }
        Write::Set { .. } | Write::Put { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

pub(super) fn classes_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } if key.sk.starts_with("NODECLASS#") => Some(set),
        Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

pub(super) fn tell_ready(item: &mut tenon_table::Item) {
    let Some(Value::L(conditions)) = item.get_mut("conditions") else { return };
    for condition in conditions {
        if let Value::M(fields) = condition
            && fields.get("type").and_then(Value::as_text) == Some("Ready")
        {
            fields.insert("status".to_owned(), Value::text("True"));
        }
    }
}

/// Moves the next question after a denied dry run to the end of time.
pub(super) fn deny_for_ever(item: &mut tenon_table::Item) {
    let Some(Value::L(verdicts)) = item.get_mut("verdicts") else { return };
    for verdict in verdicts {
        if let Value::M(fields) = verdict
            && fields.get("outcome").and_then(Value::as_text) == Some("Denied")
        {
            fields.insert("until".to_owned(), Value::text(Timestamp::MAX.to_string()));
        }
    }
}

pub(super) fn learned_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } if key.sk.starts_with("LEARNED#") => Some(set),
        Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

pub(super) fn double_learned(item: &mut tenon_table::Item) {
    if let Some(bytes) = item.get("memory_bytes").and_then(Value::as_number).and_then(Number::to_u64) {
        item.insert("memory_bytes".to_owned(), Value::number(bytes.saturating_mul(2)));
    }
}

pub(super) fn double_requests(item: &mut tenon_table::Item) {
    let Some(Value::M(requests)) = item.get_mut("requests") else { return };
    let memory = requests.get("memory").and_then(Value::as_text).and_then(|text| Quantity::parse(text).ok());
    if let Some(memory) = memory {
        requests.insert("memory".to_owned(), Value::text(memory.saturating_mul(2).to_string()));
    }
}

pub(super) fn mix_up_images(commit: &mut Commit) {
    let another = |key: &mut Key| {
        if key.sk.starts_with("LEARNED#") {
            key.sk += "0";
        }
    };
    for item in learned_written(commit) {
        if let Some(Value::S(image)) = item.get_mut("image") {
            image.push('0');
        }
    }
    for write in &mut commit.writes {
        if let Write::Set { key, .. } = write {
            another(key);
        }
    }
    for condition in &mut commit.conditions {
        if let WriteCondition::Item { key, .. } = condition {
            another(key);
        }
    }
}

pub(super) fn deal_twice(commit: &mut Commit) {
    let mut first = None;
    for item in claims_written(commit) {
        let instance = item.get("instance").cloned();
        match (&first, instance) {
            (None, found) => first = found,
            (Some(first), Some(_)) => {
                item.insert("instance".to_owned(), first.clone());
            }
            (Some(_), None) => {}
        }
    }
}

pub(super) fn raise_revision(task: &str, commit: &mut Commit) {
    let about_set =
        commit.conditions.iter().any(|condition| matches!(condition, WriteCondition::Cluster { .. }));
    let cluster = commit.writes.iter().find_map(|write| {
        let cluster = write.key().pk.strip_prefix("CLUSTER#")?;
        write.key().sk.starts_with("NODECLAIM#").then(|| cluster.to_owned())
    });
    if let (false, "lifecycle", Some(cluster)) = (about_set, task, cluster) {
        commit.writes.push(Write::Add {
            key: tenon_table::Key::new(format!("CLUSTER#{cluster}"), "REVISION"),
            attribute: "revision".to_owned(),
            amount: 1,
        });
    }
}

/// A command that ends gives back no candidate.
pub(super) fn forget_undone(commit: &mut Commit) {
    let has = |item: &Item, phase: &str| item.get("phase").and_then(Value::as_text) == Some(phase);
    let of = |write: &Write, kind: &str, phase: &str| match write {
        Write::Set { key, set, .. } | Write::Put { key, item: set } => {
            key.sk.starts_with(kind) && has(set, phase)
        }
        Write::Add { .. } | Write::Delete { .. } => false,
    };
    if commit.writes.iter().any(|write| of(write, "COMMAND#", "Done")) {
        commit.writes.retain(|write| !of(write, "NODECLAIM#", "Initialized"));
    }
}

/// A setting is missing in the registry entries.
pub(super) fn forget_setting(name: &str, items: &mut BTreeMap<Key, Item>) {
    for (_, entry) in items.iter_mut().filter(|(key, _)| key.sk.starts_with("CLUSTER#")) {
        if let Some(Value::M(settings)) = entry.get_mut("settings") {
            settings.remove(name);
        }
    }
}

/// These allowances are missing in the registry entries.
pub(super) fn forget_allowed(names: &[&str], items: &mut BTreeMap<Key, Item>) {
    for (_, entry) in items.iter_mut().filter(|(key, _)| key.sk.starts_with("CLUSTER#")) {
        if let Some(Value::M(allowed)) = entry.get_mut("allowed") {
            allowed.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
}

/// A claim never expires.
pub(super) fn forget_expiry((key, item): &mut (Key, Item)) {
    if key.sk.starts_with("NODECLAIM#") && item.contains_key("expire_after") {
        item.insert("expire_after".to_owned(), Value::text("Never"));
    }
}

/// A claim's mark as one that could go is of a time that doesn't come.
pub(super) fn forget_since(claim: &mut Item) {
    if let Some(Value::M(mark)) = claim.get_mut("consolidatable") {
        mark.insert("since".to_owned(), Value::text("2100-01-01T00:00:00Z"));
    }
}

/// A command waits for its replacements since a time that doesn't come.
pub(super) fn begin_later((key, item): &mut (Key, Item)) {
    let waits = item.get("phase").and_then(Value::as_text) == Some("Replacing");
    if waits && key.sk.starts_with("COMMAND#") {
        item.insert("phase_at".to_owned(), Value::text("2100-01-01T00:00:00Z"));
    }
}

/// A claim whose Node hasn't joined was launched just now, for ever.
pub(super) fn launch_later((key, item): &mut (Key, Item)) {
    let waits = item.get("phase").and_then(Value::as_text) == Some("Launched");
    if waits && key.sk.starts_with("NODECLAIM#") {
        item.insert("phase_at".to_owned(), Value::text("2100-01-01T00:00:00Z"));
    }
}

/// A claim has another hash of its NodePool's template.
pub(super) fn mix_up_hash((key, item): &mut (Key, Item)) {
    if key.sk.starts_with("NODECLAIM#") && item.contains_key("pool_hash") {
        item.insert("pool_hash".to_owned(), Value::text("1"));
    }
}
