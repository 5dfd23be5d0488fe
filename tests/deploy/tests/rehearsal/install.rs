//! The installation page, typed from its first block to its last, for another cluster: one whose API server is real.
//!
//! Decides what is typed: every command of every block without the comment that says why it isn't run, as it is on the page
//! but for what [`stand_ins`] lists, and except those of [`ELSEWHERE`]. Also what is there before a command, which the page
//! takes for granted or this machine lacks ([`PageNeed`]). The walk ends in a Ready Node, and its times are printed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenon_domain::registry::Registry;
use tenon_table::Key;
use tenon_table::items::from_item;

use crate::account::{ACCOUNT, REGION};
use crate::classes::AL2023_STANDARD_X86_64;
use crate::control_plane::RealControlPlane;
use crate::eks::{endpoint, make_cluster};
use crate::kubelet::{AgentContainer, image_architecture, node, system_node};
use crate::launches::instances_of;
use crate::network::{DISCOVERY, make_untagged_network};
use crate::page::{PageBlock, blocks};
use crate::page_shell::{PageShell, WatchingCommand};
use crate::remove::leave_nodes;
use crate::tools::{aws, root, shell, variable};
use crate::wait::{PATIENCE, eventually, log};
use crate::world::{RehearsalWorld, rehearse};

/// The page.
const PAGE: &str = "docs/install.md";
/// The cluster's name.
const CLUSTER: &str = "second";
/// Its node group, as the page calls it.
const NODEGROUP: &str = "system";
/// The agent's namespace, as the page calls it.
const NAMESPACE: &str = "tenon-system";
/// How the page's deployment of the region begins, which all tests share: `deploy` types it.
pub(crate) const REGIONS: &str = "sam deploy";
/// Commands that were typed before the walk: how each begins, and who does it.
const ELSEWHERE: [(&str, &str); 2] = [
    ("infra/build arm64", "tests/deploy/run builds for this machine, by `infra/build host`"),
    (REGIONS, "the deployment that all tests share typed it"),
];
/// A node, as Karpenter's section calls it.
const KARPENTERS_NODE: &str = "ip-10-0-0-1.ec2.internal";
/// Pods of `infra/samples/inflate.yaml`.
const PODS: usize = 3;
/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the walk sees to before a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PageNeed {
    /// Karpenter's Deployment.
    Karpenter,
    /// A registry on loopback, and the base's stand-in there.
    Registry,
    /// A node of the node group, and the namespace, which takes restricted pods alone.
    Nodes,
    /// The agent's process.
    Agent,
    /// A node of Karpenter, with a pod.
    KarpentersNode,
}

/// How the commands begin that need something.
const NEEDS: [(&str, PageNeed); 5] = [
    ("kubectl scale deployment karpenter", PageNeed::Karpenter),
    ("infra/image", PageNeed::Registry),
    ("helm install", PageNeed::Nodes),
    ("sed ", PageNeed::Agent),
    ("node=", PageNeed::KarpentersNode),
];

/// The architecture of this machine's binaries, as `infra/build` names it.
pub(crate) fn architecture() -> &'static str {
    match image_architecture() {
        "arm64" => "arm64",
        _ => "x86_64",
    }
}

