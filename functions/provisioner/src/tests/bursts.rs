//! Bursts of thousands of pods: what their commit takes of a partition key, of which DynamoDB lets 1,000 write units
//! through in a second.

use std::collections::BTreeMap;

use serde_json::json;
use tenon_domain::digest::Digest;
use tenon_harness::mixed::{MixedKind, mixed_kinds};
use tenon_state::commit::cut;
use tenon_table::items::LaunchedPods;
use tenon_table::limits::WRITE_UNITS_A_SECOND;

use super::*;

/// Families and sizes of a usual catalogue.
fn types() -> Vec<String> {
    let sizes = ["large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge"];
    let families = ["m5", "c5", "r5", "m6i", "c6i", "r6i"];
    let names = families.iter().flat_map(|family| sizes.iter().map(move |size| format!("{family}.{size}")));
    // There are no such sizes.
    names.filter(|name| !["c5.8xlarge", "c5.16xlarge"].contains(&name.as_str())).collect()
}

/// The n-th pod, of one of these kinds, named as a ReplicaSet does.
fn mixed(n: usize, kinds: &[MixedKind]) -> Arc<SeenPod> {
    let kind = n % kinds.len();
    let MixedKind { requests, selector } = &kinds[kind];
    let hex = Digest::of_texts([n.to_string().as_str()]).hex();
    let name = format!("checkout-{kind}-6d4cf56db6-{}", &hex[..5]);
    let mut made = pod(&name, "1", None);
    let uid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-");
    made["metadata"]["name"] = json!(format!("{name}{n}"));
    made["metadata"]["uid"] = json!(uid);
    made["metadata"]["labels"] = json!({"app": format!("checkout-{kind}")});
    made["spec"]["nodeSelector"] = selector.clone();
    made["spec"]["containers"][0]["resources"]["requests"] = requests.clone();
    Arc::new(SeenPod::read(&made).unwrap())
}

/// Commits the plan for so many pods: the names of the pods, and the write units by partition key.
fn committed(pods: usize) -> (usize, BTreeMap<String, u64>) {
    let types = types();
    let config = WorldConfig { types: types.clone(), ..WorldConfig::default() };
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    let mut cluster = Cluster::new(FunctionWorld::new(&config).unwrap(), &types).unwrap();
    cluster.objects.node_pools = vec![Arc::new(pool(&[&["karpenter.sh/capacity-type", "on-demand"]]))];
    let kinds = mixed_kinds();
    cluster.objects.pods = (0..pods).map(|n| mixed(n, &kinds)).collect();
    cluster.report().unwrap();
    let observed = block_on(observe(&cluster.world, &cluster.name, WANTS, &Caches::default())).unwrap();
    let (planned, _) = plan::plan(&cluster.name, &cluster.world.installation.region, &observed);
    let table = &cluster.world.table;
    table.reset_meter();
    for slice in cut(&cluster.name, observed.view.generations.revision, planned.groups).unwrap().commits() {
        block_on(table.commit(slice)).unwrap();
    }
    let names = table.dump().filter(|(key, _)| key.pk == keys::launched_pods_pk(&cluster.name));
    let launched = names.map(|(key, item)| from_item::<LaunchedPods>(&key, &item).unwrap());
    let named = launched.flat_map(|launched| launched.claims).map(|claim| claim.pods.len()).sum();
    (named, table.written_by_key())
}

#[test]
fn a_burst_is_committed_within_what_a_partition_key_takes_in_three_seconds() {
    let check = |pods: usize, at_most: u64| {
        let (named, written) = committed(pods);
        assert_eq!(named, pods, "every pod's name is kept");
        let (busiest, units) = written.iter().max_by_key(|(_, units)| **units).unwrap();
        assert!(*units <= at_most, "{pods} pods take {units} write units of `{busiest}`");
    };
    check(2_000, WRITE_UNITS_A_SECOND / 2);
    check(5_000, WRITE_UNITS_A_SECOND);
    check(20_000, WRITE_UNITS_A_SECOND * 3);
}
