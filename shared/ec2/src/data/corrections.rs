//! Corrections of the released instance types by the peer's published reference, from which pools' labels follow.
//!
//! Decides which source wins: the reference, for types that it lists. A row names types and their values. Answers of
//! DescribeInstanceTypes for an account are never corrected, because they are newer than both sources. The limits are
//! corrected, because no API serves them.
//!
//! Invariants: the reference shows each value of a row for each of its types, so nothing is inferred from another
//! size or family; a correction only replaces a value that exists.

use std::collections::BTreeSet;

use serde::Deserialize;
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, NetworkCardInfo, NetworkInfo};

/// One row.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Correction {
    /// The types that it is about, by name.
    types: BTreeSet<String>,
    /// `ProcessorInfo.SustainedClockSpeedInGhz`.
    sustained_clock_speed_in_ghz: Option<f64>,
    /// `NetworkInfo.NetworkCards`.
    network_cards: Option<NetworkCards>,
    /// Whether branch interfaces count.
    trunking: Option<bool>,
    /// Baseline network bandwidth.
    bandwidth_mbps: Option<u32>,
}

/// How many network cards there are.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NetworkCards {
    /// One, with the interfaces of all.
    One,
}

/// Corrects the descriptions and limits that came with the code.
pub(super) fn correct(corrections: &[Correction], types: &mut [InstanceTypeInfo], limits: &mut Limits) {
    for correction in corrections {
        let matches = |name: &str| correction.types.contains(name);
        for info in types.iter_mut().filter(|info| info.instance_type.as_deref().is_some_and(matches)) {
            correction.describe(info);
        }
        for (_, eni) in limits.eni.iter_mut().filter(|(name, _)| matches(name)) {
            eni.trunking = correction.trunking.unwrap_or(eni.trunking);
        }
        for (_, mbps) in limits.bandwidth_mbps.iter_mut().filter(|(name, _)| matches(name)) {
            *mbps = correction.bandwidth_mbps.unwrap_or(*mbps);
        }
    }
}

impl Correction {
    fn describe(&self, info: &mut InstanceTypeInfo) {
        let clock = info.processor_info.as_mut().and_then(|info| info.sustained_clock_speed_in_ghz.as_mut());
        if let (Some(known), Some(ghz)) = (clock, self.sustained_clock_speed_in_ghz) {
            *known = ghz;
        }
        if let (Some(network), Some(NetworkCards::One)) = (info.network_info.as_mut(), self.network_cards) {
            unite_cards(network);
        }
    }
}

