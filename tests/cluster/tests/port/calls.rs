//! Every call that the agent makes, with what the port says of it, and the objects that the calls are about.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::{Value, json};
use tenon_cluster_tests::Cluster;
use tenon_kube::lease::{Election, Leadership};
use tenon_kube::{KubeClient, Listing, watched};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::{Deletion, Eviction, Kube, KubeError, Note, NoteKind, Precondition};

use super::rights::{grants, roles, wait_for_right};

const NAMESPACE: &str = "tenon-system";
/// Nothing here takes the API server as long.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct PortWorld {
    pub(crate) admin: Cluster,
    pub(crate) agent: Cluster,
    pub(crate) kube: KubeClient,
    pub(crate) number: u32,
}

type Told = Result<(), String>;

/// The agent's own client.
pub(crate) async fn client() -> tenon_kube::Client {
    let path = std::env::var("TENON_AGENT_KUBECONFIG").expect("run it by tests/servers/control-plane");
    let file = kube::config::Kubeconfig::read_from(&path).expect("the kubeconfig can be read");
    let options = kube::config::KubeConfigOptions::default();
    let config = tenon_kube::Config::from_custom_kubeconfig(file, &options).await.expect("it is whole");
    tenon_kube::client_of(config).expect("a client can be made of it")
}

