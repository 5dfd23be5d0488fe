//! A cluster of `tests/servers/control-plane`, and the tests' operations on it.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, Request, Status};
use kube::discovery::{self, Scope};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Client, Config, Resource};
use serde_json::Value;
use tenon_domain::manifest;
use tokio::time::timeout;

use crate::definitions::definitions;

/// Nothing that a test waits for takes as long on two busy cores: it isn't going to happen.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The tests' field manager for server-side apply.
const MANAGER: &str = "tests";
/// How a test is run.
const START: &str = "tests/servers/control-plane -- cargo test --workspace --test cluster -- --ignored";

/// A client of a test cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

/// Whether a client repeats transiently refused requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retries {
    /// As kube-rs does.
    Default,
    /// It doesn't.
    None,
}

impl Cluster {
    /// The cluster as its administrator.
    ///
    /// # Panics
    /// If `tests/servers/control-plane` didn't start one: nothing here may touch another cluster.
    pub async fn admin() -> Self {
        assert!(
            std::env::var_os("TENON_AGENT_KUBECONFIG").is_some(),
            "there is no cluster for tests: {START}"
        );
        Self::of("KUBECONFIG", Retries::Default).await
    }

    /// The cluster as the agent's service account, with the rights of RBAC.
    ///
    /// # Panics If `tests/servers/control-plane` didn't start one.
    pub async fn agent() -> Self {
        Self::of("TENON_AGENT_KUBECONFIG", Retries::None).await
    }

    async fn of(variable: &str, retries: Retries) -> Self {
        let path = std::env::var(variable).unwrap_or_else(|_| panic!("`{variable}` isn't set: {START}"));
        let file = Kubeconfig::read_from(&path).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let mut config = config.expect("the kubeconfig is whole");
        // Like the agent's client, it doesn't use kube-rs' retries, which wait after a PodDisruptionBudget's refusal
        // (429).
        config.default_retry = retries == Retries::Default;
        let client = Client::try_from(config).expect("a client can be made of it");
        Self { client }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API of an object's kind in its namespace; the default namespace is `default`.
    pub async fn api_of(&self, object: &Value) -> Api<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let version = text("/apiVersion").expect("a manifest says its `apiVersion`");
        let kind = text("/kind").expect("a manifest says its `kind`");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let (resource, scope) = self.resource(&GroupVersionKind::gvk(group, version, kind)).await;
        match scope {
            Scope::Cluster => Api::all_with(self.client(), &resource),
            Scope::Namespaced => Api::namespaced_with(
                self.client(),
                text("/metadata/namespace").unwrap_or("default"),
                &resource,
            ),
        }
    }

