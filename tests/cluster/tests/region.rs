//! The whole of Tenon with a real cluster: functions, table and EC2 of a region on this machine; API server,
//! scheduler, controllers and pods of Kubernetes itself; the agent under its own rights.
//!
//! Run by `tests/servers/control-plane -- cargo test --workspace --test region -- --ignored`.

#![expect(clippy::expect_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DynamicObject;
use serde_json::Value;
use tenon_cluster_tests::{CLASS, Live, Local, Moment};
use tenon_ec2::port::{Instance, TargetCapacityType};

/// Nodes boot at once; the limit for everything.
const SOON: Duration = Duration::from_secs(90);
/// A rollout goes node by node, with a launch and a drain each.
const ROLL: Duration = Duration::from_secs(300);
/// How soon a deleted Node accepts no more pods.
const TAINTED: Duration = Duration::from_secs(3);
/// Its drain begins: a report, a look of `lifecycle`, a ring.
const DRAINING: Duration = Duration::from_secs(15);
const REPLICAS: usize = 6;
/// Of which so many may be missing at a time.
const BUDGET: usize = 2;

/// The NodePool and the EC2NodeClass of Karpenter's getting-started page.
const GETTING_STARTED: &str = include_str!("../../manifests/getting-started.yaml");
/// The Deployment of the same page, and the number that it scales it to.
const INFLATE: &str = include_str!("../../manifests/inflate.yaml");
const INFLATED: usize = 5;

/// Small nodes, so that there are several.
const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata: {labels: {team: web}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m6i.large, c5.large]}
      taints: [{key: example.com/web, value: 'true', effect: NoSchedule}]
      startupTaints: []
  disruption: {consolidateAfter: Never, budgets: [{nodes: '1'}]}
