//! Sabotage: the code broken in one place, at its ports.
//!
//! Each breaks the subject of one invariant like a fault in the code: a dropped condition, a changed token, a missing
//! record. An invariant that doesn't fail under its sabotage checks nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::SignedDuration;
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{ClientToken, Region};
use tenon_domain::quantity::Quantity;
use tenon_domain::taint::DISRUPTED;
use tenon_domain::unavailable::{FIRST_HOLD, Mark};
use tenon_ec2::port::{CreateFleetRequest, Image, ImageState, Instance};
use tenon_region::gate::Evicting;
use tenon_table::items::{CatalogMeta, Refresh, from_item, refresh, to_item};
use tenon_table::{Commit, Item, Key, Number, QueryPage, Value, Write, WriteCondition};

/// The account of a scenario's region.
const ACCOUNT: &str = "111122223333";

tenon_domain::words! {
    /// One place where the code is broken.
    pub enum Sabotage {
        /// Launches are sent under a new token each time, so a repeated one launches again, and the audit doesn't see
        /// the
        /// surplus.
        FreshTokens,
        /// The provisioner doesn't read counted pods.
        CountsForgotten,
        /// Claims are written back to an earlier state.
        StatesGoBack,
        /// Pending images look available.
        PendingLooksAvailable,
        /// Decisions are committed without their records.
        JournalLost,
        /// Pods are deleted instead of evicted.
        BudgetsOfPodsIgnored,
        /// Disruption doesn't see leaving nodes.
        GoingNotCounted,
        /// Claims are committed without their launches.
        LaunchesLost,
        /// Launches ask EC2 for no instance.
        EmptyLaunches,
        /// Which image is the newest changes every eighth look.
        NewestFlaps,
        /// One instance too many is launched each time, and the audit doesn't see it.
        ExtraInstances,
        /// Two claims get the same instance.
        InstanceDealtTwice,
        /// Every step of a claim counts as a decision about the set.
        StepsRaiseRevision,
        /// After a restore, instances of unknown launches look like those of a known one, and the agent doesn't report
        /// Nodes. Either alone terminates nothing: an unknown launch halts the cluster, and a Node keeps its instance.
        StrangersAdopted,
        /// The provisioner treats a missing part of the catalogue as empty and fresh.
        EmptyBelieved,
        /// Every refusal counts.
        StormsCountEach,
        /// A successful launch doesn't clear the mark.
        ClearsLost,
        /// Launches ask for marked offerings without the lease.
        ProbesUnleased,
        /// A mark is probed only after its hold, however long that is.
        LastResortLost,
        /// More memory is learned than EC2 states.
        MemoryDoubled,
        /// A Node's report is learned for another image than its own.
        ImagesMixedUp,
        /// Claims get pods for twice their planned memory.
        ClaimsOverfilled,
        /// The provisioner doesn't see which zones are shifted away from.
        ShiftsUnseen,
        /// The agent doesn't taint leaving Nodes.
        DeletionsUntainted,
        /// Strangers' images look like our own.
        StrangersOwned,
        /// A function's refusals are missing in the item that the agent reads.
        RefusalsUntold,
        /// Classes are told as ready, whatever else is told of them.
        ReadyAnyway,
        /// A denied dry run is never repeated.
        DenialsLast,
        /// The table keeps the items of templates that are deleted in EC2.
        TemplatesStayListed,
        /// Nobody notes since when nothing needs a template.
        UnneededForgotten,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a sabotage does nothing in all places but its own")]
impl Sabotage {
    pub(crate) fn tamper_commit(self, task: &str, commit: &mut Commit, number: impl FnOnce() -> u64) {
        match self {
            Self::StatesGoBack => {
                let is_initialized =
                    |item: &&mut Item| item.get("phase").and_then(Value::as_text) == Some("Initialized");
                // Every third matching commit.
                if claims_written(commit).any(|item| is_initialized(&item)) && number() % 3 == 2 {
                    for item in claims_written(commit).filter(is_initialized) {
                        item.insert("phase".to_owned(), Value::text("Planned"));
                    }
                }
            }
            Self::JournalLost => commit.writes.retain(|write| !write.key().pk.starts_with("JOURNAL#")),
            Self::RefusalsUntold => commit.writes.retain(|write| !write.key().sk.starts_with("TOLD#")),
            Self::TemplatesStayListed if task == "lifecycle" => keep_templates(commit),
            Self::UnneededForgotten => forget_unneeded(commit),
            Self::LaunchesLost => {
                if task == "provisioner" {
                    commit.writes.retain(|write| !write.key().sk.starts_with("LAUNCH#"));
                    commit.conditions.retain(|condition| !condition.key().sk.starts_with("LAUNCH#"));
                }
            }
            Self::InstanceDealtTwice => deal_twice(commit),
            Self::StepsRaiseRevision => raise_revision(task, commit),
            Self::StormsCountEach => count_marks(commit, |count| if count > 0 { count + 1 } else { 0 }),
            Self::ClearsLost => count_marks(commit, |count| count.max(1)),
            Self::ProbesUnleased => drop_leases(commit),
            Self::MemoryDoubled => learned_written(commit).for_each(double_learned),
            Self::ImagesMixedUp => mix_up_images(commit),
            Self::ClaimsOverfilled => claims_written(commit).for_each(double_requests),
            Self::ReadyAnyway => classes_written(commit).for_each(tell_ready),
            Self::DenialsLast => classes_written(commit).for_each(deny_for_ever),
            Self::FreshTokens
            | Self::CountsForgotten
            | Self::PendingLooksAvailable
            | Self::BudgetsOfPodsIgnored
            | Self::GoingNotCounted
            | Self::EmptyLaunches
            | Self::ShiftsUnseen
            | Self::DeletionsUntainted
            | Self::StrangersOwned
            | Self::EmptyBelieved
            | Self::LastResortLost
            | Self::StrangersAdopted
            | Self::TemplatesStayListed
            | Self::NewestFlaps
            | Self::ExtraInstances => {}
        }
    }

    pub(crate) fn tamper_page(self, task: &str, page: &mut QueryPage) {
        match self {
            Self::CountsForgotten if task == "provisioner" => {
                page.items.retain(|(key, _)| !key.sk.starts_with("LAUNCH#"));
            }
            Self::GoingNotCounted if task == "disruption" => page.items.retain(|(key, item)| {
                let phase = item.get("phase").and_then(Value::as_text);
                !key.sk.starts_with("COMMAND#")
                    && !matches!(phase, Some("Disrupting" | "Draining" | "Drained" | "Terminating"))
            }),
            Self::LastResortLost if task == "provisioner" => page.items.iter_mut().for_each(ask_later),
            Self::ShiftsUnseen if task == "provisioner" => page.items.iter_mut().for_each(shift_back),
            _ => {}
        }
    }

    /// Missing parts seem to exist, empty, and so do their pointers.
    pub(crate) fn tamper_items(self, task: &str, asked: &[Key], items: &mut BTreeMap<Key, Item>) {
        if self != Self::EmptyBelieved || task != "provisioner" {
            return;
        }
        let of_catalog = |key: &&Key| key.sk == "CATALOG" || key.sk.starts_with("PACKED#");
        for key in asked.iter().filter(of_catalog) {
            believe_empty(key, items);
        }
    }

    pub(crate) fn tamper_fleet(self, request: &mut CreateFleetRequest, number: impl FnOnce() -> u64) {
        match self {
            Self::FreshTokens => {
                let token =
                    format!("{}-{}", request.client_token.as_str().get(..20).unwrap_or("t"), number());
                if let Ok(token) = ClientToken::parse(token) {
                    request.client_token = token;
                }
            }
            Self::EmptyLaunches => request.target_capacity = 0,
            Self::ExtraInstances => request.target_capacity = request.target_capacity.saturating_add(1),
            _ => {}
        }
    }

    pub(crate) fn tamper_images(self, images: &mut [Image], number: impl FnOnce() -> u64) {
        match self {
            Self::PendingLooksAvailable => {
                for image in images.iter_mut().filter(|image| image.state == ImageState::Pending) {
                    image.state = ImageState::Available;
                }
            }
            Self::StrangersOwned => {
                images.iter_mut().for_each(|image| image.owner = ACCOUNT.to_owned());
            }
            Self::NewestFlaps => {
                let count = images.len().max(1);
                let first = usize::try_from(number() / 8).unwrap_or(0) % count;
                for (index, image) in images.iter_mut().enumerate() {
                    let later = i64::try_from((index + first) % count).unwrap_or(0);
                    let shifted =
                        image.created_at.map(|at| at.saturating_add(SignedDuration::from_hours(later)));
                    image.created_at = shifted.and_then(Result::ok).or(image.created_at);
                }
            }
            _ => {}
        }
    }

    /// The audit doesn't see instances without a claim's tag, or sees unknown launches as known.
    pub(crate) fn tamper_instances(self, instances: &mut Vec<Instance>, known: Option<&BTreeSet<String>>) {
        if matches!(self, Self::ExtraInstances | Self::FreshTokens) {
            instances.retain(|instance| instance.tags.contains_key(tenon_domain::tags::CLAIM));
        }
        if let (Self::StrangersAdopted, Some(known)) = (self, known) {
            for tags in instances.iter_mut().map(|instance| &mut instance.tags) {
                if let (Some(launch), Some(first)) = (tags.get_mut(tenon_domain::tags::LAUNCH), known.first())
                    && !known.contains(launch)
                {
                    launch.clone_from(first);
                }
            }
        }
    }

    /// After a restore the agent's manifest names no Nodes.
    pub(crate) fn tamper_restored(self, task: &str, commit: &mut Commit) {
        if self != Self::StrangersAdopted || task != "agent" {
            return;
        }
        for write in &mut commit.writes {
            if let Write::Set { key, set, .. } | Write::Put { key, item: set } = write
                && key.sk == "MANIFEST"
                && let Some(Value::L(chunks)) = set.get_mut("chunks")
            {
                chunks.retain(|chunk| !chunk.as_text().is_some_and(|name| name.starts_with("nodes/")));
            }
        }
    }

    /// The agent's patches leave out the taint of Nodes under deletion.
    pub(crate) fn tamper_patch(self, patch: &mut serde_json::Value) {
        if self == Self::DeletionsUntainted
            && let Some(taints) = patch.pointer_mut("/spec/taints").and_then(serde_json::Value::as_array_mut)
        {
            taints.retain(|taint| taint.get("key").and_then(|key| key.as_str()) != Some(DISRUPTED));
        }
    }

    pub(crate) fn evicting(self) -> Evicting {
        if self == Self::BudgetsOfPodsIgnored { Evicting::ByDeletion } else { Evicting::ByEviction }
    }
}

/// Adds an empty part's item at that key if there is none.
fn believe_empty(key: &Key, items: &mut BTreeMap<Key, Item>) {
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
fn count_marks(commit: &mut Commit, counted: impl Fn(i64) -> i64) {
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
fn ask_later((key, item): &mut (Key, Item)) {
    if !is_mark(key) {
        return;
    }
    let Ok(mark) = from_item::<Mark>(key, item) else { return };
    if let Ok(asked_at) = mark.until.checked_sub(FIRST_HOLD) {
        *item = to_item(&Mark { asked_at: asked_at.max(mark.asked_at), ..mark });
    }
}

/// A class looks as if its cluster weren't shifted away from any of its zones.
fn shift_back((key, item): &mut (Key, Item)) {
    let Some(Value::L(subnets)) = item.get_mut("subnets").filter(|_| key.sk.starts_with("NODECLASS#")) else {
        return;
    };
    for subnet in subnets {
        if let Value::M(fields) = subnet {
            fields.remove("shifted");
        }
    }
}

/// Commits launches as if none of their offerings were marked.
fn drop_leases(commit: &mut Commit) {
    if commit.writes.iter().any(|write| write.key().sk.starts_with("LAUNCH#")) {
        commit.writes.retain(|write| !is_mark(write.key()));
        commit.conditions.retain(|condition| !is_mark(&condition.key()));
    }
}

/// Leaves out that templates' items go and that their names leave.
fn keep_templates(commit: &mut Commit) {
    commit.writes.retain(|write| !write.key().sk.starts_with("TEMPLATE"));
    commit.conditions.retain(|condition| !condition.key().sk.starts_with("TEMPLATE"));
}

fn forget_unneeded(commit: &mut Commit) {
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

fn claims_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } | Write::Put { key, item: set } if key.sk.starts_with("NODECLAIM#") => {
            Some(set)
        }
        Write::Set { .. } | Write::Put { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

fn classes_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } if key.sk.starts_with("NODECLASS#") => Some(set),
        Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

fn tell_ready(item: &mut tenon_table::Item) {
    let Some(Value::L(conditions)) = item.get_mut("conditions") else { return };
    for condition in conditions {
        if let Value::M(fields) = condition
            && fields.get("type").and_then(Value::as_text) == Some("Ready")
        {
            fields.insert("status".to_owned(), Value::text("True"));
        }
    }
}

fn deny_for_ever(item: &mut tenon_table::Item) {
    let Some(Value::L(verdicts)) = item.get_mut("verdicts") else { return };
    for verdict in verdicts {
        if let Value::M(fields) = verdict
            && fields.get("outcome").and_then(Value::as_text) == Some("Denied")
        {
            fields.insert("until".to_owned(), Value::text("2100-01-01T00:00:00Z"));
        }
    }
}

fn learned_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } if key.sk.starts_with("LEARNED#") => Some(set),
        Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
}

fn double_learned(item: &mut tenon_table::Item) {
    if let Some(bytes) = item.get("memory_bytes").and_then(Value::as_number).and_then(Number::to_u64) {
        item.insert("memory_bytes".to_owned(), Value::number(bytes.saturating_mul(2)));
    }
}

fn double_requests(item: &mut tenon_table::Item) {
    let Some(Value::M(requests)) = item.get_mut("requests") else { return };
    let memory = requests.get("memory").and_then(Value::as_text).and_then(|text| Quantity::parse(text).ok());
    if let Some(memory) = memory {
        requests.insert("memory".to_owned(), Value::text(memory.saturating_mul(2).to_string()));
    }
}

fn mix_up_images(commit: &mut Commit) {
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

fn deal_twice(commit: &mut Commit) {
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

fn raise_revision(task: &str, commit: &mut Commit) {
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
