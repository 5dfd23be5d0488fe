//! Snapshots that are larger than a function's memory, and caches that keep no more than it has room for.

use super::*;

/// Writes a report of these chunks, which no agent of ours would write.
fn forge(table: &MemoryTable, chunks: &[Chunk], names: Vec<ChunkRef>) {
    let manifest = Manifest {
        revision: 1,
        generation: 1,
        taken_at: at(0),
        restored_at: None,
        kubernetes_version: None,
        pending_pods: 0,
        buckets: std::collections::BTreeMap::new(),
        chunks: names,
        index: None,
    };
    let items = chunks.iter().map(|chunk| (chunk_key(&cluster(), &chunk.name), chunk.to_item()));
    for (key, item) in items.chain([(manifest_key(&cluster()), manifest.to_item().unwrap())]) {
        let token = CommitToken::of_texts([format!("{key} {item:?}").as_str()]);
        let commit = Commit { token, conditions: vec![], writes: vec![Write::Put { key, item }] };
        block_on(table.commit(&commit)).unwrap();
    }
}

fn refused(table: &MemoryTable, cache: &mut ChunkCache) -> SnapshotTooLarge {
    match block_on(read(table, &cluster(), Consistency::Strong, cache)) {
        Err(ReadError::TooLarge(too_large)) => too_large,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_snapshot_that_inflates_to_more_than_functions_have_memory_for_is_refused() {
    let table = quiet_table();
    let mut cache = ChunkCache::default();
    let bomb = Chunk::pack(ChunkKind::Nodes, 0, &" ".repeat(65 * 1024 * 1024));
    assert!(bomb.data.len() < 70_000);
    forge(&table, std::slice::from_ref(&bomb), vec![bomb.name.clone()]);
    assert_eq!(
        refused(&table, &mut cache).to_string(),
        "the snapshot is too large: at least 67108865 of 67108864 bytes, values counted"
    );
    // Many that are small enough each are no better.
    let chunks: Vec<Chunk> = (0..5)
        .map(|n| Chunk::pack(ChunkKind::Nodes, n, &format!("{{\"n\":{n}}}{}", " ".repeat(15 << 20))))
        .collect();
    forge(&table, &chunks, chunks.iter().map(|chunk| chunk.name.clone()).collect());
    assert_eq!(refused(&table, &mut cache).most, SNAPSHOT_SIZE_MOST);
    // Nor is one that is named a hundred times.
    let chunk = Chunk::pack(ChunkKind::Nodes, 0, &format!("{{}}{}", " ".repeat(1 << 20)));
    let named = (0..100).map(|bucket| ChunkRef { bucket, ..chunk.name.clone() }).collect();
    forge(&table, std::slice::from_ref(&chunk), named);
    assert_eq!(refused(&table, &mut cache).most, SNAPSHOT_SIZE_MOST);
    // A smaller report is read again.
    forge(&table, std::slice::from_ref(&chunk), vec![chunk.name.clone()]);
    assert!(block_on(read(&table, &cluster(), Consistency::Strong, &mut cache)).unwrap().is_some());
}

#[test]
fn a_shape_counts_for_each_pod_that_has_labels_of_its_own() {
    let table = quiet_table();
    let labels: serde_json::Map<String, Value> = (0..1000).map(|n| (format!("l{n}"), json!("v"))).collect();
    let shape = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "shape", "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "app"}]}});
    let shapes = Chunk::pack(ChunkKind::Shapes, 0, &json!({"v": 1, "shapes": {"s": shape}}).to_string());
    let row = |n: usize| json!([format!("web-{n}"), "", 0, "n", "Running", "", 0, 0, {"own": "label"}]);
    let rows: Vec<Value> = (0..2000).map(row).collect();
    let pods = Chunk::pack(ChunkKind::Pods, 0, &json!({"v": 1, "groups": {"s": rows}}).to_string());
    forge(&table, &[shapes.clone(), pods.clone()], vec![shapes.name, pods.name]);
    assert_eq!(refused(&table, &mut ChunkCache::default()).most, SNAPSHOT_SIZE_MOST);
}

#[test]
fn caches_keep_no_more_than_a_functions_memory_has_room_for() {
    let table = quiet_table();
    let chunk = Chunk::pack(ChunkKind::NodeClasses, 0, &format!("{{}}{}", " ".repeat(15 << 20)));
    forge(&table, std::slice::from_ref(&chunk), vec![chunk.name.clone()]);
    let caches = ChunkCaches::of_classes();
    let read_as = |name: &str| {
        let mut cache = ChunkCache::default();
        block_on(read_classes(&table, &cluster(), Consistency::Strong, &mut cache)).unwrap().unwrap();
        caches.put(&ClusterName::parse(name).unwrap(), cache);
    };
    let kept = |name: &str| {
        let name = ClusterName::parse(name).unwrap();
        let cache = caches.take(&name);
        let found = cache.manifest().is_some();
        caches.put(&name, cache);
        found
    };
    read_as("first");
    assert!(kept("first"));
    read_as("second");
    assert!(kept("second") && !kept("first"));
}