";
const WEB: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: NAMESPACE}
spec:
  maxUnavailable: 2
  selector: {matchLabels: {app: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {team: web}
      tolerations: [{key: example.com/web, operator: Exists}]
      containers: [{name: web, image: web, resources: {requests: {cpu: 800m, memory: 1Gi}}}]
";

fn all_run(moment: &Moment) -> bool {
    moment.pods.len() == REPLICAS && moment.ready_pods().count() == REPLICAS
}

/// A cluster whose pods run on nodes launched for them.
fn serving(namespace: &str) -> Live {
    let mut live = Live::start(namespace);
    live.apply(CLASS);
    live.apply(POOL);
    live.apply(WEB);
    live.until("pods that waited run", SOON, |live| all_run(&live.look()));
    live
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether a Node's owner is its NodeClaim, which waits for it.
fn is_owned(node: &Node) -> bool {
    let claim = node.metadata.annotations.as_ref().and_then(|all| all.get("tenon.dev/nodeclaim"));
    let owners = node.metadata.owner_references.iter().flatten();
    let mut claims =
        owners.filter(|owner| owner.kind == "NodeClaim" && owner.block_owner_deletion == Some(true));
    claims.next().is_some_and(|owner| Some(&owner.name) == claim)
}

/// Instances whose Nodes have pods of the test.
fn with_pods(live: &Live, moment: &Moment) -> Vec<Instance> {
    let nodes: BTreeSet<&str> =
        moment.pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
    live.running().into_iter().filter(|one| nodes.contains(one.private_dns_name.as_str())).collect()
}

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn pending_pods_get_nodes_that_the_real_scheduler_fills() {
    let mut live = serving("nodes");
    live.until("claims are initialised and own their Nodes", SOON, |live| {
        let registered = |node: &Node| {
            label(node, "karpenter.sh/registered") == Some("true")
                && label(node, "karpenter.sh/initialized") == Some("true")
                && is_owned(node)
        };
        live.region.unsettled().0.is_empty() && live.look().nodes.iter().all(registered)
    });
    let moment = live.look();
    assert_eq!(moment.nodes.len(), live.running().len(), "one Node for each instance");
    assert!(
        moment.nodes.len() >= 3,
        "six pods of 800m need three nodes of two vCPUs: {:?}",
        moment.node_names()
    );
    for node in &moment.nodes {
        let spec = node.spec.as_ref().expect("a Node has a spec");
        let taints: Vec<_> = spec.taints.iter().flatten().map(|taint| taint.key.as_str()).collect();
        assert_eq!(taints, ["example.com/web"], "the taints of its birth are gone");
        assert_eq!(label(node, "karpenter.sh/nodepool"), Some("default"));
        assert_eq!(label(node, "karpenter.sh/capacity-type"), Some("spot"));
        assert_eq!(label(node, "team"), Some("web"));
        let ours = node.metadata.finalizers.iter().flatten().any(|one| one == "karpenter.sh/termination");
        assert!(ours, "{:?}", node.metadata.finalizers);
    }
}

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn an_interrupted_node_is_drained_within_the_budget_and_replaced() {
    let mut live = serving("interruption");
    let victim = with_pods(&live, &live.look()).into_iter().next().expect("a node has pods");
    assert_eq!(victim.capacity_type, TargetCapacityType::Spot);
    live.region.twin().interrupt_spot(&victim.id).expect("EC2 takes it back");
    let mut fewest = REPLICAS;
    let name = victim.private_dns_name;
    live.until("the interrupted node is gone and its pods run", SOON, |live| {
        let moment = live.look();
        fewest = fewest.min(moment.ready_pods().count());
        all_run(&moment) && !moment.node_names().contains(&name)
    });
    assert!(
        fewest >= REPLICAS - BUDGET,
        "{fewest} pods were left of {REPLICAS}, the budget allows {BUDGET} to be missing"
    );
    assert!(live.running().iter().all(|one| one.id != victim.id), "its instance is terminated");
}

/// Whether a Node takes no more pods.
fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted" && taint.effect == "NoSchedule")
}

/// Deletes an object, and follows its nodes until their pods run elsewhere. Returns the times until all were tainted,
/// until their drains began, and until EC2 was asked to terminate all of their instances.
fn delete_and_follow(live: &mut Live, object: (&str, &str), name: &str, going: &[Instance]) -> [Duration; 3] {
    let began = Instant::now();
    live.delete((object.0, object.1), name);
    let mut reached: [Option<Duration>; 3] = [None; 3];
    live.until("what was deleted is gone, and its pods run", ROLL, |live| {
        let moment = live.look();
        let of_those = |node: &&Node| {
            going.iter().any(|one| node.metadata.name.as_deref() == Some(one.private_dns_name.as_str()))
        };
        let mut nodes = moment.nodes.iter().filter(of_those);
        let running: BTreeSet<_> = live.running().into_iter().map(|one| one.id).collect();
        let are_so = [
            nodes.clone().all(is_tainted),
            nodes.clone().all(|node| node.metadata.deletion_timestamp.is_some()),
            going.iter().all(|one| !running.contains(&one.id)),
        ];
        for (at, is_so) in reached.iter_mut().zip(are_so) {
            if is_so && at.is_none() {
                *at = Some(began.elapsed());
            }
        }
        nodes.next().is_none() && all_run(&moment)
    });
    let [tainted, draining, terminating] = reached.map(|at| at.expect("it came to that before it was gone"));
    println!(
        "{} {name}, {} nodes: tainted after {:.1} s, draining after {:.1} s, termination requested after {:.1} s",
        object.1,
        going.len(),
        tainted.as_secs_f64(),
        draining.as_secs_f64(),
        terminating.as_secs_f64()
    );
    [tainted, draining, terminating]
}

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn what_a_user_deletes_takes_no_more_pods_within_three_seconds_and_is_drained_at_once() {
    let mut live = serving("deletions");
    let settled = |live: &Live| live.region.unsettled().0.is_empty();
    live.until("claims are initialised", SOON, settled);
    let moment = live.look();
    let victim = with_pods(&live, &moment).into_iter().next().expect("a node has pods");
    let node =
        moment.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(&victim.private_dns_name));
    let annotations = node.and_then(|node| node.metadata.annotations.as_ref());
    let claim = annotations.and_then(|all| all.get("tenon.dev/nodeclaim")).expect("it is registered");
    let times = delete_and_follow(&mut live, ("karpenter.sh/v1", "NodeClaim"), claim, &[victim]);
    assert!(times[0] <= TAINTED && times[1] <= DRAINING, "{times:?}");

    live.until("claims are initialised", SOON, settled);
    live.apply(&POOL.replace("metadata: {name: default}", "metadata: {name: spare}"));
    let going = live.running();
    assert!(going.len() >= 3, "{going:?}");
    let times = delete_and_follow(&mut live, ("karpenter.sh/v1", "NodePool"), "default", &going);
    assert!(times[0] <= TAINTED && times[1] <= DRAINING, "{times:?}");
}

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn a_new_image_rolls_the_nodes_while_the_agent_crashes() {
    let mut live = serving("roll");
    let before: BTreeSet<_> = live.running().into_iter().map(|one| one.id).collect();
    let image = live.make_image("node-2");
    let mut fewest = REPLICAS;
    let mut crashed_at = BTreeSet::new();
    live.until("all nodes have the new image", ROLL, |live| {
        let moment = live.look();
        fewest = fewest.min(moment.ready_pods().count());
        // Once for each number of old nodes: before, during and after drains.
        let old = live.running().iter().filter(|one| before.contains(&one.id)).count();
        if crashed_at.insert(old) {
            live.agent.crash();
        }
        let rolled = live.running().iter().all(|one| one.image == image);
        rolled && all_run(&moment) && moment.nodes.len() == live.running().len()
    });
    assert!(
        crashed_at.len() > before.len(),
        "the agent crashed with each number of old nodes: {crashed_at:?}"
    );
    assert!(
        fewest >= REPLICAS - BUDGET,
        "{fewest} pods were left of {REPLICAS}, the budget allows {BUDGET} to be missing"
    );
}

/// Pods of which each node takes one, so that each has room for one other.
const APART: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: apart, namespace: NAMESPACE}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: apart}}
  template:
    metadata: {labels: {app: apart}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {team: web}
      tolerations: [{key: example.com/web, operator: Exists}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: apart}}}
      containers: [{name: web, image: web, resources: {requests: {cpu: 800m, memory: 1Gi}}}]
