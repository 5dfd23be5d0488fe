//! Equal pods change places in a plan, so that few nodes share a replacement.
//!
//! A plan deals equal pods by their age, so the pods of one node come to several replacements, and nodes that have nothing
//! to do with each other are one move. Here a replacement takes the pods of whole nodes as far as it can. Moves are
//! smaller then: each fits into a budget and a transaction, and one that fails leaves the others alone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::api::pod::PodShape;
use tenon_domain::id::Uid;
use tenon_domain::launch::CountedPod;

use crate::provision::{ProvisionPlan, counted};

/// Numbers of shapes, by the order in which they come.
#[derive(Default)]
struct Shapes<'a> {
    known: BTreeMap<&'a PodShape, usize>,
    /// Most equal pods share theirs, so that few are compared.
    shared: HashMap<*const PodShape, usize>,
}

impl<'a> Shapes<'a> {
    fn of(&mut self, pod: &'a Pod) -> usize {
        let next = self.known.len();
        let known = &mut self.known;
        *self
            .shared
            .entry(Arc::as_ptr(&pod.shape))
            .or_insert_with(|| *known.entry(&pod.shape).or_insert(next))
    }
}

/// How many pods of which shapes.
type Places = BTreeMap<usize, usize>;

/// The pods that have no place yet, by node, then by shape.
struct PodsLeft<'a>(Vec<BTreeMap<usize, VecDeque<&'a Pod>>>);

/// Deals a plan's places for the pods of these nodes anew, among equal pods.
pub(super) fn keep_together<'a>(plan: &mut ProvisionPlan, nodes: impl Iterator<Item = &'a [Pod]>) {
    let (mut shapes, mut shape_of, mut waiting) =
        (Shapes::default(), HashMap::<&Uid, usize>::new(), PodsLeft(Vec::new()));
    for pods in nodes {
        let mut of_node: BTreeMap<usize, VecDeque<&Pod>> = BTreeMap::new();
        for pod in pods {
            let shape = shapes.of(pod);
            shape_of.insert(&pod.uid, shape);
            of_node.entry(shape).or_default().push_back(pod);
        }
        waiting.0.push(of_node);
    }
    let places_of = |pods: &[CountedPod]| {
        let mut places = Places::new();
        pods.iter()
            .filter_map(|pod| shape_of.get(&pod.uid))
            .for_each(|shape| *places.entry(*shape).or_default() += 1);
        places
    };
    let mut places: Vec<Places> = plan.claims.iter().map(|claim| places_of(&claim.pods)).collect();
    let mut dealt: Vec<Vec<CountedPod>> =
        places.iter_mut().map(|places| waiting.whole_nodes(places)).collect();
    for (places, dealt) in places.iter().zip(&mut dealt) {
        for (shape, left) in places {
            dealt.extend((0..*left).map_while(|_| waiting.next(*shape)));
        }
    }
    for (claim, mut pods) in plan.claims.iter_mut().zip(dealt) {
        pods.sort();
        claim.pods = pods;
    }
    for placement in &mut plan.placements {
        let shape = shape_of.get(&placement.pod.uid).copied();
        if let Some(pod) = shape.and_then(|shape| waiting.next(shape)) {
            placement.pod = pod;
        }
    }
}

impl PodsLeft<'_> {
    /// The pods of nodes that find places for all of them, which they take.
    fn whole_nodes(&mut self, places: &mut Places) -> Vec<CountedPod> {
        let mut dealt = Vec::new();
        for node in &mut self.0 {
            let fits = |(shape, pods): (&usize, &VecDeque<&Pod>)| {
                pods.len() <= places.get(shape).copied().unwrap_or(0)
            };
            if !node.iter().all(fits) {
                continue;
            }
            for (shape, pods) in std::mem::take(node) {
                places.entry(shape).and_modify(|left| *left = left.saturating_sub(pods.len()));
                dealt.extend(pods.into_iter().map(counted));
            }
        }
        dealt
    }

    /// A pod of this shape.
    fn next(&mut self, shape: usize) -> Option<CountedPod> {
        self.0.iter_mut().find_map(|node| node.get_mut(&shape)?.pop_front()).map(counted)
    }
}
