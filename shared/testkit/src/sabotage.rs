//! Sabotage: the code broken in one place, at its ports.
//!
//! Each breaks what one invariant watches, as a fault in the code would: a condition that is left out, a token that
//! isn't kept, a record that isn't written. An invariant that doesn't fail under its sabotage is none.

use std::collections::BTreeSet;

use tenon_cloud::port::{CreateFleetRequest, Image, ImageState, Instance};
use tenon_domain::SignedDuration;
use tenon_domain::id::ClientToken;
use tenon_region::gate::Evicting;
use tenon_table::{Commit, Condition, Page, Value, Write};

/// One place where the code is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Launches are sent under a new token each time, so a repeated one launches again, and what it launched too much
    /// isn't seen by the audit.
    FreshTokens,
    /// The provisioner doesn't read which pods were counted.
    CountsForgotten,
    /// Claims are written back to an earlier state.
    StatesGoBack,
    /// Pending images look available.
    PendingLooksAvailable,
    /// Decisions are committed without their records.
    JournalLost,
    /// Pods are deleted instead of evicted.
    BudgetsOfPodsIgnored,
    /// Disruption doesn't see what is going already.
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
    /// After a restore instances of launches that the table doesn't know look like those of one that it knows, and the
    /// agent doesn't report Nodes. Either alone kills nothing: a launch that isn't known halts, and a Node vetoes.
    StrangersAdopted,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a sabotage does nothing in all places but its own")]
impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::FreshTokens,
        Self::CountsForgotten,
        Self::StatesGoBack,
        Self::PendingLooksAvailable,
        Self::JournalLost,
        Self::BudgetsOfPodsIgnored,
        Self::GoingNotCounted,
        Self::LaunchesLost,
        Self::EmptyLaunches,
        Self::NewestFlaps,
        Self::ExtraInstances,
        Self::InstanceDealtTwice,
        Self::StepsRaiseRevision,
        Self::StrangersAdopted,
    ];

    pub(crate) fn tamper_commit(self, task: &str, commit: &mut Commit, number: impl FnOnce() -> u64) {
        match self {
            Self::StatesGoBack => {
                if number() % 20 == 19 {
                    for item in claims_written(commit) {
                        if item.get("phase").and_then(Value::as_text) == Some("Initialized") {
                            item.insert("phase".to_owned(), Value::text("Planned"));
                        }
                    }
                }
            }
            Self::JournalLost => commit.writes.retain(|write| !write.key().pk.starts_with("JOURNAL#")),
            Self::LaunchesLost => {
                if task == "provisioner" {
                    commit.writes.retain(|write| !write.key().sk.starts_with("LAUNCH#"));
                    commit.conditions.retain(|condition| !condition.key().sk.starts_with("LAUNCH#"));
                }
            }
            Self::InstanceDealtTwice => deal_twice(commit),
            Self::StepsRaiseRevision => raise_revision(task, commit),
            Self::FreshTokens
            | Self::CountsForgotten
            | Self::PendingLooksAvailable
            | Self::BudgetsOfPodsIgnored
            | Self::GoingNotCounted
            | Self::EmptyLaunches
            | Self::StrangersAdopted
            | Self::NewestFlaps
            | Self::ExtraInstances => {}
        }
    }

    pub(crate) fn tamper_page(self, task: &str, page: &mut Page) {
        match self {
            Self::CountsForgotten if task == "provisioner" => {
                page.items.retain(|(key, _)| !key.sk.starts_with("LAUNCH#"));
            }
            Self::GoingNotCounted if task == "disruption" => page.items.retain(|(key, item)| {
                let phase = item.get("phase").and_then(Value::as_text);
                !key.sk.starts_with("COMMAND#")
                    && !matches!(phase, Some("Disrupting" | "Draining" | "Drained" | "Terminating"))
            }),
            _ => {}
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

    /// The audit doesn't see what no claim was named on, or sees what isn't known as known.
    pub(crate) fn tamper_instances(self, instances: &mut Vec<Instance>, known: Option<&BTreeSet<String>>) {
        if matches!(self, Self::ExtraInstances | Self::FreshTokens) {
            instances.retain(|instance| instance.tags.contains_key("karpenter.sh/nodeclaim"));
        }
        if let (Self::StrangersAdopted, Some(known)) = (self, known) {
            for tags in instances.iter_mut().map(|instance| &mut instance.tags) {
                if let (Some(launch), Some(first)) = (tags.get_mut("tenon.dev/launch"), known.first())
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

    pub(crate) fn evicting(self) -> Evicting {
        if self == Self::BudgetsOfPodsIgnored { Evicting::ByDeletion } else { Evicting::ByEviction }
    }
}

fn claims_written(commit: &mut Commit) -> impl Iterator<Item = &mut tenon_table::Item> {
    commit.writes.iter_mut().filter_map(|write| match write {
        Write::Set { key, set, .. } | Write::Put { key, item: set } if key.sk.starts_with("NODECLAIM#") => {
            Some(set)
        }
        Write::Set { .. } | Write::Put { .. } | Write::Add { .. } | Write::Delete { .. } => None,
    })
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
    let about_set = commit.conditions.iter().any(|condition| matches!(condition, Condition::Cluster { .. }));
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