";

/// Long enough for two looks of `disruption`, and for what they would begin.
const WOULD_HAVE_GONE: Duration = Duration::from_secs(25);

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn half_empty_nodes_are_merged_unless_a_budget_of_pods_forbids_it_and_an_edited_pool_rolls_the_rest() {
    let mut live = Live::start("consolidation");
    let disruption = "disruption: {consolidateAfter: 0s, budgets: [{nodes: '100%'}]}";
    let consolidating =
        POOL.replace("disruption: {consolidateAfter: Never, budgets: [{nodes: '1'}]}", disruption);
    let web = |budget: &str| {
        WEB.replace("maxUnavailable: 2", &format!("maxUnavailable: {budget}"))
            .replace("replicas: 6", "replicas: 3")
    };
    live.apply(CLASS);
    live.apply(POOL);
    // These first: if one plan has the others alone, it puts two of them on one node.
    live.apply(&APART.replace("REPLICAS", "3"));
    live.until("each pod runs on a node of its own", SOON, |live| live.look().ready_pods().count() == 3);
    live.apply(&web("0"));
    live.until("the nodes have room for three others", SOON, |live| live.look().ready_pods().count() == 6);
    live.apply(&APART.replace("REPLICAS", "0"));
    live.apply(&consolidating);
    let began = Instant::now();
    live.until("nothing that the budget protects goes", SOON, |_| began.elapsed() >= WOULD_HAVE_GONE);
    let kept = with_pods(&live, &live.look());
    assert_eq!((kept.len(), live.look().ready_pods().count()), (3, 3), "{kept:?}");

    live.apply(&web("2"));
    live.until("three pods of 800m run on two nodes of two vCPUs", ROLL, |live| {
        live.running().len() == 2 && live.look().ready_pods().count() == 3
    });

    let before: BTreeSet<_> = live.running().into_iter().map(|one| one.id).collect();
    live.apply(&consolidating.replace("{team: web}", "{team: web, tier: front}"));
    live.until("all nodes have the new label", ROLL, |live| {
        let moment = live.look();
        let rolled = live.running().iter().all(|one| !before.contains(&one.id));
        let labelled = moment.nodes.iter().all(|node| label(node, "tier") == Some("front"));
        rolled && labelled && moment.ready_pods().count() == 3
    });

    live.apply(&web("2").replace("replicas: 3", "replicas: 0"));
    live.until("empty nodes are gone", ROLL, |live| live.running().is_empty());
}

