//! Operations for one Node, from its state and its claim's action.

use std::collections::BTreeSet;

use super::*;
use crate::plan::{Convergence, Op, View, plan_convergence, with_disrupted};
use crate::volumes::Attachments;
use crate::wave::may_wait;

const REGISTERED: &str = "karpenter.sh/registered";
const INITIALIZED: &str = "karpenter.sh/initialized";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const BOOT: (&str, &str) = ("karpenter.sh/unregistered", "NoExecute");
const NOT_READY: (&str, &str) = ("node.kubernetes.io/not-ready", "NoSchedule");
const CNI: (&str, &str) = ("cni", "NoSchedule");
const OPENING: (&str, &str) = ("tenon.dev/opening", "NoSchedule");
const SOFT: (&str, &str) = ("soft", "PreferNoSchedule");

fn form((key, effect): &(&str, &str)) -> Value {
    json!({"key": key, "effect": effect})
}

/// A Node of the claim `a`, Ready, with our finalizer, these labels and taints.
fn node(labels: &[(&str, &str)], taints: &[(&str, &str)]) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "7",
            "labels": labels.iter().copied().collect::<BTreeMap<_, _>>(),
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": provider_id("a"), "taints": taints.iter().map(form).collect::<Vec<_>>()},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Such a Node, deleted a long time ago, with these finalizers.
fn deleted(mut node: Value, finalizers: &Value) -> Value {
    node["metadata"]["deletionTimestamp"] = json!(at(0).to_string());
    node["metadata"]["finalizers"] = finalizers.clone();
    node
}

fn action(kind: ActionKind, startup: &[(&str, &str)]) -> NodeAction {
    let taint = |(key, effect): &(&str, &str)| Taint::new(*key, TaintEffect::parse(effect).unwrap());
    NodeAction {
        claim: ClaimName::parse("a").unwrap(),
        number: 1,
        kind,
        provider_id: Some(provider_id("a")),
        node: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: vec![],
        startup_taints: startup.iter().map(taint).collect(),
        deadline: None,
        replacement: tenon_snapshot::ReplacementOrder::Anytime,
    }
}

fn planned(nodes: &[Value], action: &NodeAction) -> Convergence {
    let nodes = nodes.iter().cloned().map(Arc::new).collect();
    plan_convergence(&View { nodes, ..View::default() }, std::slice::from_ref(action), at(100))
}

/// The patches, by the Node that they are of.
fn patches(planned: &Convergence) -> Vec<(&str, &Value)> {
    let mut found = Vec::new();
    for op in &planned.ops {
        if let Op::Patch { node, patch, .. } = op {
            found.push((node.as_str(), patch));
        }
    }
    found
}

#[test]
fn a_node_opens_once_it_is_ready_and_nothing_that_it_starts_with_keeps_pods_out() {
    let check = |node: Value, startup: &[(&str, &str)], expected: &[&str]| {
        let opening = planned(std::slice::from_ref(&node), &action(ActionKind::Register, startup)).opening;
        let found: Vec<_> = opening.values().map(String::as_str).collect();
        assert_eq!(found, expected, "{node} that starts with {startup:?}");
    };
    let new = |taints| node(&[], taints);
    let registered = |taints| node(&[(REGISTERED, "true")], taints);
    // Our own taints are removed then; others remove their own.
    check(new(&[BOOT]), &[], &["a"]);
    check(new(&[BOOT]), &[SOFT], &["a"]);
    check(new(&[BOOT]), &[CNI], &[]);
    check(new(&[BOOT, NOT_READY]), &[], &[]);
    check(unready(new(&[BOOT])), &[], &[]);
    check(registered(&[OPENING]), &[CNI], &["a"]);
    check(registered(&[SOFT]), &[SOFT], &["a"]);
    check(registered(&[CNI, OPENING]), &[CNI], &[]);
    check(registered(&[NOT_READY, OPENING]), &[], &[]);
    check(unready(registered(&[OPENING])), &[], &[]);
    // It takes pods since long.
    check(node(&[(REGISTERED, "true"), (INITIALIZED, "true")], &[]), &[], &[]);
}

