//! What the third cluster does: all that its agent's role allows, and what its API server takes from its users.
//!
//! Decides each deed by its dice. Beyond the role, which may only put and update items of `AGENT#<cluster>`, it deletes
//! and spoils items, those of `CLUSTER#<cluster>` among them, as a mistake of its operators does.

use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_memory_table::block_on;
use tenon_region::engine::SimulatedRegion;
use tenon_region::site::Voice;
use tenon_snapshot::snapshot::partition;
use tenon_table::items::keys;
use tenon_table::{Commit, CommitToken, Item, Key, Table, Value, Write};

use super::classes::drawn_class;
use super::events::forged_event;
use super::filling;
use super::snapshots::{ForgedSnapshot, SnapshotForgery};
use crate::random::Dice;
use crate::world::{plain_pool, set};

/// Events a second: an agent rings once in a few seconds.
const EVENTS_A_SECOND: usize = 30;

/// The third cluster.
pub(super) struct HostileThird {
    name: ClusterName,
    others: Vec<ClusterName>,
    dice: Dice,
    voice: Voice,
    /// Counts its writes: equal ones at different times are different.
    written: u64,
}

impl HostileThird {
    pub(super) fn new(name: ClusterName, others: Vec<ClusterName>, seed: u64) -> Self {
        Self { name, others, dice: Dice::new(seed, 27), voice: Voice::Speaks, written: 0 }
    }

    /// Rings without end, and in others' names.
    pub(super) fn flood(&mut self, region: &mut SimulatedRegion) {
        for _ in 0..EVENTS_A_SECOND {
            region.publish(&forged_event(&self.name, &self.others, &mut self.dice));
        }
    }

    /// Does one thing.
    pub(super) fn act(&mut self, region: &mut SimulatedRegion) {
        match self.dice.below(100) {
            0..=29 => self.forge_snapshot(region),
            30..=59 => self.edit_class(region),
            60..=64 => self.add_pools(region),
            65..=79 => self.delete_items(region),
            80..=89 => self.spoil_items(region),
            _ => self.turn_agent(region),
        }
    }

    fn other(&mut self) -> ClusterName {
        self.dice.pick(&self.others).unwrap_or(&self.name).clone()
    }

    fn forge_snapshot(&mut self, region: &SimulatedRegion) {
        let Some(forgery) = self.dice.pick(&SnapshotForgery::ALL).copied() else { return };
        let other = self.other();
        let forged = ForgedSnapshot { region, third: &self.name, other: &other };
        for write in forged.writes(forgery, &mut self.dice) {
            self.write(region, write);
        }
    }

    /// Edits the class, and asks for other pods, so that nodes are launched from it.
    fn edit_class(&mut self, region: &SimulatedRegion) {
        let other = self.other();
        let class = drawn_class(&self.name, &other, &mut self.dice);
        let pods = self.dice.below(12);
        let Some(site) = region.site(&self.name) else { return };
        let _ = site.cluster().apply(class);
        let _ = site.cluster().apply(filling("noise", pods));
    }

    fn add_pools(&mut self, region: &SimulatedRegion) {
        let Some(site) = region.site(&self.name) else { return };
        for number in 0..self.dice.between(500, 2000) {
            let mut pool = plain_pool(&["on-demand"], &json!({"consolidateAfter": "Never"}));
            set(&mut pool, &["metadata", "name"], json!(format!("pool-{number}")));
            let _ = site.cluster().apply(pool);
        }
    }

    /// The items of its partitions.
    fn items(&self, region: &SimulatedRegion) -> Vec<(Key, Item)> {
        let mut items = Vec::new();
        for pk in [partition(&self.name), keys::cluster_pk(&self.name)] {
            let found = region.table().peek_prefix(&pk, "");
            items.extend(found.iter().map(|(sk, stored)| {
                let item: Item = stored.item().clone();
                (Key::new(pk.as_str(), &**sk), item)
            }));
        }
        items
    }

    fn delete_items(&mut self, region: &SimulatedRegion) {
        let items = self.items(region);
        for _ in 0..self.dice.between(1, 20) {
            let Some((key, _)) = self.dice.pick(&items) else { return };
            self.write(region, Write::Delete { key: key.clone() });
        }
    }

    /// Takes attributes away, or writes something else into them.
    fn spoil_items(&mut self, region: &SimulatedRegion) {
        let items = self.items(region);
        for _ in 0..self.dice.between(1, 10) {
            let Some((key, item)) = self.dice.pick(&items) else { return };
            let names: Vec<&String> = item.keys().collect();
            let Some(name) = self.dice.pick(&names).map(|name| (*name).clone()) else { continue };
            let mut item = item.clone();
            match self.dice.below(3) {
                0 => item.remove(&name),
                1 => item.insert(name, Value::text(self.other().as_str())),
                _ => item.insert(name, Value::number(u64::MAX)),
            };
            self.write(region, Write::Put { key: key.clone(), item });
        }
    }

    /// Lets the true agent fall silent, or speak again.
    fn turn_agent(&mut self, region: &mut SimulatedRegion) {
        self.voice = match self.voice {
            Voice::Speaks => Voice::Silent,
            Voice::Silent => Voice::Speaks,
        };
        region.set_voice(&self.name, self.voice);
    }

    fn write(&mut self, region: &SimulatedRegion, write: Write) {
        self.written += 1;
        let token = CommitToken::of_texts(["hostile", &self.written.to_string()]);
        // The table refuses what is too large or too much for the partition.
        let _ =
            block_on(region.table().commit(&Commit { token, conditions: Vec::new(), writes: vec![write] }));
    }
}