/// A StatefulSet with a volume a pod, each in a zone of its own.
const DATABASE: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: zonal}
provisioner: ebs.csi.aws.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: database, namespace: NAMESPACE}
spec:
  serviceName: database
  replicas: 3
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: database}}
  template:
    metadata: {labels: {app: database}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{key: example.com/web, operator: Exists}]
      topologySpreadConstraints:
        - topologyKey: topology.kubernetes.io/zone
          maxSkew: 1
          minDomains: 3
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: database}}
      containers:
        - {name: database, image: database, resources: {requests: {cpu: 800m, memory: 1Gi}},
           volumeMounts: [{name: data, mountPath: /data}]}
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], storageClassName: zonal, resources: {requests: {storage: 1Gi}}}
";
const DATABASES: usize = 3;

/// The zone of each pod's node.
fn zones(moment: &Moment) -> BTreeMap<String, String> {
    let zone = |pod: &Pod| {
        let on = pod.spec.as_ref()?.node_name.as_ref()?;
        let node = moment.nodes.iter().find(|node| node.metadata.name.as_ref() == Some(on))?;
        Some((pod.metadata.name.clone()?, label(node, "topology.kubernetes.io/zone")?.to_owned()))
    };
    moment.pods.iter().filter_map(zone).collect()
}

/// The zone of each volume, by the pod that its claim is named after.
fn zones_of_volumes(live: &Live) -> BTreeMap<String, String> {
    let zone = |volume: &DynamicObject| {
        let text = |pointer: &str| volume.data.pointer(pointer)?.as_str().map(str::to_owned);
        let expression = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0";
        let claim = text("/spec/claimRef/name")?;
        Some((claim.strip_prefix("data-")?.to_owned(), text(&format!("{expression}/values/0"))?))
    };
    live.all("v1", "PersistentVolume").iter().filter_map(zone).collect()
}

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn pods_of_a_stateful_set_come_back_in_the_zones_of_their_volumes() {
    let mut live = Live::start("volumes");
    live.apply(CLASS);
    live.apply(POOL);
    live.apply(DATABASE);
    let all_run = |live: &Live| {
        live.make_volumes();
        live.look().ready_pods().count() == DATABASES
    };
    live.until("pods run with the volumes that were made for them", SOON, all_run);
    let before = zones(&live.look());
    let distinct: BTreeSet<&String> = before.values().collect();
    assert_eq!((before.len(), distinct.len()), (DATABASES, DATABASES), "{before:?}");
    assert_eq!(zones_of_volumes(&live), before);

    let nodes = live.look().node_names();
    for instance in live.running() {
        live.region.twin().interrupt_spot(&instance.id).expect("EC2 takes it back");
    }
    live.until("the interrupted nodes are gone and the pods run on others", ROLL, |live| {
        let names = live.look().node_names();
        nodes.iter().all(|node| !names.contains(node)) && all_run(live)
    });
    assert_eq!(zones(&live.look()), before);
    assert_eq!(zones_of_volumes(&live), before, "no volume is made again");
}

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn tenon_local_launches_from_the_manifests_of_karpenters_page() {
    let manifests = GETTING_STARTED.replace("${CLUSTER_NAME}", "demo").replace("${ALIAS_VERSION}", "latest");
    let local = Local::start(&[&manifests, INFLATE]);
    local.scale("inflate", INFLATED);
    local.until("the Deployment's pods run", SOON, |local| local.look().ready_pods().count() == INFLATED);
    for node in &local.look().nodes {
        assert_eq!(label(node, "karpenter.sh/nodepool"), Some("default"));
        assert_eq!(label(node, "karpenter.sh/capacity-type"), Some("on-demand"));
        assert_eq!(label(node, "kubernetes.io/arch"), Some("amd64"));
        let category = label(node, "karpenter.k8s.aws/instance-category");
        assert!(category.is_some_and(|category| ["c", "m", "r"].contains(&category)), "{category:?}");
    }
    let classes = local.all("karpenter.k8s.aws/v1", "EC2NodeClass");
    let status = &classes.first().expect("the class is there").data["status"];
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    assert!(status["conditions"].as_array().is_some_and(|all| all.iter().any(ready)), "{status:#}");
    let images = status["amis"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |image: &Value| image["name"].as_str().is_some_and(|name| name.contains("-al2023-"));
    assert!(!images.is_empty() && images.iter().all(named), "{status:#}");
}