#[test]
fn a_node_is_closed_from_its_registration_until_it_opens() {
    let register = action(ActionKind::Register, &[]);
    let taints = |node: Value, daemons: &[Value]| {
        let view = View {
            nodes: vec![Arc::new(node)],
            daemon_sets: daemons.iter().cloned().map(Arc::new).collect(),
            ..View::default()
        };
        let planned = plan_convergence(&view, std::slice::from_ref(&register), at(100));
        patches(&planned).first().map(|(_, patch)| patch["spec"]["taints"].clone())
    };
    let starting = || node(&[], &[BOOT, NOT_READY]);
    assert_eq!(taints(starting(), &[]), Some(json!([form(&NOT_READY), form(&OPENING)])));
    let synced = node(&[("karpenter.sh/do-not-sync-taints", "true")], &[BOOT, NOT_READY]);
    assert_eq!(
        taints(synced, &[]),
        Some(json!([form(&NOT_READY), form(&OPENING)])),
        "its kubelet registered the claim's taints, and this isn't one of them"
    );
    // The node controller's taint goes, then the Node opens.
    let ready = node(&[(REGISTERED, "true")], &[OPENING]);
    assert_eq!(taints(ready, &[]), Some(json!([])));
    assert_eq!(taints(node(&[(REGISTERED, "true")], &[NOT_READY, OPENING]), &[]), None, "not before");
    assert_eq!(taints(node(&[], &[BOOT]), &[]), Some(json!([])), "a Node that is ready opens at once");

    let daemons = |tolerations: Value| json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}});
    let network = daemons(json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]));
    let everywhere = daemons(json!([{"operator": "Exists"}]));
    assert_eq!(
        taints(starting(), std::slice::from_ref(&everywhere)),
        Some(json!([form(&NOT_READY), form(&OPENING)]))
    );
    let open = Some(json!([form(&NOT_READY)]));
    assert_eq!(taints(starting(), &[everywhere, network]), open, "the Node needs that DaemonSet's pod");
}

/// A Ready Node that is closed, of the claim `a`, and one of the claim `b` that still starts, made so many seconds later.
fn of_a_wave(later: i64) -> (View, [NodeAction; 2]) {
    let mut ready = node(&[(REGISTERED, "true")], &[OPENING]);
    ready["status"]["conditions"][0]["lastTransitionTime"] = json!(at(95).to_string());
    let made = |at: Timestamp| Arc::new(json!({"metadata": {"creationTimestamp": at.to_string()}}));
    let claims = [("a".to_owned(), made(at(60))), ("b".to_owned(), made(at(60 + later)))].into();
    let of_b = NodeAction {
        claim: ClaimName::parse("b").unwrap(),
        provider_id: Some(provider_id("b")),
        ..action(ActionKind::Register, &[])
    };
    let view = View { nodes: vec![Arc::new(ready)], claims, ..View::default() };
    (view, [action(ActionKind::Register, &[]), of_b])
}

#[test]
fn a_node_may_wait_for_others_of_its_wave_that_still_start() {
    let waits = |(view, actions): &(View, [NodeAction; 2]), now: i64| {
        let found = may_wait(view, actions, at(now));
        found.into_iter().map(|(claim, one)| (claim.to_string(), one.node, one.until)).collect::<Vec<_>>()
    };
    let wave = of_a_wave(3);
    assert_eq!(waits(&wave, 100), [("a".to_owned(), "a".to_owned(), at(105))]);
    assert_eq!(waits(&wave, 105), [], "10 seconds are the longest");
    assert_eq!(waits(&of_a_wave(60), 100), [], "the other one was launched later");
    let (mut all, actions) = of_a_wave(3);
    let mut other = node(&[], &[BOOT]);
    other["spec"]["providerID"] = json!(provider_id("b"));
    other["status"]["conditions"][0]["lastTransitionTime"] = json!(at(98).to_string());
    all.nodes.push(Arc::new(other));
    assert_eq!(waits(&(all, actions), 100), [], "all are Ready");
    let (mut late, actions) = of_a_wave(3);
    let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    late.daemon_sets = vec![Arc::new(json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}}))];
    assert_eq!(waits(&(late, actions), 100), [], "such Nodes aren't closed");
}

#[test]
fn a_node_that_waits_for_its_wave_stays_closed_and_isnt_initialised() {
    let (view, [register, _]) = of_a_wave(3);
    let initialize = NodeAction { kind: ActionKind::Initialize, ..register.clone() };
    for action in [register, initialize] {
        let kept_closed = [(action.claim.clone(), at(105))].into();
        let view = View { kept_closed, claims: BTreeMap::new(), ..view.clone() };
        let planned = plan_convergence(&view, std::slice::from_ref(&action), at(100));
        assert!(patches(&planned).is_empty(), "{planned:?}");
        assert_eq!((planned.opening.len(), planned.next), (0, Some(at(105))));
        let opened = plan_convergence(
            &View { kept_closed: BTreeMap::new(), ..view },
            std::slice::from_ref(&action),
            at(105),
        );
        assert_eq!(patches(&opened)[0].1["spec"]["taints"], json!([]));
    }
}

fn unready(mut node: Value) -> Value {
    node["status"]["conditions"][0]["status"] = json!("False");
    node
}

#[test]
fn only_its_own_label_says_that_a_node_is_registered() {
    let check = |labels: &[(&str, &str)], expected: bool| {
        let planned = planned(&[node(labels, &[])], &action(ActionKind::Register, &[CNI]));
        let found = patches(&planned);
        let registers = |(_, patch): &(&str, &Value)| patch["metadata"]["labels"][REGISTERED] == "true";
        assert_eq!(found.iter().any(registers), expected, "{labels:?}: {found:?}");
    };
    check(&[], true);
    check(&[("example.com/web", "true")], true);
    check(&[(REGISTERED, "false")], true);
    check(&[(REGISTERED, "true")], false);
}

