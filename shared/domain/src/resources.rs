//! Lists of resources with their arithmetic: a pod's requests, a node's capacity.
//!
//! Decides a pod's requests and the rest of a capacity. It doesn't decide where a pod goes.
//!
//! Invariant: a resource that a list doesn't name counts as zero.
//!
//! Source: kubernetes-sigs/karpenter `pkg/utils/resources/resources.go`.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use crate::id::ParseIdError;
use crate::labels::is_qualified_name;
use crate::quantity::Quantity;

/// The name of a resource: `cpu`, `memory`, `nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Cow<'static, str>);

impl ResourceName {
    /// CPU, in cores.
    pub const CPU: Self = Self(Cow::Borrowed("cpu"));
    /// Memory, in bytes.
    pub const MEMORY: Self = Self(Cow::Borrowed("memory"));
    /// Ephemeral storage, in bytes.
    pub const EPHEMERAL_STORAGE: Self = Self(Cow::Borrowed("ephemeral-storage"));
    /// Pods, a count.
    pub const PODS: Self = Self(Cow::Borrowed("pods"));
    /// Elastic Fabric Adapters, a count.
    pub const EFA: Self = Self(Cow::Borrowed("vpc.amazonaws.com/efa"));
    /// NodePool limits' pseudo-resource: nodes, a count.
    pub const NODES: Self = Self(Cow::Borrowed("nodes"));

    /// A name known at compile time, such as `nvidia.com/gpu`.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Reads a resource's name: a qualified name.
    ///
    /// # Errors
    /// [`ParseIdError`] when it isn't one.
    pub fn parse(text: impl Into<String>) -> Result<Self, ParseIdError> {
        let text = text.into();
        if is_qualified_name(&text) {
            Ok(Self(Cow::Owned(text)))
        } else {
            let expected = "a resource such as `cpu`, `memory` or `nvidia.com/gpu`";
            Err(ParseIdError { kind: "resource name", value: text, expected })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_huge_pages(&self) -> bool {
        self.0.starts_with("hugepages-")
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Quantities by resource, ordered by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceList(BTreeMap<ResourceName, Quantity>);

/// The first resource, by name, of which there isn't enough.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("`{requested}` of `{resource}` is requested, `{available}` is available")]
pub struct Shortage {
    /// The resource.
    pub resource: ResourceName,
    /// The requested amount.
    pub requested: Quantity,
    /// How much there is.
    pub available: Quantity,
}

impl ResourceList {
    /// Nothing of anything.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// How much of a resource; zero if it isn't named.
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> Quantity {
        self.0.get(name).copied().unwrap_or(Quantity::ZERO)
    }

    /// Whether the resource is named, even with zero.
    #[must_use]
    pub fn contains(&self, name: &ResourceName) -> bool {
        self.0.contains_key(name)
    }

    /// Whether nothing is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many resources are named.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets a resource.
    pub fn insert(&mut self, name: ResourceName, quantity: Quantity) {
        self.0.insert(name, quantity);
    }

    /// This list with one resource set.
    #[must_use]
    pub fn with(mut self, name: ResourceName, quantity: Quantity) -> Self {
        self.insert(name, quantity);
        self
    }

    /// The resources by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, quantity)| (name, *quantity))
    }

    /// Adds another list, resource by resource.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, Quantity::saturating_add);
    }

    /// The sum of this and another list.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    /// Takes another list away. Only resources that this one names are touched; they may become negative.
    pub fn subtract(&mut self, other: &Self) {
        for (name, quantity) in &mut self.0 {
            *quantity = quantity.saturating_sub(other.get(name));
        }
    }

    /// This list less another; see [`ResourceList::subtract`].
    #[must_use]
    pub fn minus(mut self, other: &Self) -> Self {
        self.subtract(other);
        self
    }

    /// Raises each resource to the other's.
    pub fn raise(&mut self, other: &Self) {
        self.combine(other, Quantity::max);
    }

    /// The larger of the two, resource by resource.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        self.raise(other);
        self
    }

    /// Takes from the other list the resources that this one doesn't name.
    pub fn merge(&mut self, other: &Self) {
        self.combine(other, |own, _| own);
    }

    /// The sum of lists.
    #[must_use]
    pub fn sum<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Self {
        lists.into_iter().fold(Self::new(), Self::plus)
    }

    /// This without the resources that are zero.
    #[must_use]
    pub fn without_zeroes(mut self) -> Self {
        self.0.retain(|_, quantity| !quantity.is_zero());
        self
    }

    /// Whether this fits into `available`. Nothing fits if a resource is overdrawn.
    #[must_use]
    pub fn fits(&self, available: &Self) -> bool {
        self.shortage(available).is_none()
    }

    /// Why this doesn't fit into `available`; `None` if it does.
    #[must_use]
    pub fn shortage(&self, available: &Self) -> Option<Shortage> {
        let overdrawn = available.iter().find(|(_, quantity)| quantity.is_negative());
        let lacking = || self.iter().find(|(name, quantity)| *quantity > available.get(name));
        let (name, _) = overdrawn.or_else(lacking)?;
        Some(Shortage { resource: name.clone(), requested: self.get(name), available: available.get(name) })
    }

    fn combine(&mut self, other: &Self, with: impl Fn(Quantity, Quantity) -> Quantity) {
        for (name, quantity) in &other.0 {
            match self.0.entry(name.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(*quantity);
                }
                Entry::Occupied(mut entry) => {
                    let sum = with(*entry.get(), *quantity);
                    entry.insert(sum);
                }
            }
        }
    }
}