/// What stands for a text of the page: the other cluster's name; `tenon` that is built already; and the agent's binary that
/// is, for this machine, on a base that needs no other registry.
fn stand_ins() -> [(&'static str, String); 3] {
    let here = architecture();
    let image = format!(
        "--architecture {here} --binary-{here} target/agent/tenon-agent --base \"$TENON_REGISTRY/base:index\""
    );
    [
        ("CLUSTER=prod", format!("CLUSTER={CLUSTER}")),
        ("cargo run --release --bin tenon --features aws --", "\"$TENON_CLI\"".to_owned()),
        ("--architecture arm64", image),
    ]
}

/// A command as it is typed.
fn typed(command: &str) -> String {
    stand_ins().iter().fold(command.to_owned(), |text, (of, by)| text.replace(*of, by))
}

/// The page's blocks.
pub(crate) fn page_blocks() -> Vec<PageBlock> {
    blocks(&std::fs::read_to_string(root().join(PAGE)).expect("the page"))
}

/// How often a command of a block without a mark begins with or has a text.
fn count(of_command: impl Fn(&str) -> bool) -> usize {
    let blocks = page_blocks();
    let run = blocks.iter().filter(|block| block.reason.is_none());
    run.flat_map(|block| &block.commands).filter(|command| of_command(command)).count()
}

#[test]
fn what_is_done_for_the_page_is_for_commands_that_it_has() {
    let begins = ELSEWHERE.map(|(begin, _)| begin).into_iter().chain(NEEDS.map(|(begin, _)| begin));
    for begin in begins {
        assert_eq!(count(|command| command.starts_with(begin)), 1, "`{begin}`");
    }
    for (of, _) in stand_ins() {
        assert_eq!(count(|command| command.contains(of)), 1, "`{of}`");
    }
    let needs: BTreeSet<PageNeed> = NEEDS.iter().map(|(_, need)| *need).collect();
    assert_eq!(needs.len(), NEEDS.len());
    assert_eq!(typed("export CLUSTER=prod A=b"), "export CLUSTER=second A=b");
}

/// A folder of the walk, which goes with it.
struct WalkFolder(PathBuf);

impl WalkFolder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tenon-page-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder is made");
        Self(path)
    }
}

impl Drop for WalkFolder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// How long parts of the way took, in order.
#[derive(Debug, Default)]
struct WalkTimes(Vec<(String, Duration)>);

impl WalkTimes {
    /// Adds to a part.
    fn add(&mut self, part: &str, took: Duration) {
        match self.0.iter_mut().find(|(name, _)| name == part) {
            Some((_, sum)) => *sum += took,
            None => self.0.push((part.to_owned(), took)),
        }
    }

    fn print(&self) {
        for (part, took) in &self.0 {
            println!("  {part}: {:.1} s", took.as_secs_f64());
        }
        let sum: Duration = self.0.iter().map(|(_, took)| *took).sum();
        println!("from `sam deploy` to the first Ready Node, these together: {:.1} s", sum.as_secs_f64());
    }
}

#[test]
fn parts_add_up_in_their_order() {
    let second = Duration::from_secs(1);
    let mut times = WalkTimes::default();
    for part in ["b", "a", "b"] {
        times.add(part, second);
    }
    assert_eq!(times.0, [("b".to_owned(), second * 2), ("a".to_owned(), second)]);
}

/// Somebody who follows the page. What is declared first ends first.
struct PageWalk<'w> {
    agent: Option<AgentContainer>,
    shell: PageShell,
    servers: RealControlPlane,
    world: &'w RehearsalWorld,
    subnet: String,
    /// The id of the instance of Karpenter's node.
    karpenters: Option<String>,
    times: WalkTimes,
    folder: WalkFolder,
}

impl<'w> PageWalk<'w> {
    /// A cluster in EKS whose API server is a real one, and a shell.
    async fn new(world: &'w RehearsalWorld) -> Self {
        let folder = WalkFolder::new();
        let servers = RealControlPlane::start(&folder.0).await;
        let (subnet, group) = make_untagged_network(&world.account.ec2).await;
        servers.serve_as(CLUSTER, &group).await;
        make_cluster(CLUSTER, &format!("subnetIds={subnet},securityGroupIds={group}")).await;
        let role = format!("arn:aws:iam::{ACCOUNT}:role/system");
        let of = ["--cluster-name", CLUSTER, "--nodegroup-name", NODEGROUP];
        let made = ["eks", "create-nodegroup", "--subnets", &subnet, "--node-role", &role];
        aws(&[&made[..], &of].concat()).await;
        let endpoint = variable("AWS_ENDPOINT_URL");
        let registry = endpoint.strip_prefix("http://").expect("the server is without TLS").to_owned();
        let shell = PageShell::new(&folder.0, &servers, &[("TENON_REGISTRY", registry)]).await;
        let mut times = WalkTimes::default();
        times.add("the region's stack", world.region.stack);
        times.add("the catalogue", world.region.catalogue);
        Self { agent: None, shell, servers, world, subnet, karpenters: None, times, folder }
    }