#[test]
fn startup_taints_are_put_on_as_a_node_is_registered_and_never_again() {
    let register = action(ActionKind::Register, &[CNI]);
    let new = planned(&[node(&[], &[BOOT])], &register);
    let found = patches(&new);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].1["spec"]["taints"], json!([form(&CNI), form(&OPENING)]));
    assert_eq!(found[0].1["metadata"]["labels"][REGISTERED], "true", "with the label, in one write");
    // Its owner removed it.
    let started = planned(&[node(&[(REGISTERED, "true")], &[])], &register);
    assert_eq!(started.ops, []);
    assert_eq!(started.reports[0].progress, ActionProgress::Done);
}

#[test]
fn a_claim_without_an_instances_id_finds_its_node_by_the_name() {
    let named = |name: &str| {
        let mut node = node(&[], &[]);
        node["metadata"]["name"] = json!(name);
        node
    };
    let by_name =
        NodeAction { provider_id: None, node: Some("b".to_owned()), ..action(ActionKind::Register, &[]) };
    let planned = planned(&[named("a"), named("b"), named("c")], &by_name);
    let found: Vec<&str> = patches(&planned).into_iter().map(|(node, _)| node).collect();
    assert_eq!(found, ["b"]);
}

#[test]
fn a_node_that_is_to_go_keeps_its_other_taints() {
    let held = [("dedicated", "NoSchedule"), ("karpenter.sh/disrupted", "NoExecute")];
    let expected = [("dedicated", "NoSchedule"), ("karpenter.sh/disrupted", "NoSchedule")].map(|t| form(&t));
    let node = node(&[(REGISTERED, "true"), (INITIALIZED, "true")], &held);
    // By its action, and by a user's deletion.
    let planned = planned(std::slice::from_ref(&node), &action(ActionKind::Disrupt, &[]));
    let found = patches(&planned);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].1["spec"]["taints"], json!(expected));
    assert_eq!(with_disrupted(&node), Some(expected.to_vec()));
}

#[test]
fn a_node_without_our_finalizer_is_left_to_those_who_hold_it() {
    let check = |finalizers: Value, expected: Option<Value>| {
        let node = deleted(node(&[(REGISTERED, "true")], &[]), &finalizers);
        let planned = planned(&[node], &action(ActionKind::Finalize, &[]));
        let found: Vec<Value> =
            patches(&planned).into_iter().map(|(_, patch)| patch["metadata"]["finalizers"].clone()).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{finalizers}");
        assert_eq!(planned.ops.len(), found.len(), "{finalizers}");
    };
    check(json!(["example.com/keeps", "karpenter.sh/termination"]), Some(json!(["example.com/keeps"])));
    check(json!(["karpenter.sh/termination"]), Some(json!([])));
    check(json!(["example.com/keeps"]), None);
}

/// The taint was removed: until it is back, the scheduler may send pods to a Node that looks drained.
#[test]
fn a_node_without_the_taint_is_not_drained_yet() {
    let check = |taints: &[(&str, &str)], progress: ActionProgress, next: Option<i64>| {
        let labels = [(REGISTERED, "true"), (EXCLUDED, "karpenter")];
        let node = deleted(node(&labels, taints), &json!(["karpenter.sh/termination"]));
        let planned = planned(&[node], &action(ActionKind::Drain, &[]));
        let found = (planned.reports[0].progress.clone(), planned.next);
        assert_eq!(found, (progress, next.map(at)), "{taints:?}");
        assert_eq!(patches(&planned).len(), usize::from(next.is_some()), "{taints:?}");
    };
    check(&[("karpenter.sh/disrupted", "NoSchedule")], ActionProgress::Done, None);
    check(&[], ActionProgress::working(0), Some(100));
}

#[test]
fn a_drain_that_stops_waiting_for_volumes_names_those_that_are_attached() {
    let labels = [(REGISTERED, "true"), (EXCLUDED, "karpenter")];
    let node = node(&labels, &[("karpenter.sh/disrupted", "NoSchedule")]);
    let attachment = Arc::new(json!({"kind": "VolumeAttachment", "metadata": {"name": "csi-1"},
        "spec": {"nodeName": "a", "source": {"persistentVolumeName": "pv-1"}}}));
    let mut view = View {
        nodes: vec![Arc::new(deleted(node, &json!(["karpenter.sh/termination"])))],
        attachments: Attachments::of(&[attachment], &[]),
        ..View::default()
    };
    view.detaching.observe(BTreeSet::from(["a".to_owned()]), at(0));
    let action = [action(ActionKind::Drain, &[])];
    let reported = |second| plan_convergence(&view, &action, at(second)).reports[0].progress.clone();
    assert!(!reported(599).is_done());
    assert_eq!(reported(600), ActionProgress::Left { volumes: vec!["pv-1".to_owned()] });
}
