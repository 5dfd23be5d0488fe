//! Sabotage: the code broken in one place, at its ports.
//!
//! Each breaks the subject of one invariant like a fault in the code: a dropped condition, a changed token, a missing
//! record. An invariant that doesn't fail under its sabotage checks nothing.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::SignedDuration;
use tenon_domain::id::ClientToken;
use tenon_domain::labels::EC2NODECLASS_FINALIZER;
use tenon_domain::labels::PAUSE_DISRUPTION;
use tenon_domain::taint::{DISRUPTED, OPENING};
use tenon_ec2::port::{CreateFleetRequest, Image, ImageState, Instance, LaunchRole};
use tenon_region::gate::Evicting;
use tenon_runtime::batch::Message;
use tenon_snapshot::{Kind, Object};
use tenon_table::items::keys;
use tenon_table::{Commit, Item, Key, QueryPage, Value, Write};

mod clusters;
mod commands;
mod items;

pub(crate) use clusters::mix_up_snapshots;

use clusters::{allow_strangers, forget_leaving, give_up_poisoned};
use commands::{forget_drains, forget_finishes, forget_pauses_undone};
use items::{
    actions_written, ask_later, begin_later, believe_empty, claims_written, classes_written, count_marks,
    deal_twice, deny_for_ever, double_learned, double_requests, drop_leases, forget_allowed, forget_expiry,
    forget_pods, forget_setting, forget_since, forget_timeout, forget_undone, forget_unneeded,
    keep_templates, launch_later, learned_written, mix_up_hash, mix_up_images, raise_revision, shift_back,
    tell_ready,
};

use crate::deregistered::DEREGISTRATION;
use crate::pipeline::{APPROVED, BUILDING, BUILT, STAGE};
use crate::world::{CLUSTER, SECOND};

