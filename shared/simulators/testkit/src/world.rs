//! The world of a seed: a small region, one cluster or two, pools with budgets, one of them perhaps with a taint, and
//! workloads that fit. Also what all worlds are made from.

use std::sync::Arc;

use serde_json::{Value, json};
use tenon_domain::labels::{IMAGE_POLICY, REBALANCE};
use tenon_region::engine::SimulatedRegion;
use tenon_region::happening::Listeners;
use tenon_region::scenario::{ClusterForm, ImageForm, Scenario, SetupOptions, build};

use crate::chaos::{Chaos, Weather};
use crate::deregistered::{DEREGISTRATION, TIMES};
use crate::expiry::expire;
use crate::pipeline::{APPROVED, STAGE};
use crate::random::Dice;
use crate::simulate::SimulationOptions;

/// The cluster's name.
pub(crate) const CLUSTER: &str = "sim";

/// The second cluster's, if there is one.
pub(crate) const SECOND: &str = "second";

/// The taint of the pool that keeps others' pods out.
const DEDICATED: &str = "dedicated";

/// Types of the small region: sizes and families enough for choices, few enough to be quick.
pub(crate) const TYPES: [&str; 12] = [
    "c5.large",
    "c5.xlarge",
    "c6i.large",
    "c6i.2xlarge",
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
    "m6i.large",
    "m6i.xlarge",
    "m7i.large",
    "r5.large",
    "r6i.xlarge",
];

/// Its zones.
pub(crate) const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

/// A Deployment of the world.
pub(crate) const DEPLOYMENTS: [&str; 3] = ["web", "api", "worker"];

/// A world with its hooks, in calm weather: it can read its catalogue and resolve its classes before faults begin.
pub(crate) fn calm(world: &Scenario, options: SimulationOptions) -> Option<(SimulatedRegion, Arc<Chaos>)> {
    let chaos = Chaos::new(options.seed, options.sabotage);
    chaos.set_weather(Weather::Calm);
    let chaos = Arc::new(chaos);
    let setup = SetupOptions { hooks: Arc::<Chaos>::clone(&chaos), ..SetupOptions::default() };
    let mut region = build(world, &setup).ok()?;
    region.set_listeners(Listeners::None);
    Some((region, chaos))
}

/// The small region with these clusters.
pub(crate) fn small_region(title: String, seed: u64, clusters: Vec<ClusterForm>) -> Scenario {
    Scenario {
        title,
        region: "us-east-1".to_owned(),
        seed,
        types: TYPES.map(str::to_owned).to_vec(),
        zones: ZONES.map(str::to_owned).to_vec(),
        clusters,
        images: vec![image("node-0")],
        steps: Vec::new(),
    }
}

/// A cluster with these objects.
pub(crate) fn cluster(name: &str, objects: Vec<Value>) -> ClusterForm {
    ClusterForm { name: name.to_owned(), objects, ..ClusterForm::default() }
}

/// The NodePool `default` of these capacity types.
pub(crate) fn plain_pool(capacity_types: &[&str], disruption: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity_types},
                ],
                "expireAfter": "Never",
            }},
            "disruption": disruption,
        },
    })
}

/// The world of a seed.
pub(crate) fn scenario(seed: u64) -> Scenario {
    let mut dice = Dice::new(seed, 2);
    let mut class = node_class(CLUSTER);
    if Dice::new(seed, 11).permille(500) {
        let policy = json!({"requiredTags": {STAGE: APPROVED}}).to_string();
        set(&mut class, &["metadata", "annotations", IMAGE_POLICY], json!(policy));
    }
    let mut objects = vec![class, pool("default", &mut dice)];
    if dice.permille(300) {
        objects.push(pool("second", &mut dice));
    }
    for name in DEPLOYMENTS {
        objects.push(deployment(name, &mut dice));
        if dice.permille(500) {
            objects.push(budget(name, &mut dice));
        }
    }
    if dice.permille(500) {
        objects.push(daemon_set("logs", &json!([{"operator": "Exists"}])));
    }
    let mut orders = Dice::new(seed, 16);
    if orders.permille(500) {
        let order = orders.pick(&["ReplaceFirst", "Drain"]).copied().unwrap_or("Drain");
        for pool in objects.iter_mut().filter(|object| object["kind"] == "NodePool") {
            set(pool, &["metadata", "annotations", REBALANCE], json!(order));
        }
    }
    let mut balancers = Dice::new(seed, 23);
    for pool in objects.iter_mut().filter(|object| object["kind"] == "NodePool") {
        if balancers.permille(300)
            && let Some((time, _)) = balancers.pick(&TIMES)
        {
            set(pool, &["metadata", "annotations", DEREGISTRATION], json!(time));
        }
    }
    // Their own dice, so that further draws change nothing else of a world.
    let mut dice = Dice::new(seed, 8);
    if dice.permille(500) {
        dedicate(&mut objects, &mut dice);
    }
    let mut volumes = Dice::new(seed, 15);
    if volumes.permille(700)
        && let Some(zone) = volumes.pick(&ZONES)
    {
        objects.extend(zonal_volume(zone));
        objects.push(database(volumes.between(1, 60)));
    }
    // Its own dice, and so for all that follow: that it is on changes nothing else of a world.
    let zonal_shift = Dice::new(seed, 6).permille(500);
    let node_repair = Dice::new(seed, 13).permille(800);
    let mut ages = Dice::new(seed, 21);
    if ages.permille(250) {
        expire(&mut objects, &mut ages);
    }
    let mut budgets = Dice::new(seed, 19);
    let budgets = (budgets.permille(300), budgets.pick(&["1", "2", "30%"]).copied());
    let disruption_budget = budgets.1.filter(|_| budgets.0).map(str::to_owned);
    let form = cluster(CLUSTER, objects);
    let mut clusters = vec![ClusterForm { zonal_shift, node_repair, disruption_budget, ..form }];
    if dice.permille(150) {
        clusters.push(second(&mut dice));
    }
    small_region(format!("seed {seed}"), seed, clusters)
}