fn unite_cards(network: &mut NetworkInfo) {
    let Some(cards) = &mut network.network_cards else { return };
    let interfaces = cards.iter().filter_map(|card| card.maximum_network_interfaces).sum();
    *cards = vec![NetworkCardInfo {
        network_card_index: Some(network.default_network_card_index.unwrap_or(0)),
        maximum_network_interfaces: Some(interfaces),
    }];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenon_domain::catalog::describe::facts;
    use tenon_domain::catalog::node_labels::published_labels;
    use tenon_domain::catalog::{AmiFamily, NodeSettings, node_shape};

    use super::super::{corrections, gzip, limits, types};
    use super::*;

    /// A type as Karpenter publishes it: for AL2023, without block device mappings.
    #[derive(serde::Deserialize)]
    struct Published {
        labels: BTreeMap<String, String>,
        allocatable: BTreeMap<String, String>,
    }

    struct CorrectionsWorld {
        published: BTreeMap<String, Published>,
        types: Vec<InstanceTypeInfo>,
        limits: Limits,
    }

    fn world() -> CorrectionsWorld {
        let file = include_bytes!("../../tests/data/karpenter-instance-types.json.gz");
        CorrectionsWorld {
            published: gzip("karpenter-instance-types.json.gz", file).unwrap(),
            types: types().unwrap(),
            limits: limits().unwrap(),
        }
    }

    impl CorrectionsWorld {
        /// `type key ours theirs` for every value in which the reference differs, by type, then key.
        fn differences(&self, corrections: &[Correction]) -> Vec<String> {
            let (mut types, mut limits) = (self.types.clone(), self.limits.clone());
            correct(corrections, &mut types, &mut limits);
            let computed: BTreeMap<String, InstanceTypeInfo> =
                types.into_iter().map(|info| (info.instance_type.clone().unwrap(), info)).collect();
            let mut differences = Vec::new();
            for (name, expected) in &self.published {
                let facts = facts(&computed[name], &limits).unwrap();
                let labels = published_labels(&facts, AmiFamily::Al2023);
                let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value));
                let shape = node_shape(&facts, &NodeSettings::default(), None);
                let resources = shape.allocatable.resources().without_zeroes();
                let resources = resources.iter().map(|(key, value)| (key.to_string(), value.to_string()));
                differences.extend(differ(name, &labels.collect(), &expected.labels));
                differences.extend(differ(name, &resources.collect(), &expected.allocatable));
            }
            differences
        }
    }

    fn differ(name: &str, ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Vec<String> {
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let value = |of: &BTreeMap<String, String>, key| of.get(key).map_or("-".to_owned(), Clone::clone);
        let differing = keys.into_iter().filter(|key| ours.get(*key) != theirs.get(*key));
        differing.map(|key| format!("{name} {key} {} {}", value(ours, key), value(theirs, key))).collect()
    }

    #[test]
    fn all_that_karpenter_publishes_is_equal() {
        let (world, rows) = (world(), corrections().unwrap());
        assert_eq!(world.published.len(), 678);
        assert_eq!(world.differences(&rows), Vec::<String>::new());
    }

    #[test]
    fn the_reference_shows_each_value_of_each_row_for_each_of_its_types() {
        let (world, rows) = (world(), corrections().unwrap());
        for (n, row) in rows.iter().enumerate() {
            for name in &row.types {
                assert!(world.published.contains_key(name), "the reference doesn't show `{name}`");
                for field in row.fields() {
                    let mut without = rows.clone();
                    without[n].types.remove(name);
                    without.push(Correction { types: BTreeSet::from([name.clone()]), ..row.without(field) });
                    let missed = world.differences(&without);
                    assert!(
                        !missed.is_empty() && missed.iter().all(|m| m.starts_with(&format!("{name} "))),
                        "`{field}` of `{name}` changes nothing that the reference shows: {missed:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_the_reference_does_not_show_is_as_ec2_describes_it() {
        let (world, rows) = (world(), corrections().unwrap());
        let (mut types, mut limits) = (world.types.clone(), world.limits.clone());
        correct(&rows, &mut types, &mut limits);
        assert_eq!(types.len(), 1395);
        for (before, after) in world.types.iter().zip(&types) {
            let name = after.instance_type.as_deref().unwrap();
            let pod_eni = pod_eni(after, &limits);
            match world.published.get(name) {
                Some(published) => {
                    assert_eq!(pod_eni.as_ref(), published.allocatable.get(POD_ENI), "{name}");
                }
                None => {
                    let eni = world.limits.eni.get(name).filter(|eni| eni.trunking);
                    let branches = eni.map(|eni| eni.branch_interfaces).filter(|branches| *branches > 0);
                    assert_eq!(pod_eni, branches.map(|branches| branches.to_string()), "{name}");
                    assert_eq!(before, after, "{name}");
                    assert_eq!(world.limits.eni.get(name), limits.eni.get(name), "{name}");
                    assert_eq!(
                        world.limits.bandwidth_mbps.get(name),
                        limits.bandwidth_mbps.get(name),
                        "{name}"
                    );
                }
            }
        }
    }

    const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";

    fn pod_eni(info: &InstanceTypeInfo, limits: &Limits) -> Option<String> {
        let shape = node_shape(&facts(info, limits).unwrap(), &NodeSettings::default(), None);
        let resources = shape.capacity.resources().without_zeroes();
        resources.iter().find(|(key, _)| key.to_string() == POD_ENI).map(|(_, value)| value.to_string())
    }

    impl Correction {
        /// The fields of the row.
        fn fields(&self) -> Vec<&'static str> {
            let fields = [
                ("sustainedClockSpeedInGhz", self.sustained_clock_speed_in_ghz.is_some()),
                ("networkCards", self.network_cards.is_some()),
                ("trunking", self.trunking.is_some()),
                ("bandwidthMbps", self.bandwidth_mbps.is_some()),
            ];
            fields.into_iter().filter(|(_, there)| *there).map(|(field, _)| field).collect()
        }

        /// The row without one of its values.
        fn without(&self, field: &str) -> Self {
            let mut row = self.clone();
            match field {
                "sustainedClockSpeedInGhz" => row.sustained_clock_speed_in_ghz = None,
                "networkCards" => row.network_cards = None,
                "trunking" => row.trunking = None,
                "bandwidthMbps" => row.bandwidth_mbps = None,
                other => unreachable!("{other}"),
            }
            row
        }
    }

    #[test]
    fn only_what_is_there_is_corrected() {
        let rows: Vec<Correction> = serde_json::from_str(
            r#"[{"types": ["m5.large"], "sustainedClockSpeedInGhz": 2.0, "networkCards": "one", "trunking": false,
                 "bandwidthMbps": 1}]"#,
        )
        .unwrap();
        let bare = InstanceTypeInfo { instance_type: Some("m5.large".to_owned()), ..Default::default() };
        let (mut types, mut limits) = (vec![bare.clone()], Limits::default());
        correct(&rows, &mut types, &mut limits);
        assert_eq!((types, limits), (vec![bare], Limits::default()));
    }
}