impl FromIterator<(ResourceName, Quantity)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Quantity)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

/// `cpu: 3600m, memory: 6000Mi`.
impl fmt::Display for ResourceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, quantity)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name}: {quantity}")?;
        }
        Ok(())
    }
}

/// The resources of one container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ContainerResources {
    /// `resources.requests`.
    pub requests: ResourceList,
    /// `resources.limits`: they stand in for requests that are absent.
    pub limits: ResourceList,
    /// `status.…allocatedResources` and `status.…resources`: the node's reserve while it is resized in place.
    pub allocated: ResourceList,
}

impl ContainerResources {
    /// The container's effective requests.
    #[must_use]
    pub fn effective_requests(&self) -> ResourceList {
        let mut effective = self.requests.clone();
        effective.merge(&self.limits);
        effective.raise(&self.allocated);
        effective
    }
}

/// Whether an init container ends before the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InitRestart {
    /// It runs to its end, then the next one starts.
    OnCompletion,
    /// `restartPolicy: Always`: a sidecar, which runs beside later containers.
    Always,
}

/// An init container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitContainer {
    /// Its resources.
    pub resources: ContainerResources,
    /// Whether it is a sidecar.
    pub restart: InitRestart,
}

/// All resources of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PodResources {
    /// `spec.containers`.
    pub containers: Vec<ContainerResources>,
    /// `spec.initContainers`, in their order.
    pub init_containers: Vec<InitContainer>,
    /// `spec.overhead`.
    pub overhead: ResourceList,
    /// `spec.resources`: requests for the pod as a whole, instead of the sum over its containers.
    pub pod_level: Option<ContainerResources>,
}