    /// Goes from the first block to the last; how many commands were typed.
    async fn go(&mut self) -> usize {
        let mut commands = 0;
        for block in page_blocks() {
            match &block.reason {
                Some(reason) => println!("{PAGE}, {}: not run: {reason}", block.section),
                None => {
                    for command in &block.commands {
                        commands += self.follow(&block.section, command).await;
                    }
                }
            }
        }
        commands
    }

    /// Types a command, unless it was typed before: how many were typed.
    async fn follow(&mut self, section: &str, command: &str) -> usize {
        let begin = command.lines().next().unwrap_or_default();
        if let Some((_, by)) = ELSEWHERE.iter().find(|(begin, _)| command.starts_with(*begin)) {
            println!("{PAGE}, {section}: not now: `{begin}`: {by}");
            return 0;
        }
        if let Some((_, need)) = NEEDS.iter().find(|(begin, _)| command.starts_with(*begin)) {
            self.fulfil(*need).await;
        }
        let begun = Instant::now();
        if command.ends_with("--watch") {
            let watch = self.shell.watch(&typed(command));
            self.first_node(&watch, begun).await;
        } else {
            self.shell.run(&typed(command)).await.well(command);
            // The other sections are done before `sam deploy`, or after the first node.
            if ["The cluster", "The agent", "The first node"].contains(&section) {
                self.times.add(section, begun.elapsed());
            }
        }
        println!("{PAGE}, {section}: {:.1} s: `{begin}`", begun.elapsed().as_secs_f64());
        1
    }

    async fn fulfil(&mut self, need: PageNeed) {
        match need {
            PageNeed::Karpenter => {
                self.servers.create_deployment("kube-system", "karpenter", &json!({})).await;
            }
            PageNeed::Registry => {
                aws(&["ecr", "create-repository", "--repository-name", "base"]).await;
                let base = "tests/image/base target/agent/tenon-agent \"$TENON_REGISTRY/base\"";
                self.shell.run(base).await.well(base);
                // The server's registry is at its own address, not at that which it tells.
                let here = "IMAGE=$TENON_REGISTRY/${IMAGE#*/}";
                self.shell.run(here).await.well(here);
            }
            PageNeed::Nodes => {
                let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
                let metadata = json!({"name": NAMESPACE, "labels": labels});
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
                self.servers.create(&namespace).await;
                self.servers.create(&system_node(NODEGROUP)).await;
            }
            PageNeed::Agent => {
                let begun = Instant::now();
                let pod = self.agents_pod().await;
                self.agent = Some(AgentContainer::start(&pod, &self.servers, &self.folder.0).await);
                self.times.add("the agent's start, to its first report", begun.elapsed());
            }
            PageNeed::KarpentersNode => self.make_karpenters_node().await,
        }
    }

    /// A pod of the chart's Deployment, once both run.
    async fn agents_pod(&self) -> Value {
        let found = eventually("two pods of the agent", || async {
            let found = self.servers.get(&["pods", "--namespace", NAMESPACE]).await;
            let pods = found["items"].as_array().cloned().unwrap_or_default();
            let run = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            (run == 2).then_some(pods)
        })
        .await;
        found.first().expect("two").clone()
    }

