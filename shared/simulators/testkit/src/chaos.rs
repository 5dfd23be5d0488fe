//! Faults at the gates: slow calls, refused calls, lost answers, crashes; events lost, duplicated, late, out of
//! order.
//!
//! Everything follows from the seed and the order of questions, which follows from the seed too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jiff::SignedDuration;
use serde_json::Value;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    CreateFleetRequest, Image, Instance, InstanceProfileFacts, InstanceStatus, LaunchRole,
};
use tenon_region::gate::{CallFate, CallSite, Evicting, Hooks};
use tenon_runtime::batch::Message;
use tenon_snapshot::{Kind, Object};
use tenon_table::{Commit, Item, Key, QueryPage};

use crate::random::Dice;
use crate::sabotage::{Sabotage, mix_up_snapshots};

/// The faults of one history, and its sabotage.
pub struct Chaos {
    state: Mutex<ChaosState>,
    sabotage: Option<Sabotage>,
}

struct ChaosState {
    dice: Dice,
    weather: Weather,
    crashes: u64,
    tampered: u64,
    /// IAM's first answer about a profile that no node can have.
    lost_profile: Option<Result<InstanceProfileFacts, Ec2Error>>,
    /// The launches of the last page, since the table's restore.
    launches: Option<BTreeSet<String>>,
    /// Snapshots that name a cluster, by its partition.
    claimed: BTreeMap<String, Item>,
}

/// Whether faults happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// They do.
    Storm,
    /// They don't.
    Calm,
    /// They don't, but every call takes a while.
    Slow,
}

impl Chaos {
    /// The faults of a seed.
    #[must_use]
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let state = ChaosState {
            dice: Dice::new(seed, 1),
            weather: Weather::Storm,
            crashes: 0,
            tampered: 0,
            lost_profile: None,
            launches: None,
            claimed: BTreeMap::new(),
        };
        Self { state: Mutex::new(state), sabotage }
    }

    /// Lets faults begin or end.
    pub fn set_weather(&self, weather: Weather) {
        self.with(|state| state.weather = weather);
    }

    /// Notes a restore of the table, which may lack existing things from now on.
    pub(crate) fn note_restore(&self) {
        self.with(|state| state.launches = Some(BTreeSet::new()));
    }

    /// How many tasks crashed.
    #[must_use]
    pub fn crashes(&self) -> u64 {
        self.with(|state| state.crashes)
    }

    fn with<T>(&self, f: impl FnOnce(&mut ChaosState) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn learn_launches(&self, page: &QueryPage) {
        let launches: BTreeSet<String> = page
            .items
            .iter()
            .filter_map(|(key, _)| key.sk.strip_prefix("LAUNCH#"))
            .map(str::to_owned)
            .collect();
        if !launches.is_empty() {
            self.with(|state| state.launches.iter_mut().for_each(|known| known.clone_from(&launches)));
        }
    }

    fn number(&self) -> u64 {
        self.with(|state| {
            state.tampered += 1;
            state.tampered
        })
    }
}

fn milliseconds(number: u64) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Hooks for Chaos {
    fn call(&self, site: CallSite) -> CallFate {
        self.with(|state| match (state.weather, state.dice.below(1000)) {
            (Weather::Calm, _) => CallFate::Go,
            (Weather::Slow, _) => CallFate::Delay(milliseconds(state.dice.between(1, 100))),
            (Weather::Storm, 0..=2) => {
                state.crashes += 1;
                CallFate::Crash
            }
            (Weather::Storm, 3..=9) => CallFate::Fail,
            // Tasks wait for a throttled table.
            (Weather::Storm, 10..=12) => CallFate::Break,
            (Weather::Storm, 13..=212) => CallFate::Delay(milliseconds(state.dice.between(1, 400))),
            (Weather::Storm, 213..=222) if site.call == "table.commit" => CallFate::Conflict,
            (Weather::Storm, _) => CallFate::Go,
        })
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        self.with(|state| match (state.weather, state.dice.below(100)) {
            (Weather::Calm | Weather::Slow, _) => vec![SignedDuration::ZERO],
            (Weather::Storm, 0..=9) => Vec::new(),
            (Weather::Storm, 10..=19) => {
                vec![SignedDuration::ZERO, milliseconds(state.dice.between(0, 30_000))]
            }
            (Weather::Storm, 20..=39) => vec![milliseconds(state.dice.between(0, 90_000))],
            (Weather::Storm, _) => vec![SignedDuration::ZERO],
        })
    }

    fn tamper_messages(&self, messages: &mut [Message]) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_messages(messages);
        }
    }

    fn tamper_commit(&self, task: &'static str, commit: &mut Commit) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_commit(task, commit, || self.number());
            if self.with(|state| state.launches.is_some()) {
                sabotage.tamper_restored(task, commit);
            }
        }
    }

    fn tamper_page(&self, task: &'static str, page: &mut QueryPage) {
        if let Some(sabotage) = self.sabotage {
            self.learn_launches(page);
            sabotage.tamper_page(task, page);
        }
    }

    fn tamper_items(&self, task: &'static str, asked: &[Key], items: &mut BTreeMap<Key, Item>) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_items(task, asked, items);
            if sabotage == Sabotage::SnapshotsMixedUp {
                self.with(|state| mix_up_snapshots(&mut state.claimed, items));
            }
        }
    }

    fn tamper_instances(&self, instances: &mut Vec<Instance>) {
        if let Some(sabotage) = self.sabotage {
            self.with(|state| sabotage.tamper_instances(instances, state.launches.as_ref()));
        }
    }

    fn tamper_statuses(&self, statuses: &mut Vec<InstanceStatus>) {
        if self.sabotage == Some(Sabotage::ImpairmentUnseen) {
            statuses.retain(|status| status.impaired.is_empty());
        }
    }

    fn tamper_launch_role(&self, role: &mut LaunchRole) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_launch_role(role, || self.number());
        }
    }

    fn tamper_fleet(&self, request: &mut CreateFleetRequest) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_fleet(request, || self.number());
        }
    }

    fn tamper_images(&self, images: &mut Vec<Image>) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_images(images, || self.number());
        }
    }

    fn tamper_profile(
        &self,
        answer: Result<InstanceProfileFacts, Ec2Error>,
    ) -> Result<InstanceProfileFacts, Ec2Error> {
        if self.sabotage != Some(Sabotage::LostProfilesRemembered) {
            return answer;
        }
        let lost = match &answer {
            Ok(facts) => facts.roles.is_empty(),
            Err(error) => matches!(error, Ec2Error::NotFound { .. }),
        };
        self.with(|state| {
            if lost {
                state.lost_profile.get_or_insert_with(|| answer.clone());
            }
            state.lost_profile.clone().unwrap_or(answer)
        })
    }

    fn tamper_list(&self, kind: Kind, objects: &mut Vec<Object>) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_list(kind, objects);
        }
    }

    fn tamper_patch(&self, patch: &mut Value) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_patch(patch);
        }
    }

    fn evicting(&self) -> Evicting {
        self.sabotage.map_or(Evicting::ByEviction, Sabotage::evicting)
    }
}