    /// All objects of a kind, in all namespaces.
    pub async fn all(&self, version: &str, kind: &str) -> Vec<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let (resource, _) = self.resource(&GroupVersionKind::gvk(group, version, kind)).await;
        let api: Api<DynamicObject> = Api::all_with(self.client(), &resource);
        api.list(&ListParams::default()).await.expect("objects can be listed").items
    }

    async fn resource(&self, kind: &GroupVersionKind) -> (ApiResource, Scope) {
        let (resource, capabilities) = discovery::pinned_kind(&self.client, kind)
            .await
            .unwrap_or_else(|error| panic!("the cluster doesn't know `{kind:?}`: {error}"));
        (resource, capabilities.scope)
    }

    /// Applies every object of a text of YAML, server-side and strictly, and returns them as they are then.
    pub async fn apply(&self, yaml: &str) -> Vec<DynamicObject> {
        let mut applied = Vec::new();
        for object in manifest::objects("manifest", yaml) {
            applied.push(self.apply_object(&object).await);
        }
        assert!(!applied.is_empty(), "there is nothing to apply in:\n{yaml}");
        applied
    }

    /// Applies one object.
    pub async fn apply_object(&self, object: &Value) -> DynamicObject {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).expect("a manifest has a name");
        let params = PatchParams::apply(MANAGER).force().validation_strict();
        let applied = self.api_of(object).await.patch(name, &params, &Patch::Apply(object)).await;
        applied.unwrap_or_else(|error| panic!("`{name}` can't be applied: {error}\n{object:#}"))
    }

    /// Creates an object like `kubectl create --validate=strict --dry-run=server`: it isn't stored.
    ///
    /// # Errors The API server's error.
    pub async fn try_create(&self, object: &Value) -> Result<Value, Box<Status>> {
        let api = self.api_of(object).await;
        let body = serde_json::to_vec(object).expect("a value can be written");
        let params = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
        let request = Request::new(api.resource_url()).create(&params, body);
        let mut request = request.expect("a request can be made");
        *request.uri_mut() = strict(&request.uri().to_string()).parse().expect("a query can be added");
        answer(self.client.request(request).await)
    }

    /// Replaces an object in the same way.
    ///
    /// # Errors The API server's error.
    pub async fn try_replace(&self, object: &Value) -> Result<Value, Box<Status>> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).expect("a manifest has a name");
        let api = self.api_of(object).await;
        let there = api.get(name).await.unwrap_or_else(|error| panic!("`{name}` isn't there: {error}"));
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = there.metadata.resource_version.into();
        let body = serde_json::to_vec(&object).expect("a value can be written");
        let params = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
        let request = Request::new(api.resource_url()).replace(name, &params, body);
        let mut request = request.expect("a request can be made");
        *request.uri_mut() = strict(&request.uri().to_string()).parse().expect("a query can be added");
        answer(self.client.request(request).await)
    }

    /// Creates a Node with its status, as a kubelet does; server-side apply can't.
    pub async fn create_node(&self, yaml: &str) {
        for object in manifest::objects("node", yaml) {
            let node = serde_json::from_value(object).expect("a Node is written");
            let nodes: Api<Node> = Api::all(self.client());
            nodes.create(&PostParams::default(), &node).await.expect("a Node can be created");
        }
    }

    /// Deletes an object, and waits until it is removed.
    pub async fn delete(&self, object: &Value) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).expect("a manifest has a name");
        let api = self.api_of(object).await;
        let deleted = api.delete(name, &DeleteParams::default()).await.expect("what is there can be deleted");
        let uid = deleted.left().and_then(|object| object.metadata.uid).unwrap_or_default();
        self.wait_for(&api, name, conditions::is_deleted(&uid)).await;
    }

    /// Installs our CustomResourceDefinitions and waits until they are served.
    pub async fn install_definitions(&self) {
        for definition in definitions() {
            let applied = self.apply_object(&definition.object).await;
            let name = applied.metadata.name.expect("what was applied has a name");
            let api = Api::all(self.client());
            self.wait_for(&api, &name, conditions::is_crd_established()).await;
        }
    }

    /// Waits until an object fulfils a condition, and returns it.
    ///
    /// # Panics After [`DEADLINE`], with the object's last state.
    pub async fn wait_for<K>(&self, api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
    where
        K: Clone + Debug + Send + serde::de::DeserializeOwned + Resource + 'static,
    {
        match timeout(DEADLINE, await_condition(api.clone(), name, condition)).await {
            Ok(object) => object.expect("the API server can be watched"),
            Err(_) => {
                let last = api.get_opt(name).await;
                panic!("`{name}` isn't as expected after {} s: it is {last:#?}", DEADLINE.as_secs())
            }
        }
    }

    /// A namespace of this test's own.
    pub async fn namespace(&self, name: &str) -> String {
        let name = format!("{name}-{}", std::process::id());
        self.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await;
        name
    }
}

/// The URI under which unknown fields are errors instead of warnings.
fn strict(uri: &str) -> String {
    format!("{uri}&fieldValidation=Strict")
}

fn answer(result: Result<Value, kube::Error>) -> Result<Value, Box<Status>> {
    match result {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(status),
        Err(other) => panic!("the API server can't be asked: {other}"),
    }
}