    /// Waits for the node of the sample's pods, and for them; kubelets make Nodes meanwhile.
    async fn first_node(&mut self, watch: &WatchingCommand, begun: Instant) {
        let server = endpoint(CLUSTER).await.expect("EKS has the cluster");
        let (mut joined, mut launched, mut ready) = (BTreeSet::new(), None, None);
        let bound = loop {
            for instance in instances_of(&self.world.account, CLUSTER).await {
                let id = instance.instance_id().expect("an id").to_owned();
                launched.get_or_insert_with(|| begun.elapsed());
                if joined.insert(id) {
                    self.servers.create(&node(&instance, &server).await).await;
                }
            }
            if watch.lines().iter().any(|line| is_ready(line)) {
                ready.get_or_insert_with(|| begun.elapsed());
            }
            if ready.is_some() && self.running_pods().await == PODS {
                break begun.elapsed();
            }
            if begun.elapsed() > PATIENCE {
                panic!("no node within {PATIENCE:?}: {:#?}\n{}", watch.lines(), self.about_nodes().await);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let (launched, ready) = (launched.expect("a node has an instance"), ready.expect("it is Ready"));
        self.times.add("from the pods to EC2's instance", launched);
        self.times.add("from the instance to the Ready Node", ready.saturating_sub(launched));
        self.times.print();
        println!(
            "{:.1} s later the sample's {PODS} pods run there",
            bound.saturating_sub(ready).as_secs_f64()
        );
    }

    /// What the cluster says about its nodes, and the end of the functions' output: for a failure, in few lines.
    async fn about_nodes(&self) -> String {
        let mut lines = Vec::new();
        for kind in ["nodepools", "ec2nodeclasses", "nodeclaims", "nodes", "pods"] {
            let found = self.servers.get(&[kind]).await;
            for object in found["items"].as_array().into_iter().flatten() {
                lines.push(format!("{kind} {}:", object["metadata"]["name"]));
                let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                lines.extend(conditions.map(|condition| {
                    let said = ["type", "status", "reason", "message", "lastTransitionTime"];
                    format!("  {}", said.map(|field| condition[field].as_str().unwrap_or_default()).join(" "))
                }));
            }
        }
        lines.push(log());
        lines.join("\n")
    }

    /// How many of the sample's pods run on nodes of its NodePool.
    async fn running_pods(&self) -> usize {
        let nodes = self.servers.get(&["nodes", "--selector", "karpenter.sh/nodepool=default"]).await;
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        let nodes: Vec<&Value> = nodes.iter().map(|node| &node["metadata"]["name"]).collect();
        let pods = self.servers.get(&["pods", "--selector", "app=inflate"]).await;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let runs =
            |pod: &&Value| pod["status"]["phase"] == "Running" && nodes.contains(&&pod["spec"]["nodeName"]);
        pods.iter().filter(runs).count()
    }

    async fn make_karpenters_node(&mut self) {
        let image = ["--image-id", AL2023_STANDARD_X86_64, "--instance-type", "m5.large"];
        let launched =
            aws(&[&["ec2", "run-instances", "--subnet-id", &self.subnet][..], &image].concat()).await;
        let id = launched["Instances"][0]["InstanceId"].as_str().expect("an id");
        self.karpenters = Some(id.to_owned());
        let finalizers = json!(["karpenter.sh/termination"]);
        self.servers
            .create(&json!({
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {"name": "karpenters", "finalizers": finalizers},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                },
            }))
            .await;
        let claim = self.servers.get(&["nodeclaim", "karpenters"]).await;
        let mut node = system_node(KARPENTERS_NODE);
        node["metadata"]["finalizers"] = finalizers;
        node["metadata"]["ownerReferences"] = json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "name": "karpenters", "uid": claim["metadata"]["uid"], "blockOwnerDeletion": true}]);
        node["spec"] = json!({"providerID": format!("aws:///us-east-1a/{id}")});
        self.servers.create(&node).await;
        let on_it = json!({"kubernetes.io/hostname": KARPENTERS_NODE});
        self.servers.create_deployment("default", "before", &on_it).await;
        let available = ["wait", "deployment/before", "--for", "condition=Available", "--timeout", "60s"];
        self.servers.kubectl(&available).await;
    }
}

/// Whether a line of the page's last command of the first node shows a Ready one of the sample's NodePool.
fn is_ready(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.get(1) == Some(&"Ready") && words.last() == Some(&"default")
}

#[test]
fn a_ready_node_of_the_pool_is_known() {
    assert!(is_ready("ip-10-1-0-4.ec2.internal   Ready     <none>   0s      kwok-0.8.0   default"));
    assert!(!is_ready("ip-10-1-0-4.ec2.internal   Unknown   <none>   0s                   default"));
    assert!(!is_ready("system   Ready    <none>   2m44s   kwok-0.8.0   "));
}