impl PortWorld {
    pub(crate) async fn new(listing: Listing) -> Self {
        let (admin, agent) = (Cluster::admin().await, Cluster::agent().await);
        admin.install_definitions().await;
        admin.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}")).await;
        for object in roles() {
            admin.apply_object(&object).await;
        }
        for object in roles() {
            for (group, resource, verb, name) in grants(&object) {
                wait_for_right(&agent, &object, (&group, &resource, &verb, &name), true).await;
            }
        }
        let kube = KubeClient::start(client().await, listing, "port");
        Self { admin, agent, kube, number: 0 }
    }

    pub(crate) fn name(&mut self, what: &str) -> String {
        self.number += 1;
        let at = jiff::Timestamp::now().as_microsecond();
        format!("{what}-{at}-{}", self.number)
    }

    async fn apply(&self, object: Value) -> ObjectKey {
        self.admin.apply_object(&object).await;
        ObjectKey::of(&object).expect("it has a name and a known kind")
    }

    /// Waits until the store shows the expected state.
    pub(crate) async fn seen(
        &self,
        kind: Kind,
        name: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Object, String> {
        let start = Instant::now();
        loop {
            let all = self.kube.list(kind).await.map_err(told("list"))?;
            if let Some(found) = all.iter().find(|one| object::name(one) == name && is(one)) {
                return Ok(found.clone());
            }
            if start.elapsed() > SOON {
                return Err(format!("`{kind} {name}` isn't seen as it should be"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn pod_uid(&self, key: &ObjectKey) -> Result<String, String> {
        let start = Instant::now();
        loop {
            let pods = self.kube.pods().await.map_err(told("list pods"))?;
            if let Some(pod) = pods.iter().find(|pod| pod.key == *key) {
                return Ok(pod.uid.clone());
            }
            if start.elapsed() > SOON {
                return Err(format!("`{key}` isn't seen"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn pod(&mut self, label: &str) -> ObjectKey {
        let name = self.name("port");
        self.apply(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": label}},
            "spec": {"nodeSelector": {"nowhere": "at-all"}, "containers": [{"name": "a", "image": "none"}]}}))
            .await
    }

    pub(crate) async fn budget(&mut self, label: &str) {
        let name = self.name("port");
        self.apply(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "unhealthyPodEvictionPolicy": "IfHealthyBudget",
                "selector": {"matchLabels": {"app": label}}}}))
            .await;
    }

    /// Every call that the agent makes.
    pub(crate) async fn all(&mut self) -> Told {
        self.lists().await?;
        self.nodes().await?;
        self.pods().await?;
        self.claims().await?;
        self.statuses().await?;
        self.notes().await?;
        self.leases().await
    }

    pub(crate) async fn lists(&mut self) -> Told {
        let version = self.kube.version().await.map_err(told("version"))?;
        assert!(version.starts_with("1.") && version.split('.').count() == 2, "{version}");
        for kind in watched() {
            self.kube.list(kind).await.map_err(told("list"))?;
        }
        self.kube.pods().await.map_err(told("list pods"))?;
        Ok(())
    }

    async fn nodes(&mut self) -> Told {
        let name = self.name("port");
        let key = self
            .apply(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"], "labels": {"a": "1"}}}))
            .await;
        let seen = self.seen(Kind::Node, &name, |_| true).await?;
        let version = text(&seen, "/metadata/resourceVersion").unwrap_or_default().to_owned();
        let patch = json!({"metadata": {"labels": {"a": "2"}}});
        let precondition = Precondition::ResourceVersion(version.clone());
        // A kubelet may have written meanwhile, which kwok is.
        let patched = match self.kube.patch(&key, &patch, &precondition).await {
            Err(KubeError::Conflict { .. }) => self.kube.patch(&key, &patch, &Precondition::None).await,
            other => other,
        };
        patched.map_err(told("patch node"))?;
        let now = self.kube.list(Kind::Node).await.map_err(told("list"))?;
        let own = now.iter().find(|node| object::name(node) == name).expect("it is there");
        assert_eq!(text(own, "/metadata/labels/a"), Some("2"), "a list shows the client's own write at once");
        let stale = self.kube.patch(&key, &patch, &precondition).await;
        assert!(matches!(stale, Err(KubeError::Conflict { .. })), "{stale:?}");
        let other = self
            .kube
            .delete(&key, "another", None)
            .await
            .map_err(|error| matches!(error, KubeError::Conflict { .. }));
        if other == Err(false) {
            return Err("delete node".to_owned());
        }
        let uid = object::uid(&seen).to_owned();
        let deleted = self.kube.delete(&key, &uid, None).await.map_err(told("delete node"))?;
        assert_eq!(deleted, Deletion::Accepted);
        let now = self.kube.list(Kind::Node).await.map_err(told("list"))?;
        let own = now.iter().find(|node| object::name(node) == name).expect("its finalizer holds it");
        assert!(object::deleted_at(own).is_some(), "seen at once");
        let release = json!({"metadata": {"finalizers": null}});
        self.kube.patch(&key, &release, &Precondition::None).await.map_err(told("patch node"))?;
        let now = self.kube.list(Kind::Node).await.map_err(told("list"))?;
        assert!(now.iter().all(|node| object::name(node) != name), "it is gone at once");
        let gone = self.kube.patch(&key, &patch, &Precondition::None).await;
        assert!(matches!(gone, Err(KubeError::NotFound { .. })), "{gone:?}");
        assert_eq!(
            self.kube.delete(&key, &uid, None).await.map_err(told("delete node"))?,
            Deletion::NotFound
        );
        Ok(())
    }

    async fn pods(&mut self) -> Told {
        let label = self.name("app");
        let (one, other) = (self.pod(&label).await, self.pod(&label).await);
        let (uid, other_uid) = (self.pod_uid(&one).await?, self.pod_uid(&other).await?);
        // One of them is another pod by now, and a third name never existed: neither stops the others.
        let strangers =
            [(one.clone(), other_uid.clone()), (ObjectKey::new(Kind::Pod, "default", "never"), uid.clone())];
        let nominated: Vec<_> = strangers.into_iter().chain([(other.clone(), other_uid.clone())]).collect();
        self.kube.nominate(&nominated, "nowhere").await.map_err(told("nominate"))?;
        for (pod, expected) in [(&one, None), (&other, Some("nowhere"))] {
            let pods: Api<Pod> = Api::namespaced(self.admin.client(), &pod.namespace);
            let seen = pods.get(&pod.name).await.expect("it is there").status.unwrap_or_default();
            assert_eq!(seen.nominated_node_name.as_deref(), expected, "{pod}");
        }
        let conflict = self.kube.evict(&one, &other_uid).await.map_err(told("evict"))?;
        assert_eq!(conflict, Eviction::Conflict);
        assert_eq!(self.kube.evict(&one, &uid).await.map_err(told("evict"))?, Eviction::Evicted);
        assert_eq!(self.kube.evict(&one, &uid).await.map_err(told("evict"))?, Eviction::NotFound);
        let deleted = self.kube.delete(&other, &other_uid, Some(1)).await.map_err(told("delete pod"))?;
        assert_eq!(deleted, Deletion::Accepted);
        let start = Instant::now();
        loop {
            let pods = self.kube.pods().await.map_err(told("list pods"))?;
            if pods.iter().all(|pod| pod.uid != other_uid) {
                break;
            }
            assert!(start.elapsed() < SOON, "it is gone");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn claims(&mut self) -> Told {
        let name = self.name("port");
        let claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"],
                "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"},
                "resources": {"requests": {"cpu": "2"}},
                "requirements": [
                    {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]},
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}]}});
        let key = ObjectKey::new(Kind::NodeClaim, "", &name);
        let made = self.kube.create(claim.clone()).await.map_err(told("create claim"))?;
        let again = self.kube.create(claim).await;
        assert!(matches!(again, Err(KubeError::Conflict { .. })), "{again:?}");
        self.seen(Kind::NodeClaim, &name, |_| true).await?;
        let status = json!({"providerID": "aws:///us-east-1a/i-0abc", "imageID": "ami-1", "capacity": {"cpu": "2"},
            "conditions": [condition("Launched"), condition("Ready")]});
        self.show(Kind::NodeClaim, &name, &status).await?;
        self.owned(&made).await?;
        let wrong = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
            "status": {"providerID": 3}});
        let wrong = self.kube.apply_status(&wrong).await;
        assert!(matches!(wrong, Err(KubeError::Invalid { .. })), "{wrong:?}");
        self.kube.delete(&key, object::uid(&made), None).await.map_err(told("delete claim"))?;
        let release = json!({"metadata": {"finalizers": null}});
        self.kube.patch(&key, &release, &Precondition::None).await.map_err(told("patch claim"))?;
        let now = self.kube.list(Kind::NodeClaim).await.map_err(told("list"))?;
        assert!(now.iter().all(|claim| object::name(claim) != name), "it is gone at once");
        Ok(())
    }

    /// Makes a NodeClaim the owner of a Node, which it waits for.
    async fn owned(&mut self, claim: &Value) -> Told {
        let name = self.name("port");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let key = self.apply(node.clone()).await;
        let owner = json!({"apiVersion": Kind::NodeClaim.api_version(), "kind": Kind::NodeClaim.as_str(),
            "name": object::name(claim), "uid": object::uid(claim), "blockOwnerDeletion": true});
        let owners = [owner];
        let patch = json!({"metadata": {"ownerReferences": owners}});
        let owned = self.kube.patch(&key, &patch, &Precondition::None).await.map_err(told("own a node"))?;
        assert_eq!(object::list(&owned, "/metadata/ownerReferences"), owners);
        let seen = self.seen(Kind::Node, &name, |_| true).await?;
        assert_eq!(object::list(&seen, "/metadata/ownerReferences"), owners, "the store keeps it");
        self.admin.delete(&node).await;
        Ok(())
    }

    /// Applies a status twice, the second time without a change, and once with fewer fields, which removes the
    /// others.
    async fn show(&mut self, kind: Kind, name: &str, status: &Value) -> Told {
        let object = |status: &Value| json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": name}, "status": status});
        let written = self.kube.apply_status(&object(status)).await.map_err(told("apply status"))?;
        assert_eq!(written.get("status"), Some(status), "{kind}");
        let version = text(&written, "/metadata/resourceVersion").map(str::to_owned);
        let again = self.kube.apply_status(&object(status)).await.map_err(told("apply status"))?;
        assert_eq!(
            text(&again, "/metadata/resourceVersion").map(str::to_owned),
            version,
            "{kind}: nothing changed"
        );
        let less = json!({"conditions": [condition("Ready")]});
        let fewer = self.kube.apply_status(&object(&less)).await.map_err(told("apply status"))?;
        assert_eq!(fewer.pointer("/status/conditions"), less.get("conditions"), "{kind}");
        Ok(())
    }

    async fn statuses(&mut self) -> Told {
        let name = self.name("port");
        let pool = self
            .apply(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": {"requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"}}}}}))
            .await;
        let hash = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1"}}});
        self.kube.patch(&pool, &hash, &Precondition::None).await.map_err(told("patch pool"))?;
        let status = json!({"nodes": 1, "resources": {"cpu": "2", "nodes": "1"},
            "conditions": [condition("NodeClassReady"), condition("Ready"), condition("tenon.dev/Unsupported")]});
        self.show(Kind::NodePool, &name, &status).await?;
        let class = self.apply(json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name},
            "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]}}))
            .await;
        let arch = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
        let status = json!({"subnets": [{"id": "subnet-1", "zone": "us-east-1a", "zoneID": "use1-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "amis": [{"id": "ami-1", "name": "al2023", "requirements": [arch]}], "instanceProfile": "nodes",
            "conditions": [condition("AMIsReady"), condition("Ready")]});
        self.show(Kind::Ec2NodeClass, &name, &status).await?;
        let hash = json!({"metadata": {"annotations": {"karpenter.k8s.aws/ec2nodeclass-hash": "1"}}});
        self.kube.patch(&class, &hash, &Precondition::None).await.map_err(told("patch class")).map(drop)
    }

    async fn notes(&mut self) -> Told {
        let about = self.pod("noted").await;
        let uid = self.pod_uid(&about).await?;
        let note = Note {
            about,
            uid,
            kind: NoteKind::Warning,
            reason: "FailedDraining".to_owned(),
            message: "a budget".to_owned(),
        };
        self.kube.note(&note).await.map_err(told("note"))?;
        self.kube.note(&note).await.map_err(told("note again"))
    }

    async fn leases(&mut self) -> Told {
        let ours = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "tenon-agent", "namespace": NAMESPACE}});
        let generation = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "tenon-agent-generation", "namespace": "kube-system"}});
        for lease in [&ours, &generation] {
            self.admin.apply_object(lease).await;
            self.admin.delete(lease).await;
        }
        let mut election = Election::new(self.agent.client(), NAMESPACE, "tenon-agent", "port");
        for what in ["take", "renew"] {
            let standing = election.campaign().await.map_err(|error| format!("{what} the lease: {error}"))?;
            assert!(matches!(standing, Leadership::Leads(_)), "{what}");
        }
        let mut rival = Election::new(self.agent.client(), NAMESPACE, "tenon-agent", "rival");
        let standing = rival.campaign().await.map_err(|error| format!("another's lease: {error}"))?;
        assert_eq!(standing, Leadership::Stands);
        election.release().await.map_err(|error| format!("release the lease: {error}"))?;
        let standing = rival.campaign().await.map_err(|error| format!("a released lease: {error}"))?;
        assert!(matches!(standing, Leadership::Leads(_)));
        let key = ObjectKey::of(&generation).expect("it has a name");
        assert_eq!(self.kube.get(&key).await.map_err(told("get lease"))?, None);
        self.kube.create(generation).await.map_err(told("create lease"))?;
        let patch = json!({"metadata": {"annotations": {"tenon.dev/generation-written": "1"}}});
        self.kube.patch(&key, &patch, &Precondition::None).await.map_err(told("patch lease"))?;
        Ok(())
    }
}

fn told(what: &str) -> impl Fn(KubeError) -> String + '_ {
    move |error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{what}: {error}: {cause}")
    }
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Because", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}
