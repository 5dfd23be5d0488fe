//! A function's memory with snapshots of the largest size, with any content.
//!
//! Each content is read twice in a process of its own: as another cluster's, which stays in the caches, and as the
//! current cluster's. The result is the peak of the process's resident memory. Contents are a quarter of the largest,
//! and the peak is multiplied by four.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

use std::fs;
use std::process::Command;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable, Throughput};
use tenon_snapshot::snapshot::{
    CLASSES_SIZE_MOST, Chunk, ChunkCaches, ChunkKind, Manifest, SNAPSHOT_SIZE_MOST, chunk_key, manifest_key,
    read, read_classes,
};
use tenon_table::{Commit, CommitToken, Consistency, Item, Key, Table, Write};

/// Memory of the functions that read whole snapshots, and of the one that reads classes, at least: template.yaml.
const PLANNERS: &str = "ProvisionerFunction LifecycleFunction DisruptionFunction";
const CLASSES: &str = "NodeClassesFunction";
/// A function's memory without snapshots: the process, its clients and catalogue, and the packed items of one call.
const BESIDE: u64 = 96 * MIB;
const MIB: u64 = 1024 * 1024;
/// Contents are so small a part of the largest.
const PART: u64 = 4;

/// The count of a value besides its text, and of a chunk.
const OF_A_VALUE: u64 = 96;

const CASES: [&str; 8] =
    ["nodes", "zeros", "objects", "no-shape", "rows", "own-labels", "labels", "nonsense"];

/// A text with as many of the element as go into a size.
fn filled(before: &str, element: impl Fn(u64) -> String, after: &str, size: u64) -> String {
    let (mut text, mut left, mut n) = (before.to_owned(), size, 0);
    loop {
        let next = element(n);
        let values = next.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() as u64;
        let takes = next.len() as u64 + OF_A_VALUE * (values + 1) + 1;
        if takes > left {
            break;
        }
        text.push_str(if n == 0 { "" } else { "," });
        text.push_str(&next);
        (left, n) = (left - takes, n + 1);
    }
    text + after
}

fn node(n: u64) -> String {
    let labels: serde_json::Map<String, Value> =
        (0..25).map(|label| (format!("karpenter.k8s.aws/instance-{label}"), json!("value"))).collect();
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("ip-10-0-0-{n}.ec2.internal"), "uid": format!("uid-{n}"), "labels": labels},
        "spec": {"providerID": format!("aws:///us-east-1a/i-{n:017x}")},
        "status": {"capacity": {"cpu": "8", "memory": "32132280Ki", "pods": "58"},
            "allocatable": {"cpu": "7910m", "memory": "31115448Ki", "pods": "58"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
    .to_string()
}

fn shape(labels: usize) -> String {
    let labels: serde_json::Map<String, Value> = (0..labels).map(|n| (format!("l{n}"), json!("v"))).collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "shape", "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}});
    format!("{{\"shapes\":{{\"s\":{pod}}},\"v\":1}}")
}

/// The chunks of a case, of about so large a size.
fn contents(case: &str, size: u64) -> Vec<(ChunkKind, String)> {
    let items = |kind, element: &dyn Fn(u64) -> String| {
        vec![(kind, filled("{\"items\":[", element, "],\"v\":1}", size))]
    };
    let rows = |element: &dyn Fn(u64) -> String, size| {
        (ChunkKind::Pods, filled("{\"groups\":{\"s\":[", element, "]},\"v\":1}", size))
    };
    match case {
        "nodes" => items(ChunkKind::Nodes, &node),
        "zeros" => items(ChunkKind::Nodes, &|_| "0".to_owned()),
        "objects" => items(ChunkKind::Nodes, &|_| "{}".to_owned()),
        "no-shape" => vec![rows(&|_| "[]".to_owned(), size)],
        "rows" => vec![
            (ChunkKind::Shapes, shape(1)),
            rows(&|n| format!("[\"w{n}\",\"w{n}\",0,\"n\"]"), size - MIB / 16),
        ],
        // The shape counts for each row.
        "own-labels" => vec![
            (ChunkKind::Shapes, shape(1000)),
            rows(&|n| format!("[\"w{n}\",\"w{n}\",0,\"n\",\"\",\"\",0,0,{{\"a\":\"b\"}}]"), size / 100),
        ],
        "labels" => {
            let labels = filled("{", |n| format!("\"l{n}\":\"v\""), "}", size - 4096);
            let node = format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"n\",\"labels\":{labels}}}}}"
            );
            vec![(ChunkKind::Nodes, format!("{{\"items\":[{node}],\"v\":1}}"))]
        }
        "nonsense" => {
            let taints = filled("[", |_| "0".to_owned(), "]", size - 4096);
            let node = format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"n\"}},\"spec\":{{\"taints\":{taints}}}}}"
            );
            vec![(ChunkKind::Nodes, format!("{{\"items\":[{node}],\"v\":1}}"))]
        }
        "classes" => items(ChunkKind::NodeClasses, &|n| {
            json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": format!("c{n}")},
                "spec": {"role": "nodes", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}})
            .to_string()
        }),
        "class-zeros" => items(ChunkKind::NodeClasses, &|_| "0".to_owned()),
        other => panic!("no case `{other}`"),
    }
}