impl PodResources {
    /// The pod's requests, with `pods: 1`.
    #[must_use]
    pub fn requests(&self) -> ResourceList {
        let mut running = ResourceList::new();
        for container in &self.containers {
            running.add(&container.effective_requests());
        }
        let mut sidecars = ResourceList::new();
        let mut starting = ResourceList::new();
        for init in &self.init_containers {
            let own = init.resources.effective_requests();
            match init.restart {
                InitRestart::Always => {
                    sidecars.add(&own);
                    starting.raise(&sidecars);
                }
                InitRestart::OnCompletion => starting.raise(&own.plus(&sidecars)),
            }
        }
        let mut total = running.plus(&sidecars).max(&starting);
        if let Some(pod) = &self.pod_level {
            for (name, quantity) in pod.requests.iter() {
                total.insert(name.clone(), quantity);
            }
            // The API server's defaults: the containers' requests, else the limit; of huge pages always the limit.
            // Source: kubernetes/kubernetes `pkg/apis/core/v1/defaults.go`, `defaultPodRequests`.
            let huge_pages = pod.limits.iter().filter(|(name, _)| name.is_huge_pages());
            for (name, quantity) in huge_pages.filter(|(name, _)| !pod.requests.contains(name)) {
                total.insert(name.clone(), quantity);
            }
            total.merge(&pod.limits);
            total.raise(&pod.allocated);
        }
        total.add(&self.overhead);
        total.insert(ResourceName::PODS, Quantity::from_integer(1));
        total
    }
}

