//! What kubelets do: an instance becomes a Node, and a pod's container runs.
//!
//! kwok says that Nodes are Ready and that bound pods run, without any process. Here the agent's container is one, of the
//! image and with the environment that the pod names. An instance's Node has the labels and taints of its user data, which
//! nodeadm reads; its size is stated by EC2, less what AL2023 keeps about.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use aws_sdk_ec2::types::Instance;
use serde_json::{Map, Value, json};

use crate::account::REGION;
use crate::control_plane::RealControlPlane;
use crate::tools::{aws, shell, variable};
use crate::wait::eventually;

/// The pods of the network interfaces of the sample's types.
const PODS: &str = "58";
/// What kubelet and system keep of a node, about.
const KEPT_MILLICPU: i64 = 100;
const KEPT_MEBIBYTES: i64 = 1024;
/// What the kernel and the firmware take, about: one part of so many.
const TAKEN_PART: i64 = 14;

/// This machine's architecture as images name it.
pub(crate) fn image_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => panic!("Lambda has no architecture `{other}`: rehearse on x86_64 or aarch64"),
    }
}

/// A running container of the agent.
pub(crate) struct AgentContainer {
    child: Child,
    log: PathBuf,
}

impl AgentContainer {
    /// Runs a pod's container, and waits until it has reported the cluster. Credentials are the server's, as Pod Identity
    /// would give the role's, and the API server knows the service account by a token of its own.
    pub(crate) async fn start(pod: &Value, servers: &RealControlPlane, folder: &Path) -> Self {
        let container = &pod["spec"]["containers"][0];
        assert_eq!(pod["spec"]["serviceAccountName"], "tenon-agent", "the account of the kubeconfig");
        let entrypoint = pulled(container["image"].as_str().expect("an image"), folder).await;
        assert_eq!(entrypoint, json!(["/tenon-agent"]));
        assert!(container["command"].is_null(), "the image's own: {container}");
        let arguments = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let log = folder.join("agent.log");
        let file = File::create(&log).expect("a log is made");
        let mut child = Command::new(folder.join("tenon-agent"))
            .args(arguments)
            .env_clear()
            .envs(environment(pod))
            .env("KUBECONFIG", servers.variable("TENON_AGENT_KUBECONFIG"))
            .env("AWS_ENDPOINT_URL", variable("AWS_ENDPOINT_URL"))
            .env("AWS_ACCESS_KEY_ID", variable("AWS_ACCESS_KEY_ID"))
            .env("AWS_SECRET_ACCESS_KEY", variable("AWS_SECRET_ACCESS_KEY"))
            // A pod has its own ports.
            .env("TENON_LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(file)
            .spawn()
            .expect("the agent starts");
        eventually("the agent's first report", || {
            let ended = child.try_wait().expect("it is our child");
            let logged = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "the agent ended: {ended:?}\n{logged}");
            let reported = logged.contains(r#""message":"reported""#).then_some(());
            async move { reported }
        })
        .await;
        Self { child, log }
    }
}

impl Drop for AgentContainer {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
        if std::thread::panicking() {
            println!("the agent's log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// Pulls an image's binary into a folder; its entrypoint.
async fn pulled(image: &str, folder: &Path) -> Value {
    let platform = format!("linux/{}", image_architecture());
    let config = shell(&format!("infra/crane config --platform {platform} {image}")).await;
    let config: Value = serde_json::from_str(&config.well("crane config")).expect("JSON");
    let export = format!("infra/crane export --platform {platform} {image} -");
    let unpack = format!("tar --extract --no-same-owner --directory '{}' tenon-agent", folder.display());
    shell(&format!("{export} | {unpack}")).await.well("crane export");
    config["config"]["Entrypoint"].clone()
}

/// The environment of a pod's container.
fn environment(pod: &Value) -> Vec<(String, String)> {
    let variable = |entry: &Value| {
        let field = entry["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let of_pod = field.map(|path| format!("/{}", path.replace('.', "/")));
        let value = of_pod.map_or(Some(&entry["value"]), |path| pod.pointer(&path)).and_then(Value::as_str);
        let name = entry["name"].as_str().expect("a variable has a name");
        let value = value.unwrap_or_else(|| panic!("`{name}` has a value: {entry}"));
        (name.to_owned(), value.to_owned())
    };
    pod["spec"]["containers"][0]["env"].as_array().expect("variables").iter().map(variable).collect()
}

#[test]
fn a_containers_environment_is_its_pods() {
    let env = json!([{"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]);
    let pod = json!({"metadata": {"name": "agent-0"}, "spec": {"containers": [{"env": env}]}});
    let expected = [("A", "1"), ("B", "agent-0")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(environment(&pod), expected);
}

/// The NodeConfig of an instance.
async fn node_config(instance: &str) -> Value {
    let asked = format!(
        "aws ec2 describe-instance-attribute --instance-id {instance} --attribute userData \
         --query UserData.Value --output text | base64 --decode"
    );
    read_node_config(&shell(&asked).await.well(&asked))
}

/// The NodeConfig in user data; other parts are scripts, which nothing runs.
fn read_node_config(user_data: &str) -> Value {
    let part = user_data.split_once("Content-Type: application/node.eks.aws").expect("a NodeConfig").1;
    let document = &part[part.find('{').expect("JSON")..];
    let mut documents = serde_json::Deserializer::from_str(document).into_iter::<Value>();
    documents.next().expect("a document").expect("JSON")
}

/// The labels that the kubelet is told.
fn told_labels(config: &Value) -> Map<String, Value> {
    let flags = config["spec"]["kubelet"]["flags"].as_array().into_iter().flatten();
    let labels = flags.filter_map(|flag| flag.as_str()?.strip_prefix("--node-labels="));
    let pairs = labels.flat_map(|labels| labels.split(',')).filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

#[test]
fn a_node_config_says_labels_and_taints() {
    let user_data = "--//\nContent-Type: application/node.eks.aws\n\n{\"spec\":{\"kubelet\":{\"flags\":\
        [\"--node-labels=a=b,c=d\"]}}}\n--//--\n";
    let labels = told_labels(&read_node_config(user_data));
    assert_eq!(Value::Object(labels), json!({"a": "b", "c": "d"}));
}

/// The Node by which an instance joins the API server that its user data names.
pub(crate) async fn node(instance: &Instance, server: &str) -> Value {
    let id = instance.instance_id().expect("an id");
    let config = node_config(id).await;
    assert_eq!(config["spec"]["cluster"]["apiServerEndpoint"], server, "the cluster that it joins");
    let name = instance.private_dns_name().expect("a name");
    let zone = instance.placement().and_then(|placement| placement.availability_zone()).expect("a zone");
    let of_type = instance.instance_type().expect("a type").as_str();
    let found = aws(&["ec2", "describe-instance-types", "--instance-types", of_type]).await;
    let found = &found["InstanceTypes"][0];
    let architecture = match found["ProcessorInfo"]["SupportedArchitectures"][0].as_str() {
        Some("arm64") => "arm64",
        _ => "amd64",
    };
    let cpus = found["VCpuInfo"]["DefaultVCpus"].as_i64().expect("a number");
    let stated = found["MemoryInfo"]["SizeInMiB"].as_i64().expect("a number");
    let memory = stated - stated / TAKEN_PART;
    let mut labels = told_labels(&config);
    let of_cloud = [
        ("node.kubernetes.io/instance-type", of_type),
        ("topology.kubernetes.io/zone", zone),
        ("topology.kubernetes.io/region", REGION),
        ("kubernetes.io/arch", architecture),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", name),
    ];
    labels.extend(of_cloud.map(|(key, value)| (key.to_owned(), json!(value))));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": format!("aws:///{zone}/{id}"),
            "taints": config["spec"]["kubelet"]["config"]["registerWithTaints"],
        },
        "status": {
            "capacity": {"cpu": cpus.to_string(), "memory": format!("{memory}Mi"), "pods": PODS},
            "allocatable": {
                "cpu": format!("{}m", cpus * 1000 - KEPT_MILLICPU),
                "memory": format!("{}Mi", memory - KEPT_MEBIBYTES),
                "pods": PODS,
            },
        },
    })
}

/// A node of the node group, which has no instance.
pub(crate) fn system_node(name: &str) -> Value {
    let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": image_architecture(),
        "kubernetes.io/hostname": name});
    let size = json!({"cpu": "2", "memory": "4Gi", "pods": "17"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": size, "allocatable": size}})
}
