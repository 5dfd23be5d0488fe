//! Ten clusters of one region, one of which sends messages without end, each of which takes long, or whose wakes all fail.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_domain::tags;
use tenon_domain::wake::FunctionName;
use tenon_region::asked::AskedCall;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{CallFate, CallMoment, CallSite, Hooks};
use tenon_region::scenario::{ClusterForm, Scenario, SetupOptions, build};
use tenon_runtime::BusEvent;

#[expect(dead_code, reason = "this test has ten clusters")]
mod one_pool;

const LOUD: &str = "loud";
const QUIET: usize = 9;
/// The catalogue arrives and the classes resolve.
const CALM: SignedDuration = SignedDuration::from_mins(3);
/// Messages of the loud cluster in a second; a quiet one sends a hundredth of that.
const A_SECOND: usize = 30;

/// What becomes of requests about the loud cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loud {
    Silent,
    /// Each takes five seconds.
    Slow,
    /// Each takes five seconds, and functions send them: with a message group, which SQS knows.
    Woken,
    Failing,
}

/// Whom each task asked about last, and the fate of its calls.
struct Crowd {
    loud: Mutex<Loud>,
    about: Mutex<BTreeMap<&'static str, bool>>,
}

impl Hooks for Crowd {
    fn call(&self, site: CallSite) -> CallFate {
        let asks = site.call.starts_with("table.") && site.moment == CallMoment::Before;
        if !asks || site.task == "agent" {
            return CallFate::Go;
        }
        let about_loud = self.about.lock().unwrap().get(site.task) == Some(&true);
        match (about_loud, *self.loud.lock().unwrap()) {
            (true, Loud::Slow | Loud::Woken) => CallFate::Delay(SignedDuration::from_secs(5)),
            (true, Loud::Failing) => CallFate::Fail,
            (true, Loud::Silent) | (false, _) => CallFate::Delay(SignedDuration::from_millis(5)),
        }
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        vec![SignedDuration::ZERO]
    }

    fn hear(&self, task: &'static str, asked: AskedCall<'_>) {
        let about = match asked {
            AskedCall::Get(key) => key.pk.clone(),
            AskedCall::BatchGet(keys) => keys.iter().map(|key| key.pk.as_str()).collect::<Vec<_>>().join(" "),
            AskedCall::Query(query) => query.pk.clone(),
            AskedCall::Commit(commit) => {
                commit.writes.iter().map(|write| write.key().pk.as_str()).collect::<Vec<_>>().join(" ")
            }
            AskedCall::CreateFleet(_)
            | AskedCall::DryRunFleet(_)
            | AskedCall::DryRunInstances(_)
            | AskedCall::AssumeRole(_)
            | AskedCall::CreateLaunchTemplate(_)
            | AskedCall::TerminateInstances(_)
            | AskedCall::CreateTags(..)
            | AskedCall::GetParameters(_)
            | AskedCall::GetInstanceProfile(_)
            | AskedCall::Other(_)
            | AskedCall::Ring(_) => return,
        };
        self.about.lock().unwrap().insert(task, about.contains(LOUD));
    }
}

fn quiet(number: usize) -> ClusterName {
    ClusterName::parse(format!("quiet-{number}")).unwrap()
}

fn world() -> Scenario {
    let names = (0..QUIET).map(|number| quiet(number).to_string()).chain([LOUD.to_owned()]);
    let cluster = |name: String| ClusterForm {
        objects: one_pool::objects(&name, "on-demand", &json!({}), &one_pool::never("10%")),
        name,
        ..ClusterForm::default()
    };
    one_pool::scenario("Ten clusters", &one_pool::LARGE, names.map(cluster).collect())
}

/// When the first instance of each cluster was launched.
fn launched(region: &SimulatedRegion, found: &mut BTreeMap<String, Timestamp>) {
    for record in region.twin().instances() {
        let cluster = record.instance.tags.get(tags::CLUSTER).cloned().unwrap_or_default();
        found.entry(cluster).or_insert_with(|| region.now());
    }
}

/// The longest time from a pod of a quiet cluster to its instance, while the loud one is so.
fn longest(loud: Loud) -> SignedDuration {
    let crowd = Arc::new(Crowd { loud: Mutex::new(Loud::Silent), about: Mutex::default() });
    let hooks: Arc<dyn Hooks> = Arc::<Crowd>::clone(&crowd);
    let mut region = build(&world(), &SetupOptions { hooks, ..SetupOptions::default() }).unwrap();
    one_pool::pass(&mut region, CALM);
    *crowd.loud.lock().unwrap() = loud;
    let bell = BusEvent {
        source: format!("tenon.agent.{LOUD}"),
        detail_type: "Snapshot Changed".to_owned(),
        detail: json!({"v": 1, "cluster": LOUD, "generation": 3, "changed": ["pods", "nodes"], "pending_pods": 2,
            "deletions": 0, "freed": 0}),
    };
    let name = ClusterName::parse(LOUD).unwrap();
    let wake = json!({"source": "tenon", "detail-type": "Wake", "detail": {"installation": "tenon", "cluster": LOUD}});
    let wake = wake.to_string();
    let (mut pods, mut instances) = (BTreeMap::new(), BTreeMap::new());
    for second in 0..QUIET * 20 + 120 {
        for _ in 0..A_SECOND {
            match loud {
                Loud::Silent => {}
                Loud::Slow | Loud::Failing => region.publish(&bell),
                Loud::Woken => region.send_for(&name, FunctionName::Provisioner, wake.clone()),
            }
        }
        let number = second / 20;
        if second % 20 == 0 && number < QUIET {
            let spec = json!({"containers": [{"name": "web", "resources": {"requests": {"cpu": "1500m"}}}]});
            let site = region.site(&quiet(number)).unwrap();
            site.cluster().apply(one_pool::deployment("web", 1, spec)).unwrap();
            pods.insert(quiet(number).to_string(), region.now());
        }
        one_pool::pass(&mut region, SignedDuration::from_secs(1));
        launched(&region, &mut instances);
    }
    let waited = pods.iter().map(|(cluster, at)| {
        let launched = instances.get(cluster).copied().unwrap_or(Timestamp::MAX);
        launched.duration_since(*at)
    });
    waited.max().unwrap()
}

#[test]
fn a_cluster_that_is_loud_and_slow_delays_no_other_by_a_minute() {
    let alone = longest(Loud::Silent);
    for loud in [Loud::Slow, Loud::Woken, Loud::Failing] {
        let beside = longest(loud);
        assert!(beside <= alone + SignedDuration::from_mins(1), "{loud:?}: {beside} instead of {alone}");
    }
}
