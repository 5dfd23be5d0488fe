//! The form of `ACTION#<claim>`: the target state of a claim's Node. Functions write it, the agent reads it.
//!
//! Decides the form, version 1. An action is level-triggered: one item a claim, which later steps overwrite. Each
//! kind includes the kinds before it, so an agent that was away misses nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_table::{Item, ItemError, Key, from_item, to_item};

/// The version of the form that is written.
pub const VERSION: u32 = 1;
/// The prefix of actions' sort keys.
pub const PREFIX: &str = "ACTION#";

/// The target state of a claim's Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAction {
    /// The claim.
    pub claim: ClaimName,
    /// The claim's revision at the action; the agent's reports name it.
    pub number: u64,
    /// The Node's target state.
    pub kind: ActionKind,
    /// `spec.providerID` of the Node; absent if the claim never had an instance.
    pub provider_id: Option<String>,
    /// The Node's name, if known.
    pub node: Option<String>,
    /// Labels that it gets when it is registered.
    pub labels: BTreeMap<String, String>,
    /// Annotations that it gets when it is registered.
    pub annotations: BTreeMap<String, String>,
    /// Taints that it gets when it is registered.
    pub taints: Vec<Taint>,
    /// Taints that it gets when it is registered and that others take away.
    pub startup_taints: Vec<Taint>,
    /// The end of a drain: a pod whose grace period doesn't fit before it is deleted without eviction.
    pub deadline: Option<Timestamp>,
    /// Whether a drain keeps pods until their replacements take them, as long as the deadline allows.
    pub replacement: ReplacementOrder,
}

tenon_domain::words! {
    /// A Node's target state, in the order of a node's life. The table has its word.
    pub enum ActionKind {
        /// Sets the claim's labels, annotations, taints and our finalizer; removes `karpenter.sh/unregistered`.
        Register,
        /// Gets the label `karpenter.sh/initialized`.
        Initialize,
        /// Gets the taint `karpenter.sh/disrupted:NoSchedule`.
        Disrupt,
        /// Is deleted, held by our finalizer, and its pods are evicted.
        Drain,
        /// Removes the Node's finalizer.
        Finalize,
    }
}

/// Whether a drain waits for replacements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplacementOrder {
    /// Its pods are evicted at once.
    #[default]
    Anytime,
    /// A pod is evicted when its replacement is ready, as far as the deadline allows.
    First,
}

/// An action that can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The item isn't of the form.
    #[error("the action isn't of the form `v: {VERSION}`")]
    Form(#[source] ItemError),
    /// A version that this reader doesn't know.
    #[error("the action has version `{found}`: expected up to {}, update the agent", VERSION + 1)]
    Version {
        /// The version found.
        found: u32,
    },
    /// A field with a value that it can't have.
    #[error("`{field}` of the action can't be `{value}`")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        value: String,
    },
}

/// The key of a claim's action.
#[must_use]
pub fn action_key(cluster: &ClusterName, claim: &ClaimName) -> Key {
    Key::new(partition(cluster), format!("{PREFIX}{claim}"))
}

/// The partition that holds a cluster's actions.
#[must_use]
pub fn partition(cluster: &ClusterName) -> String {
    format!("CLUSTER#{cluster}")
}

impl NodeAction {
    /// The action as an item.
    ///
    /// # Errors
    /// [`ActionError::Form`], where the table can't hold it.
    pub fn to_item(&self) -> Result<Item, ActionError> {
        let form = NodeActionForm {
            v: VERSION,
            claim: self.claim.as_str().to_owned(),
            number: self.number,
            kind: self.kind.as_str().to_owned(),
            provider_id: self.provider_id.clone(),
            node: self.node.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            taints: self.taints.iter().map(TaintForm::from).collect(),
            startup_taints: self.startup_taints.iter().map(TaintForm::from).collect(),
            deadline: self.deadline.map(|deadline| deadline.to_string()),
            replacement_first: (self.replacement == ReplacementOrder::First).then_some(true),
        };
        to_item(&form).map_err(ActionError::Form)
    }