/// Adds a pool with a taint, which some of the Deployments tolerate, and perhaps a DaemonSet that doesn't.
fn dedicate(objects: &mut Vec<Value>, dice: &mut Dice) {
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        if dice.permille(500) {
            let tolerations = json!([{"key": DEDICATED, "operator": "Exists"}]);
            set(object, &["spec", "template", "spec", "tolerations"], tolerations);
        }
    }
    let mut tainted = pool(DEDICATED, dice);
    // Before the others, so that pods that tolerate it go there.
    set(&mut tainted, &["spec", "weight"], json!(100));
    let taints = json!([{"key": DEDICATED, "effect": "NoSchedule"}]);
    set(&mut tainted, &["spec", "template", "spec", "taints"], taints);
    objects.push(tainted);
    if dice.permille(500) {
        objects.push(daemon_set("metrics", &json!([])));
    }
}

/// Sets the field at a path, which is made where it isn't there.
pub(crate) fn set(object: &mut Value, path: &[&str], to: Value) {
    match (path.split_first(), object.as_object_mut()) {
        (Some((name, rest)), Some(fields)) => set(fields.entry(*name).or_insert_with(|| json!({})), rest, to),
        (None, _) => *object = to,
        (Some(_), None) => {}
    }
}

/// Another cluster of the region, which shares EC2's capacity.
fn second(dice: &mut Dice) -> ClusterForm {
    let mut objects = vec![node_class(SECOND), pool("default", dice)];
    objects.extend(DEPLOYMENTS.iter().take(2).map(|name| deployment(name, dice)));
    cluster(SECOND, objects)
}

/// An image that the class selects, and that its policy accepts if it has one.
pub(crate) fn image(name: &str) -> ImageForm {
    let mut image = ImageForm::tagged(name, ("team", "platform"));
    image.tags.insert(STAGE.to_owned(), APPROVED.to_owned());
    image
}

pub(crate) fn node_class(cluster: &str) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"tags": {"team": "platform"}}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": cluster}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": cluster}}],
            "role": format!("{cluster}-node"),
        },
    })
}

fn pool(name: &str, dice: &mut Dice) -> Value {
    let capacity_types: &[&[&str]] = &[&["on-demand"], &["spot", "on-demand"], &["spot"]];
    let capacity_types = dice.pick(capacity_types).copied().unwrap_or(&["on-demand"]);
    let budgets = [json!([{"nodes": "1"}]), json!([{"nodes": "2"}]), json!([{"nodes": "50%"}])];
    let budgets = dice.pick(&budgets).cloned().unwrap_or_default();
    let consolidate_after = dice.pick(&["Never", "0s", "30s", "5m"]).copied().unwrap_or("Never");
    let policies = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"];
    let policy = dice.pick(&policies).copied().unwrap_or("WhenEmpty");
    let disruption =
        json!({"consolidateAfter": consolidate_after, "consolidationPolicy": policy, "budgets": budgets});
    let mut pool = plain_pool(capacity_types, &disruption);
    set(&mut pool, &["metadata", "name"], json!(name));
    set(&mut pool, &["spec", "weight"], json!(dice.between(1, 100)));
    pool
}

pub(crate) fn deployment(name: &str, dice: &mut Dice) -> Value {
    let cpu = format!("{}m", dice.between(1, 16) * 100);
    let memory = format!("{}Mi", dice.between(1, 12) * 256);
    let mut spec = json!({
        "terminationGracePeriodSeconds": dice.between(1, 60),
        "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
    });
    if dice.permille(250)
        && let (Some(zone), Some(spec)) = (dice.pick(&ZONES), spec.as_object_mut())
    {
        spec.insert("nodeSelector".to_owned(), json!({"topology.kubernetes.io/zone": zone}));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": dice.between(0, 5),
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

/// The PersistentVolumeClaim `data`, and its PersistentVolume in a zone, which one node at a time can have.
#[must_use]
pub fn zonal_volume(zone: &str) -> [Value; 2] {
    let terms = json!([{"matchExpressions": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]);
    [
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"}}),
    ]
}

/// A Deployment of one replica with that volume.
fn database(grace: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
    "metadata": {"name": "database", "namespace": "default"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "database"}},
        "template": {"metadata": {"labels": {"app": "database"}}, "spec": {
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        }},
    }})
}

fn budget(name: &str, dice: &mut Dice) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"maxUnavailable": dice.between(1, 2), "selector": {"matchLabels": {"app": name}}},
    })
}

fn daemon_set(name: &str, tolerations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "tolerations": tolerations,
                    "containers": [{"name": name, "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}],
                },
            },
        },
    })
}
