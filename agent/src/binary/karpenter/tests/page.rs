//! A whole scrape: the names in it, slow readers, and large clusters.

use super::super::objects::ObjectEnd;
use super::*;
use crate::binary::metrics::{Metrics, StepLabels};
use crate::converge::EvictionAnswer;

/// Names and types of the metrics of a scrape, as Prometheus stores them.
fn names(text: &str) -> BTreeMap<String, String> {
    let head = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let total = if kind == "counter" { "_total" } else { "" };
        Some((format!("{name}{total}"), kind.to_owned()))
    };
    text.lines().filter_map(head).collect()
}

/// A scrape with a sample of each counter: without one, not even its name is there.
fn of_each() -> KarpenterMetrics {
    let metrics = seen(look(vec![], vec![]));
    converge(&metrics, &[], &BTreeMap::new());
    converge(&metrics, &[with(claim("default-aaaaa"), terminated(RemovalReason::Empty))], &BTreeMap::new());
    let (pool, zone) = ("default".to_owned(), "us-east-1a".to_owned());
    let node =
        ObjectEnd::Node { pool: pool.clone(), zone, termination_seconds: 1.0, lifetime_seconds: Some(2.0) };
    metrics.counted.count_end(&node, at(0));
    metrics.counted.count_end(&ObjectEnd::NodeClaim { pool: pool.clone(), termination_seconds: 1.0 }, at(0));
    metrics.counted.count_drained_node(pool);
    metrics.counted.count_eviction(EvictionAnswer::Evicted, String::new);
    metrics
}

#[test]
fn the_page_lists_them_all_by_name_and_type() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let (name, kind) = (cells.next()?.trim().trim_matches('`'), cells.next()?.trim());
        let types = ["counter", "gauge", "histogram", "summary"];
        types.contains(&kind).then(|| (name.to_owned(), kind.to_owned()))
    };
    let mut scraped = names(&text(&of_each(), 200));
    let (own, mut own_text) = (Metrics::default(), String::new());
    own.steps.get_or_create(&StepLabels { outcome: "ended" }).inc();
    own.write(&mut own_text, at(0)).unwrap();
    scraped.extend(names(&own_text));
    let listed: BTreeMap<String, String> = page.lines().filter_map(row).collect();
    assert_eq!(listed, scraped);
}

/// A writer that finds out whether the main loop would have to wait for it.
struct Unlocked<'a>(&'a KarpenterMetrics);

impl fmt::Write for Unlocked<'_> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        let free = self.0.seen.try_lock().is_ok() && self.0.uses.try_lock().is_ok();
        if free { Ok(()) } else { Err(fmt::Error) }
    }
}

#[test]
fn nobody_waits_for_a_slow_reader() {
    let pods = vec![pod("web-1", Some("a"), "Running", &json!({}))];
    let metrics = seen(look(vec![node("a", None)], pods));
    assert_eq!(metrics.write_cluster(&mut Unlocked(&metrics), at(200)), Ok(()));
}

/// 20,000 pods of 1,000 Deployments on 1,000 Nodes.
fn large() -> ClusterLook {
    let nodes = (0..1_000).map(|index| node(&format!("n-{index:04}"), None)).collect();
    let made = |index: usize| {
        let patch = json!({"metadata": {"labels": {"app": format!("app-{}", index / 20)}}});
        let mut patched = conditions(Some(105), Some(110));
        merge(&mut patched, &patch);
        pod(&format!("p-{index:05}"), Some(&format!("n-{:04}", index % 1_000)), "Running", &patched)
    };
    look(nodes, (0..20_000).map(made).collect())
}

/// A writer that keeps nothing, as a reader that is fast.
#[derive(Default)]
struct Counting {
    bytes: usize,
    lines: usize,
}

impl fmt::Write for Counting {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes += text.len();
        self.lines += text.matches('\n').count();
        Ok(())
    }
}

#[test]
fn a_large_cluster_is_scraped_soon_and_an_unchanged_look_costs_little() {
    let metrics = seen(large());
    let seen_before = metrics.seen().sight.last().cloned().unwrap();
    let mut took = Vec::new();
    for _ in 0..2 {
        let (mut writer, began) = (Counting::default(), std::time::Instant::now());
        metrics.write_cluster(&mut writer, at(200)).unwrap();
        took.push((began.elapsed(), writer.bytes, writer.lines));
    }
    let began = std::time::Instant::now();
    metrics.observe_look((*seen_before).clone(), at(202));
    println!("the first scrape and the next: {took:?}; a look: {:?}", began.elapsed());
    let (first, second) = (took[0], took[1]);
    assert_eq!((first.1, first.2), (second.1, second.2));
    assert!((34_000..35_000).contains(&first.2), "{} lines", first.2);
    // Generous: unoptimised, and beside other tests.
    assert!(second.0.as_secs() < 5, "{:?}", second.0);
}