    /// Reads an item. Unknown attributes are ignored.
    ///
    /// # Errors [`ActionError`] names the problem.
    pub fn from_item(item: &Item) -> Result<Self, ActionError> {
        let form: NodeActionForm = from_item(item).map_err(ActionError::Form)?;
        if form.v > VERSION + 1 {
            return Err(ActionError::Version { found: form.v });
        }
        let wrong = |field, value: &str| ActionError::Field { field, value: value.to_owned() };
        let deadline = match &form.deadline {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| wrong("deadline", text))?),
        };
        Ok(Self {
            claim: ClaimName::parse(form.claim.clone()).map_err(|_| wrong("claim", &form.claim))?,
            number: form.number,
            kind: ActionKind::parse(&form.kind).ok_or_else(|| wrong("kind", &form.kind))?,
            provider_id: form.provider_id,
            node: form.node,
            labels: form.labels,
            annotations: form.annotations,
            taints: read_taints("taints", form.taints)?,
            startup_taints: read_taints("startup_taints", form.startup_taints)?,
            deadline,
            replacement: match form.replacement_first {
                Some(true) => ReplacementOrder::First,
                Some(false) | None => ReplacementOrder::Anytime,
            },
        })
    }
}

fn read_taints(field: &'static str, forms: Vec<TaintForm>) -> Result<Vec<Taint>, ActionError> {
    let read = |form: TaintForm| {
        let effect = TaintEffect::parse(&form.effect)
            .ok_or_else(|| ActionError::Field { field, value: format!("{}:{}", form.key, form.effect) })?;
        Ok(Taint { key: form.key, value: form.value, effect })
    };
    forms.into_iter().map(read).collect()
}

#[derive(Serialize, Deserialize)]
struct NodeActionForm {
    v: u32,
    claim: String,
    number: u64,
    kind: String,
    provider_id: Option<String>,
    node: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<TaintForm>,
    #[serde(default)]
    startup_taints: Vec<TaintForm>,
    deadline: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacement_first: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct TaintForm {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

impl From<&Taint> for TaintForm {
    fn from(taint: &Taint) -> Self {
        Self { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect.as_str().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_table::Value;

    fn action() -> NodeAction {
        NodeAction {
            claim: ClaimName::parse("default-3k9x2").unwrap(),
            number: 7,
            kind: ActionKind::Drain,
            provider_id: Some("aws:///us-east-1a/i-0abc".into()),
            node: Some("ip-10-0-0-1.ec2.internal".into()),
            labels: BTreeMap::from([("karpenter.sh/nodepool".into(), "default".into())]),
            annotations: BTreeMap::from([("karpenter.sh/nodepool-hash".into(), "1".into())]),
            taints: vec![Taint { value: "a".into(), ..Taint::new("team", TaintEffect::NoSchedule) }],
            startup_taints: vec![Taint::new("cilium", TaintEffect::NoExecute)],
            deadline: Some("2026-01-01T00:02:00Z".parse().unwrap()),
            replacement: ReplacementOrder::First,
        }
    }

    #[test]
    fn the_form_is_stable() {
        insta::assert_snapshot!(format!("{:#?}", action().to_item().unwrap()));
    }

    #[test]
    fn an_action_comes_back_as_it_was() {
        let item = action().to_item().unwrap();
        assert_eq!(NodeAction::from_item(&item).unwrap(), action());
        let bare = NodeAction {
            provider_id: None,
            node: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: vec![],
            startup_taints: vec![],
            deadline: None,
            replacement: ReplacementOrder::Anytime,
            ..action()
        };
        assert_eq!(NodeAction::from_item(&bare.to_item().unwrap()).unwrap(), bare);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let check = |field: &str, value: Value, expected: &str| {
            let mut item = action().to_item().unwrap();
            item.insert(field.to_owned(), value);
            assert_eq!(NodeAction::from_item(&item).unwrap_err().to_string(), expected);
        };
        check("kind", Value::text("Explode"), "`kind` of the action can't be `Explode`");
        check("deadline", Value::text("soon"), "`deadline` of the action can't be `soon`");
        check("v", Value::number(3_u64), "the action has version `3`: expected up to 2, update the agent");
        check("number", Value::text("one"), "the action isn't of the form `v: 1`");
    }

    #[test]
    fn one_item_a_claim() {
        let cluster = ClusterName::parse("prod").unwrap();
        assert_eq!(action_key(&cluster, &action().claim).to_string(), "CLUSTER#prod/ACTION#default-3k9x2");
    }
}
