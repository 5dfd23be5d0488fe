//! PodDisruptionBudgets and the eviction subresource.
//!
//! Decides `status` of the budgets, and whether an eviction succeeds, like kube-apiserver's eviction REST handler and
//! the disruption controller. Each eviction computes the status anew, so none uses an old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::Evicted;
use super::pods::{self, is_active, is_healthy};
use super::scheduler::attached_volumes;
use super::selector::matches_labels;
use super::state::ClusterState;
use super::store::child;
use super::workloads::replicas;
use tenon_snapshot::kube::Eviction;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};

/// The status of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetStanding {
    expected: u32,
    healthy: u32,
    desired: u32,
}

impl BudgetStanding {
    const fn allowed(self) -> u32 {
        self.healthy.saturating_sub(self.desired)
    }
}

impl ClusterState {
    /// Computes the status of a namespace's budgets.
    pub(super) fn update_budgets(&mut self, namespace: &str) {
        let budgets: Vec<Object> = self.budgets_in(namespace).map(Arc::clone).collect();
        for budget in budgets {
            let Some(key) = ObjectKey::of(&budget) else { continue };
            let standing = self.standing(&budget);
            let generation =
                tenon_snapshot::object::at(&budget, "/metadata/generation").cloned().unwrap_or(Value::Null);
            self.store.change(&key, |budget| {
                let status = child(budget, "status");
                status.insert("expectedPods".to_owned(), json!(standing.expected));
                status.insert("currentHealthy".to_owned(), json!(standing.healthy));
                status.insert("desiredHealthy".to_owned(), json!(standing.desired));
                status.insert("disruptionsAllowed".to_owned(), json!(standing.allowed()));
                status.insert("observedGeneration".to_owned(), generation);
            });
        }
    }

    fn budgets_in(&self, namespace: &str) -> impl Iterator<Item = &Object> {
        self.store.all(Kind::PodDisruptionBudget).filter(move |budget| object::namespace(budget) == namespace)
    }

    fn standing(&self, budget: &Value) -> BudgetStanding {
        let covered: Vec<&Object> =
            self.store.all(Kind::Pod).filter(|pod| covers(budget, pod) && !pods::is_finished(pod)).collect();
        let healthy = number(covered.iter().filter(|pod| is_healthy(pod)).count());
        let scaled = || {
            let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
            let mut alone = 0;
            for pod in &covered {
                match object::controller(pod) {
                    Some(owner) => {
                        let key = text(owner, "/kind").and_then(Kind::parse).map(|kind| {
                            ObjectKey::new(
                                kind,
                                object::namespace(pod),
                                text(owner, "/name").unwrap_or_default(),
                            )
                        });
                        let scale =
                            key.and_then(|key| self.store.get(&key)).map_or(0, |owner| replicas(owner));
                        owners.insert(text(owner, "/uid").unwrap_or_default(), scale);
                    }
                    None => alone += 1,
                }
            }
            number(owners.values().sum::<usize>() + alone)
        };
        let spec = budget.get("spec").unwrap_or(&Value::Null);
        let (expected, desired) = match (spec.get("maxUnavailable"), spec.get("minAvailable")) {
            (Some(most), _) => {
                let expected = scaled();
                (expected, expected.saturating_sub(amount(most, expected)))
            }
            (None, Some(least @ Value::String(_))) => {
                let expected = scaled();
                (expected, amount(least, expected))
            }
            (None, Some(least)) => (number(covered.len()), amount(least, 0)),
            (None, None) => (number(covered.len()), 0),
        };
        BudgetStanding { expected, healthy, desired }
    }

    /// Evicts a pod if its budgets let it go.
    pub(super) fn evict(&mut self, key: &ObjectKey, uid: &str) -> Eviction {
        let Some(pod) = self.store.get(key).map(Arc::clone) else { return Eviction::NotFound };
        if object::uid(&pod) != uid {
            return Eviction::Conflict;
        }
        let pending = text(&pod, "/status/phase") == Some("Pending");
        if pods::is_finished(&pod) || pending || !is_active(&pod) {
            let _deleted = self.store.delete(key, None, self.now);
            return Eviction::Evicted;
        }
        let budgets: Vec<Object> =
            self.budgets_in(&key.namespace).filter(|budget| covers(budget, &pod)).map(Arc::clone).collect();
        if let [_, _, ..] = budgets.as_slice() {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Eviction::TooManyRequests { message: message.to_owned() };
        }
        let standings: Vec<(String, BudgetStanding)> =
            budgets.iter().map(|budget| (object::name(budget).to_owned(), self.standing(budget))).collect();
        for (budget, (name, standing)) in budgets.iter().zip(&standings) {
            if !lets_go(budget, *standing, &pod) {
                let message = format!(
                    "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget {name} needs {} healthy pods and has {} currently",
                    standing.desired, standing.healthy
                );
                return Eviction::TooManyRequests { message };
            }
        }
        self.evictions.push(Evicted {
            at: self.now,
            looked_at: self.looked_at.unwrap_or(self.now),
            pod: key.clone(),
            node: text(&pod, "/spec/nodeName").unwrap_or_default().to_owned(),
            grace: SignedDuration::from_secs(
                object::at(&pod, "/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30),
            ),
            guarded: !standings.is_empty(),
            has_volume: attached_volumes(&self.store, &pod).iter().any(|volume| !volume.shared),
            budgets: if is_healthy(&pod) {
                standings.into_iter().map(|(name, standing)| (name, standing.allowed())).collect()
            } else {
                Vec::new()
            },
        });
        let _deleted = self.store.delete(key, None, self.now);
        Eviction::Evicted
    }
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let empty = Value::Null;
    let labels = tenon_snapshot::object::at(pod, "/metadata/labels").unwrap_or(&empty);
    object::namespace(budget) == object::namespace(pod)
        && matches_labels(tenon_snapshot::object::at(budget, "/spec/selector"), labels)
}

/// Whether the budget allows this pod's eviction now. A pod that isn't Ready costs nothing, if the policy or the
/// budget says so.
fn lets_go(budget: &Value, standing: BudgetStanding, pod: &Value) -> bool {
    if standing.allowed() > 0 {
        return true;
    }
    let always = text(budget, "/spec/unhealthyPodEvictionPolicy") == Some("AlwaysAllow");
    let healthy_budget = standing.healthy >= standing.desired && standing.desired > 0;
    !is_healthy(pod) && (always || healthy_budget)
}

/// A number, or a share of the expected pods rounded up.
fn amount(value: &Value, expected: u32) -> u32 {
    let percent = |text: &str| text.strip_suffix('%').and_then(|text| text.parse::<u32>().ok());
    match value {
        Value::String(text) => percent(text).map_or_else(
            || text.parse().unwrap_or(0),
            |percent| expected.saturating_mul(percent).div_ceil(100),
        ),
        Value::Number(_) => value.as_u64().map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => 0,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