/// A type that no other of the worlds' types costs as much as.
const DEAREST: &str = "m5.2xlarge";

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
        /// Disruption doesn't see the cluster's budget.
        ClusterBudgetUnseen,
        /// Disruption doesn't see the cluster's pause.
        ClusterPauseUnseen,
        /// The agent doesn't see the pauses of pools.
        PoolPausesUnseen,
        /// A command that a pause stops isn't undone.
        PausedNotUndone,
        /// No function sees that a claim expires.
        ExpiryUnseen,
        /// The provisioner writes no launch: its claims have none, and the answers of replacements stay unknown.
        LaunchesLost,
        /// Launches ask EC2 for no instance.
        EmptyLaunches,
        /// Which image is the newest changes every eighth look.
        NewestFlaps,
        /// One instance too many is launched each time, and the audit doesn't see it.
        ExtraInstances,
        /// Every other time launches of the second cluster are asked for by the first one's launch role.
        RolesMixedUp,
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
        /// An instance profile that was missing or without a role stays so, whatever IAM answers.
        LostProfilesRemembered,
        /// A denied dry run is never repeated.
        DenialsLast,
        /// Nobody notes that an instance of an image failed.
        FailuresForgotten,
        /// Every image looks approved.
        PolicyIgnored,
        /// The tags of the pipeline's images look as they were at first.
        RetagsUnseen,
        /// The table keeps the items of templates that are deleted in EC2.
        TemplatesStayListed,
        /// Nobody notes since when nothing needs a template.
        UnneededForgotten,
        /// Nodes are noted as empty since a time that doesn't come.
        EmptiedForgotten,
        /// `lifecycle` sees claims without a Node as launched at a time that doesn't come.
        WaitsForgotten,
        /// The agent's reports lack the times when pods left Nodes.
        LeavingUnseen,
        /// EC2 is asked for other types than were planned: dear ones.
        DearTypes,
        /// Candidates of a command that is undone aren't given back, and every second launch fails.
        UndoneForgotten,
        /// Commands look as if they began at a time that doesn't come, and seven of eight launches fail.
        CommandsInsist,
        /// A command that waited for its replacements doesn't drain its nodes.
        DrainsForgotten,
        /// A command whose nodes are gone isn't done.
        FinishesForgotten,
        /// Disruption sees another hash of the NodePool's template on claims than they were launched with.
        HashesMixedUp,
        /// The agent isn't told that an interrupted node's pods stay.
        EvictedAtOnce,
        /// The agent sees no attached volume.
        VolumesUnseen,
        /// The agent sees no time for load balancers on NodePools.
        DeregistrationUnseen,
        /// Nodes' conditions but Ready are missing in lists.
        SicknessUnseen,
        /// The agent sets no finalizer on classes.
        ClassesUnheld,
        /// EC2 seems to have no instance that fails a status check.
        ImpairmentUnseen,
        /// A batch is given up for one message whose content can't be read.
        PoisonStops,
        /// A snapshot counts for the cluster that it names, whoever wrote it.
        SnapshotsMixedUp,
        /// Each cluster may use the networks of all.
        StrangersAllowed,
        /// Clusters' entries lack the bounds of nodes, vCPUs and families.
        BoundsUnseen,
        /// Clusters' entries lack what their stacks deny to classes.
        PermissionsUnseen,
        /// The agent opens no Node.
        NodesStayClosed,
        /// The provisioner doesn't see which claims ended because no Node joined.
        TimeoutsForgotten,
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
            Self::LaunchesLost if task == "provisioner" => {
                commit.writes.retain(|write| !write.key().sk.starts_with("LAUNCH#"));
                commit.conditions.retain(|condition| !condition.key().sk.starts_with("LAUNCH#"));
            }
            Self::InstanceDealtTwice => deal_twice(commit),
            Self::StepsRaiseRevision => raise_revision(task, commit),
            Self::StormsCountEach => count_marks(commit, |count| if count > 0 { count + 1 } else { 0 }),
            Self::ClearsLost => count_marks(commit, |count| count.max(1)),
            Self::ProbesUnleased => drop_leases(commit),
            Self::MemoryDoubled => learned_written(commit).for_each(double_learned),
            Self::ImagesMixedUp => mix_up_images(commit),
            Self::ClaimsOverfilled => claims_written(commit).for_each(double_requests),
            Self::DenialsLast => classes_written(commit).for_each(deny_for_ever),
            Self::FailuresForgotten => {
                let of_boots = |key: &Key| key.sk.starts_with(keys::BOOT);
                commit.writes.retain(|write| !of_boots(write.key()));
                commit.conditions.retain(|condition| !of_boots(&condition.key()));
            }
            Self::ReadyAnyway => classes_written(commit).for_each(tell_ready),
            Self::PausedNotUndone if task == "disruption" => forget_pauses_undone(commit),
            Self::DrainsForgotten if task == "disruption" => forget_drains(commit),
            Self::FinishesForgotten if task == "disruption" => forget_finishes(commit),
            Self::UndoneForgotten if task == "disruption" => forget_undone(commit),
            Self::EvictedAtOnce => actions_written(commit).for_each(|action| {
                action.remove("replacement_first");
            }),
            Self::EmptiedForgotten => claims_written(commit).for_each(forget_since),
            Self::LeavingUnseen if task == "agent" => forget_leaving(commit),
            _ => {}
        }
    }

    pub(crate) fn tamper_page(self, task: &str, page: &mut QueryPage) {
        match self {
            Self::CountsForgotten if task == "provisioner" => page.items.iter_mut().for_each(forget_pods),
            Self::GoingNotCounted if task == "disruption" => page.items.retain(|(key, item)| {
                let phase = item.get("phase").and_then(Value::as_text);
                !key.sk.starts_with("COMMAND#")
                    && !matches!(phase, Some("Disrupting" | "Draining" | "Drained" | "Terminating"))
            }),
            Self::CommandsInsist if task == "disruption" => page.items.iter_mut().for_each(begin_later),
            Self::WaitsForgotten if task == "lifecycle" => page.items.iter_mut().for_each(launch_later),
            Self::HashesMixedUp if task == "disruption" => page.items.iter_mut().for_each(mix_up_hash),
            Self::ExpiryUnseen => page.items.iter_mut().for_each(forget_expiry),
            Self::TimeoutsForgotten if task == "provisioner" => {
                page.items.iter_mut().for_each(forget_timeout)
            }
            Self::LastResortLost if task == "provisioner" => page.items.iter_mut().for_each(ask_later),
            Self::ShiftsUnseen if task == "provisioner" => page.items.iter_mut().for_each(shift_back),
            _ => {}
        }
    }

    /// Missing parts seem to exist, empty, and so do their pointers. Settings are missing in the registry entry.
    pub(crate) fn tamper_items(self, task: &str, asked: &[Key], items: &mut BTreeMap<Key, Item>) {
        match self {
            Self::ClusterBudgetUnseen if task == "disruption" => forget_setting("disruption_budget", items),
            Self::ClusterPauseUnseen if task == "disruption" => forget_setting("voluntary_disruption", items),
            Self::StrangersAllowed => allow_strangers(items),
            Self::BoundsUnseen => forget_allowed(&["max_nodes", "max_vcpus", "families"], items),
            Self::PermissionsUnseen => forget_allowed(&["public_addresses", "imds_v1", "user_data"], items),
            _ => {}
        }
        if self != Self::EmptyBelieved || task != "provisioner" {
            return;
        }
        let of_catalog = |key: &&Key| key.sk == "CATALOG" || key.sk.starts_with("PACKED#");
        for key in asked.iter().filter(of_catalog) {
            believe_empty(key, items);
        }
    }

    pub(crate) fn tamper_messages(self, messages: &mut [Message]) {
        if self == Self::PoisonStops {
            give_up_poisoned(messages);
        }
    }

    /// Now and then: without any template EC2 is asked for no launch.
    pub(crate) fn tamper_launch_role(self, role: &mut LaunchRole, number: impl FnOnce() -> u64) {
        if self == Self::RolesMixedUp && role.cluster.as_str() == SECOND && number() % 2 == 1 {
            role.arn = role.arn.replace(SECOND, CLUSTER);
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
            // Whole histories undo few commands.
            Self::UndoneForgotten | Self::CommandsInsist => {
                request.target_capacity = self.granted(request.target_capacity, number());
            }
            Self::DearTypes => {
                for one in request.launch_templates.iter_mut().flat_map(|template| &mut template.overrides) {
                    if let Ok(dear) = DEAREST.parse() {
                        one.instance_type = dear;
                    }
                }
            }
            Self::ExtraInstances => request.target_capacity = request.target_capacity.saturating_add(1),
            _ => {}
        }
    }

    /// The capacity that the launch of this number asks for: one in two or in eight gets what it needs.
    fn granted(self, asked: u32, number: u64) -> u32 {
        let one_of = if self == Self::CommandsInsist { 8 } else { 2 };
        if number.is_multiple_of(one_of) { asked } else { 0 }
    }

    pub(crate) fn tamper_images(self, images: &mut [Image], number: impl FnOnce() -> u64) {
        match self {
            Self::PendingLooksAvailable => {
                for image in images.iter_mut().filter(|image| image.state == ImageState::Pending) {
                    image.state = ImageState::Available;
                }
            }
            Self::PolicyIgnored => {
                for image in images {
                    image.tags.insert(STAGE.to_owned(), APPROVED.to_owned());
                }
            }
            Self::RetagsUnseen => {
                for image in images.iter_mut().filter(|image| image.name.starts_with(BUILT)) {
                    image.tags.insert(STAGE.to_owned(), BUILDING.to_owned());
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

    /// The agent's lists lack objects.
    pub(crate) fn tamper_list(self, kind: Kind, objects: &mut Vec<Object>) {
        if self == Self::VolumesUnseen && kind == Kind::VolumeAttachment {
            objects.clear();
        }
        let unseen = match self {
            Self::PoolPausesUnseen => Some(PAUSE_DISRUPTION),
            Self::DeregistrationUnseen => Some(DEREGISTRATION),
            _ => None,
        };
        if let Some(unseen) = unseen.filter(|_| kind == Kind::NodePool) {
            for pool in objects.iter_mut() {
                let told = std::sync::Arc::make_mut(pool).pointer_mut("/metadata/annotations");
                told.and_then(serde_json::Value::as_object_mut).map(|told| told.remove(unseen));
            }
        }
        if self == Self::SicknessUnseen && kind == Kind::Node {
            for node in objects {
                let conditions = std::sync::Arc::make_mut(node).pointer_mut("/status/conditions");
                if let Some(conditions) = conditions.and_then(serde_json::Value::as_array_mut) {
                    conditions.retain(|condition| condition.get("type").is_some_and(|kind| kind == "Ready"));
                }
            }
        }
    }

    /// The agent's patches leave out the taint of Nodes under deletion, or the finalizer of classes, or keep the taint of
    /// Nodes that open.
    pub(crate) fn tamper_patch(self, patch: &mut serde_json::Value) {
        if self == Self::DeletionsUntainted
            && let Some(taints) = patch.pointer_mut("/spec/taints").and_then(serde_json::Value::as_array_mut)
        {
            taints.retain(|taint| taint.get("key").and_then(|key| key.as_str()) != Some(DISRUPTED));
        }
        if self == Self::NodesStayClosed
            && let Some(taints) = patch.pointer_mut("/spec/taints").and_then(serde_json::Value::as_array_mut)
            && !taints.iter().any(|taint| taint.get("key").and_then(|key| key.as_str()) == Some(OPENING))
        {
            taints.push(serde_json::json!({"key": OPENING, "effect": "NoSchedule"}));
        }
        if self == Self::ClassesUnheld
            && let Some(all) =
                patch.pointer_mut("/metadata/finalizers").and_then(serde_json::Value::as_array_mut)
        {
            all.retain(|finalizer| finalizer != EC2NODECLASS_FINALIZER);
        }
    }

    pub(crate) fn evicting(self) -> Evicting {
        if self == Self::BudgetsOfPodsIgnored { Evicting::ByDeletion } else { Evicting::ByEviction }
    }
}