/// The page's Karpenter is off, and its own node is gone.
async fn assert_karpenter_is_gone(walk: &PageWalk<'_>) {
    let karpenter = walk.servers.get(&["deployment", "karpenter", "--namespace", "kube-system"]).await;
    assert_eq!(karpenter["spec"]["replicas"], 0);
    for object in [["node", KARPENTERS_NODE], ["nodeclaim", "karpenters"]] {
        assert_eq!(walk.servers.get(&object).await, Value::Null, "{object:?}");
    }
    let id = walk.karpenters.as_deref().expect("Karpenter had a node");
    let found = aws(&["ec2", "describe-instances", "--instance-ids", id]).await;
    assert_eq!(found["Reservations"][0]["Instances"][0]["State"]["Name"], "terminated");
}

/// The agent's pods run in their namespace, of the image that the page pushed.
async fn assert_agent_is_installed(walk: &PageWalk<'_>) {
    let pod = walk.agents_pod().await;
    let version = shell("infra/version").await.well("infra/version");
    let image = pod["spec"]["containers"][0]["image"].as_str().expect("an image");
    assert!(image.ends_with(&format!("/tenon-agent:{}", version.trim())), "{image}");
    let pushed = aws(&["ecr", "list-images", "--repository-name", "tenon-agent"]).await;
    assert!(pushed.to_string().contains(version.trim()), "{pushed}");
}

/// The NodeClaims say what users look for.
async fn assert_claims_are_ready(walk: &PageWalk<'_>) {
    eventually("ready NodeClaims", || async {
        let found = walk.servers.get(&["nodeclaims"]).await;
        let claims = found["items"].as_array().cloned().unwrap_or_default();
        let is_ready = |claim: &Value| {
            let mut conditions = claim["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        (!claims.is_empty() && claims.iter().all(is_ready)).then_some(())
    })
    .await;
}

/// The cluster's entry, its nodes' role and its tagged network.
async fn assert_cluster_is_registered(walk: &PageWalk<'_>) {
    let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
    let item = walk.world.account.item(pk.as_str(), sk.as_str()).await.expect("the cluster's entry");
    let entry: Registry = from_item(&Key::new(pk, sk), &item).expect("an entry");
    assert_eq!(Some(entry.endpoint.as_str()), endpoint(CLUSTER).await.as_deref());
    assert_eq!(entry.kubernetes_version, "1.35");
    let role = format!("{CLUSTER}-node");
    let roles: Vec<&String> = entry.allowed.node_roles.keys().collect();
    assert_eq!((roles, entry.allowed.max_nodes), (vec![&role], Some(20)));
    let policies = aws(&["iam", "list-attached-role-policies", "--role-name", &role]).await;
    assert_eq!(policies["AttachedPolicies"].as_array().map(Vec::len), Some(3));
    let tag = format!("Name=tag:{DISCOVERY},Values={CLUSTER}");
    let tagged = aws(&["ec2", "describe-subnets", "--filters", &tag]).await;
    assert_eq!(tagged["Subnets"][0]["SubnetId"], walk.subnet.as_str());
}

/// Takes the cluster away, first by the removal page: other tests have another.
async fn remove(mut walk: PageWalk<'_>) {
    let account = &walk.world.account;
    let agent = walk.agent.take();
    leave_nodes(&walk.shell, &walk.servers, account, CLUSTER, agent).await;
    drop(walk);
    let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
    assert_eq!(account.item(pk, sk).await, None, "the stack's end is the entry's");
    account.settled().await;
    // Not before: a sweep could launch others for the pods of the last report.
    for instance in instances_of(account, CLUSTER).await {
        let id = instance.instance_id().expect("an id");
        aws(&["ec2", "terminate-instances", "--instance-ids", id]).await;
    }
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_installation_page_leads_from_its_first_block_to_a_ready_node() {
    rehearse(|world| async {
        assert!(root().join("target/agent/tenon-agent").exists(), "run `infra/build host`");
        let mut walk = PageWalk::new(world).await;
        let commands = walk.go().await;
        println!("{commands} commands of the installation page run");
        assert_cluster_is_registered(&walk).await;
        assert_agent_is_installed(&walk).await;
        assert_claims_are_ready(&walk).await;
        assert_karpenter_is_gone(&walk).await;
        remove(walk).await;
    });
}
