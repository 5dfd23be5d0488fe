//! A region of all instance types with one cluster, whose Deployments are scaled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_region::asked::AskedCall;
use tenon_region::clock::RegionClock;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{CallFate, CallMoment, CallSite, Hooks};
use tenon_region::happening::Listeners;
use tenon_region::scenario::{self, ClusterForm, ImageForm, Scenario, build};

const CLUSTER: &str = "busy";
/// The catalogue arrives and the class resolves.
const CALM: SignedDuration = SignedDuration::from_mins(3);

/// Records launches, their answers and other calls that change something in EC2, delays CreateFleet's answers, and
/// throttles every second call of the table on request.
#[derive(Default)]
pub(crate) struct Listener {
    clock: Mutex<Option<RegionClock>>,
    pub(crate) throttles: AtomicBool,
    calls: AtomicU64,
    pub(crate) fleet_takes: Mutex<SignedDuration>,
    pub(crate) fleets: Mutex<Vec<Timestamp>>,
    pub(crate) answers: Mutex<Vec<Timestamp>>,
    pub(crate) mutating: Mutex<Vec<Timestamp>>,
}

impl Listener {
    fn now(&self) -> Timestamp {
        self.clock.lock().unwrap().as_ref().unwrap().now()
    }
}

impl Hooks for Listener {
    fn call(&self, site: CallSite) -> CallFate {
        let is_read_or_write = site.call.starts_with("table.") && site.moment == CallMoment::Before;
        if is_read_or_write && self.throttles.load(Ordering::Relaxed) {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            // Half of the calls, in no order that a function's calls could share.
            let drawn = (call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 2;
            return if drawn == 0 { CallFate::Fail } else { CallFate::Go };
        }
        if site.call == "ec2.create_fleet" && site.moment == CallMoment::After {
            let takes = *self.fleet_takes.lock().unwrap();
            self.answers.lock().unwrap().push(self.now() + takes);
            return CallFate::Delay(takes);
        }
        CallFate::Go
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        vec![SignedDuration::ZERO]
    }

    fn hear(&self, _: &'static str, asked: AskedCall<'_>) {
        if let AskedCall::CreateFleet(_) = asked {
            self.fleets.lock().unwrap().push(self.now());
        }
        if let AskedCall::CreateFleet(_)
        | AskedCall::CreateLaunchTemplate(_)
        | AskedCall::CreateTags(..)
        | AskedCall::TerminateInstances(_) = asked
        {
            self.mutating.lock().unwrap().push(self.now());
        }
    }
}

pub(crate) struct BusyRegion {
    pub(crate) region: SimulatedRegion,
    pub(crate) listener: Arc<Listener>,
    pub(crate) cluster: ClusterName,
}

impl BusyRegion {
    /// A region of all types, whose cluster has these Deployments.
    pub(crate) fn new(capacity_type: &str, deployments: Vec<Value>) -> Self {
        let listener = Arc::<Listener>::default();
        let hooks: Arc<dyn Hooks> = Arc::<Listener>::clone(&listener);
        let options = scenario::SetupOptions { hooks, ..scenario::SetupOptions::default() };
        let mut region = build(&world(capacity_type, deployments), &options).unwrap();
        region.set_listeners(Listeners::None);
        *listener.clock.lock().unwrap() = Some(region.clock().clone());
        let mut busy = Self { region, listener, cluster: ClusterName::parse(CLUSTER).unwrap() };
        busy.pass(CALM);
        busy
    }

    pub(crate) fn pass(&mut self, time: SignedDuration) {
        let until = self.region.now() + time;
        self.region.run_until(until);
        self.region.take_happenings();
    }

    pub(crate) fn scale(&self, deployment: &str, replicas: i64) {
        let site = self.region.site(&self.cluster).unwrap();
        site.cluster().scale(deployment, |_| replicas).unwrap();
    }
}

fn world(capacity_type: &str, deployments: Vec<Value>) -> Scenario {
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"tags": {"team": "platform"}}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "role": format!("{CLUSTER}-node"),
        },
    });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                ],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidateAfter": "Never"},
        },
    });
    let objects = [vec![class, pool], deployments].concat();
    let image = ImageForm::tagged("node", ("team", "platform"));
    Scenario {
        title: "A burst".to_owned(),
        region: "us-east-1".to_owned(),
        seed: 1,
        types: Vec::new(),
        zones: Vec::new(),
        clusters: vec![ClusterForm { name: CLUSTER.to_owned(), objects, ..ClusterForm::default() }],
        images: vec![image],
        steps: Vec::new(),
    }
}

pub(crate) fn deployment(name: &str, requests: &Value, selector: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": selector,
                    "containers": [{"name": "main", "resources": {"requests": requests}}],
                },
            },
        },
    })
}