fn table() -> MemoryTable {
    let zero = SignedDuration::ZERO;
    let config =
        MemoryConfig { seed: 0, staleness_max: zero, ttl_delay_max: zero, throughput: Throughput::Off };
    MemoryTable::new(config, Arc::new(|| Timestamp::UNIX_EPOCH))
}

fn put(table: &MemoryTable, key: Key, item: Item) {
    let token = CommitToken::of_texts([key.to_string().as_str()]);
    let commit = Commit { token, conditions: Vec::new(), writes: vec![Write::Put { key, item }] };
    block_on(table.commit(&commit)).unwrap();
}

fn report(table: &MemoryTable, cluster: &ClusterName, contents: Vec<(ChunkKind, String)>) {
    let chunks = contents.into_iter().map(|(kind, content)| {
        let chunk = Chunk::pack(kind, 0, &content);
        put(table, chunk_key(cluster, &chunk.name), chunk.to_item());
        chunk.name
    });
    let manifest = Manifest {
        revision: 1,
        generation: 1,
        taken_at: Timestamp::UNIX_EPOCH,
        restored_at: None,
        kubernetes_version: None,
        pending_pods: 0,
        buckets: std::collections::BTreeMap::new(),
        chunks: chunks.collect(),
        index: None,
    };
    put(table, manifest_key(cluster), manifest.to_item().unwrap());
}

/// A field of this process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Reads the requested case, and prints its peak.
#[test]
#[ignore = "the other tests run it, each case in a process of its own"]
fn reader() {
    let case = std::env::var("TENON_CASE").unwrap();
    let classes = case.starts_with("class");
    let most = if classes { CLASSES_SIZE_MOST } else { SNAPSHOT_SIZE_MOST };
    let (table, size) = (table(), most / PART - 64 * 1024);
    let clusters = ["other", "prod"].map(|name| ClusterName::parse(name).unwrap());
    for cluster in &clusters {
        report(&table, cluster, contents(&case, size));
    }
    let caches = if classes { ChunkCaches::of_classes() } else { ChunkCaches::default() };
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    for cluster in &clusters {
        let mut cache = caches.take(cluster);
        let snapshot = if classes {
            block_on(read_classes(&table, cluster, Consistency::Strong, &mut cache))
        } else {
            block_on(read(&table, cluster, Consistency::Strong, &mut cache))
        };
        caches.put(cluster, cache);
        let snapshot = snapshot.unwrap().unwrap();
        let found = snapshot.pods.len() + snapshot.nodes.len() + snapshot.node_classes.len();
        assert!(found + snapshot.unreadable.len() > 0);
        if case == "rows" || case == "own-labels" {
            assert!(!snapshot.pods.is_empty(), "{:?}", snapshot.unreadable.first());
        }
    }
    println!("TOOK {}", status("VmHWM").saturating_sub(before));
}

/// The peak of a case, in bytes for each byte of the largest size.
fn factor(case: &str) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "reader", "--ignored", "--nocapture"])
        .env("TENON_CASE", case)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let took = text.lines().find_map(|line| line.split("TOOK ").nth(1)?.trim().parse::<u64>().ok());
    let took = took.unwrap_or_else(|| panic!("{case}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    let most = if case.starts_with("class") { CLASSES_SIZE_MOST } else { SNAPSHOT_SIZE_MOST };
    let factor = (took * PART) as f64 / most as f64;
    println!("{case}: {factor:.2} times its size, with another cluster's kept");
    factor
}

/// The least memory of these functions, in template.yaml.
fn memory_of(functions: &str) -> u64 {
    let template = include_str!("../../../template.yaml");
    let of = |function: &str| {
        let (_, after) = template.split_once(&format!("\n  {function}:\n")).unwrap();
        let line = after.lines().find_map(|line| line.trim().strip_prefix("MemorySize: ")).unwrap();
        line.parse::<u64>().unwrap() * MIB
    };
    functions.split(' ').map(of).min().unwrap()
}

#[test]
fn the_largest_snapshot_fits_into_the_memory_of_each_function_whatever_is_in_it() {
    let room = (memory_of(PLANNERS) - BESIDE) as f64 / SNAPSHOT_SIZE_MOST as f64;
    for case in CASES {
        assert!(factor(case) <= room, "`{case}` takes more than {room:.2} times its size");
    }
}

#[test]
fn the_largest_classes_fit_into_the_memory_of_their_function() {
    let room = (memory_of(CLASSES) - BESIDE) as f64 / CLASSES_SIZE_MOST as f64;
    for case in ["classes", "class-zeros"] {
        assert!(factor(case) <= room, "`{case}` takes more than {room:.2} times its size");
    }
}