/// A node's resources for pods: its capacity less the overhead, memory less huge pages, never negative.
#[must_use]
pub fn allocatable(capacity: &ResourceList, overhead: &ResourceList) -> ResourceList {
    let huge_pages = capacity
        .iter()
        .filter(|(name, _)| name.is_huge_pages())
        .fold(Quantity::ZERO, |sum, (_, quantity)| sum.saturating_add(quantity));
    let left = capacity.clone().minus(overhead);
    left.iter()
        .map(|(name, quantity)| {
            let taken = if *name == ResourceName::MEMORY { huge_pages } else { Quantity::ZERO };
            (name.clone(), quantity.saturating_sub(taken).at_least_zero())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[(&str, &str)]) -> ResourceList {
        items.iter().map(|(n, q)| (ResourceName::parse(*n).unwrap(), Quantity::parse(q).unwrap())).collect()
    }

    fn container(cpu: &str, memory: &str) -> ContainerResources {
        ContainerResources { requests: list(&[("cpu", cpu), ("memory", memory)]), ..Default::default() }
    }

    fn init(cpu: &str, memory: &str) -> InitContainer {
        InitContainer { resources: container(cpu, memory), restart: InitRestart::OnCompletion }
    }

    fn sidecar(cpu: &str, memory: &str) -> InitContainer {
        InitContainer { resources: container(cpu, memory), restart: InitRestart::Always }
    }

    fn check(pod: &PodResources, cpu: &str, memory: &str) {
        assert_eq!(pod.requests(), list(&[("cpu", cpu), ("memory", memory), ("pods", "1")]), "{pod:?}");
    }

    fn pod(main: (&str, &str), init_containers: Vec<InitContainer>) -> PodResources {
        PodResources { containers: vec![container(main.0, main.1)], init_containers, ..Default::default() }
    }

    #[test]
    fn c008_pod_requests_with_sidecars_and_overhead() {
        check(&pod(("2", "1Gi"), vec![sidecar("1", "2Gi")]), "3", "3Gi");
        let mut with_overhead = pod(("2", "1Gi"), vec![init("4", "2Gi"), sidecar("3", "3Gi")]);
        with_overhead.overhead = list(&[("cpu", "5"), ("memory", "1Gi")]);
        check(&with_overhead, "10", "5Gi");
        check(&pod(("2", "1Gi"), vec![sidecar("4", "2Gi"), init("10", "2Gi")]), "14", "4Gi");
        check(&pod(("2", "1Gi"), vec![sidecar("4", "3Gi"), init("1", "1Gi")]), "6", "4Gi");
    }

    #[test]
    fn c008_chains_of_sidecars_and_init_containers() {
        let all = vec![
            init("10", "1Gi"),
            sidecar("1", "1Gi"),
            sidecar("5", "1Gi"),
            init("25", "1Gi"),
            sidecar("2", "1Gi"),
        ];
        // The fourth runs beside the two sidecars before it: 25 + 1 + 5.
        check(&pod(("3", "1Gi"), all), "31", "4Gi");
        let sidecars_last =
            vec![init("10", "1Gi"), init("14", "1Gi"), sidecar("3", "1Gi"), sidecar("5", "1Gi")];
        check(&pod(("1", "1Gi"), sidecars_last), "14", "3Gi");
        let mains_win = vec![init("3", "1Gi"), sidecar("10", "1Gi"), sidecar("10", "1Gi")];
        check(&pod(("5", "1Gi"), mains_win), "25", "3Gi");
    }

    #[test]
    fn limits_stand_in_for_requests_that_are_absent() {
        let mut main = container("1", "1Gi");
        main.limits = list(&[("cpu", "4"), ("nvidia.com/gpu", "1")]);
        let pod = PodResources { containers: vec![main], ..Default::default() };
        assert_eq!(pod.requests().to_string(), "cpu: 1, memory: 1Gi, nvidia.com/gpu: 1, pods: 1");
    }

    #[test]
    fn a_resize_in_place_holds_the_larger_of_both() {
        let mut main = container("1", "2Gi");
        main.allocated = list(&[("cpu", "3"), ("memory", "1Gi")]);
        check(&PodResources { containers: vec![main], ..Default::default() }, "3", "2Gi");
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let mut whole = pod(("1", "1Gi"), vec![sidecar("1", "1Gi")]);
        whole.pod_level = Some(ContainerResources { requests: list(&[("cpu", "5")]), ..Default::default() });
        whole.overhead = list(&[("cpu", "1")]);
        check(&whole, "6", "2Gi");
    }

    #[test]
    fn a_limit_of_the_pod_stands_in_for_what_neither_it_nor_a_container_requests() {
        let limited = |containers: Vec<ContainerResources>, limits: &[(&str, &str)]| PodResources {
            containers,
            pod_level: Some(ContainerResources { limits: list(limits), ..Default::default() }),
            ..Default::default()
        };
        let limits = [("cpu", "1800m"), ("memory", "1Gi")];
        check(&limited(vec![container("100m", "128Mi")], &limits), "100m", "128Mi");
        check(&limited(vec![ContainerResources::default()], &limits), "1800m", "1Gi");
        let paged = ContainerResources { requests: list(&[("hugepages-2Mi", "2Mi")]), ..Default::default() };
        let pod = limited(vec![paged], &[("hugepages-2Mi", "8Mi")]);
        assert_eq!(pod.requests().to_string(), "hugepages-2Mi: 8Mi, pods: 1");
    }

    #[test]
    fn c010_huge_pages_come_out_of_memory_which_never_turns_negative() {
        let overhead = list(&[("cpu", "125m"), ("memory", "1Gi")]);
        let check = |small: &str, memory: &str| {
            let capacity = list(&[
                ("cpu", "5"),
                ("memory", "20Gi"),
                ("hugepages-2Mi", small),
                ("hugepages-1Gi", "10Gi"),
            ]);
            let left = allocatable(&capacity, &overhead);
            assert_eq!(left.get(&ResourceName::CPU).to_string(), "4875m");
            assert_eq!(left.get(&ResourceName::MEMORY).to_string(), memory);
        };
        check("5Gi", "4Gi");
        check("50Gi", "0");
    }

    #[test]
    fn zero_of_an_unknown_resource_fits_and_an_overdrawn_node_takes_nothing() {
        let node = list(&[("cpu", "2")]);
        assert!(list(&[("cpu", "2"), ("example.com/foo", "0")]).fits(&node));
        let shortage = list(&[("example.com/foo", "1")]).shortage(&node).unwrap();
        assert_eq!(shortage.to_string(), "`1` of `example.com/foo` is requested, `0` is available");
        assert!(!list(&[]).fits(&list(&[("cpu", "-1")])));
    }
}
