//! `node-classes`: the resolved resources of each EC2NodeClass, and its conditions.
//!
//! A class's spec comes from the agent's snapshot, its allowances from the registry, its resources from EC2. Subnets,
//! security groups and images are queried together, and all conditions follow from that one observation. A sweep of
//! an unchanged world ends after one read. A change of an image concerns the classes that select it: only their images
//! are resolved again, from the records of `images` where a recent sweep asked EC2 the same. Every five minutes EC2 is queried anyway, because events of images can be
//! lost. With the cluster's setting `zonal_shift` Enabled everything is queried every minute, because ARC sends no
//! event of an operator's shift. It doesn't create instance profiles or launch templates, and doesn't mark drift.
//!
//! Invariants: only images that EC2 last returned as available are resolved, and only those that the class
//! accepts or has already; every resolved resource is
//! allowed by the cluster's registry entry; an Unknown condition has a reason and a time of the next try.

pub mod alias;
mod answers;
mod change;
pub mod choose;
mod commit;
mod execute;
pub mod failed_image;
pub mod image_snapshots;
mod item;
pub mod judge_image;
mod look;
mod news;
mod observe;
pub mod plan;
pub mod profile;
mod refused_image;
pub mod resolve;
pub mod spec;
pub mod spec_form;
mod verdicts;

use std::collections::BTreeSet;

use tenon_domain::id::{ClusterName, ImageId};
use tenon_domain::report::Report;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_runtime::{Handler, HandlerError, Ports, WakeScope};
use tenon_snapshot::snapshot::ChunkCaches;
use tenon_state::pass::{AfterCommit, End, Of, Pass, SeenOf, Waits, run};

use crate::commit::CommittedClasses;
use crate::news::RegionImages;
use crate::observe::{ClassesLook, NodeClassesObservation};
use crate::plan::{NodeClassesPlan, RETRY_AFTER};

/// The function. Keeps chunks of snapshots between wakes: they never change under their digest.
#[derive(Debug)]
pub struct NodeClasses {
    chunks: ChunkCaches,
}

impl Default for NodeClasses {
    fn default() -> Self {
        Self { chunks: ChunkCaches::of_classes() }
    }
}

/// The causes of a wake, beside a pass's own schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassesWake {
    /// Which images may have changed.
    pub(crate) images: ChangedImages,
    /// Whether ARC announced a shift.
    pub(crate) shifts: bool,
    /// Whether `provisioner` reported on launches.
    pub(crate) launches: bool,
    /// Whether there is any cause besides changes of named images.
    pub(crate) others: bool,
}

/// Which images a wake is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedImages {
    /// Any may have changed.
    Any,
    /// These; often none.
    These(BTreeSet<ImageId>),
}

impl Handler for NodeClasses {
    fn name(&self) -> FunctionName {
        FunctionName::NodeClasses
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let told = told(causes);
        let clusters = match scope {
            WakeScope::Cluster(cluster) => vec![cluster.clone()],
            WakeScope::Region => observe::clusters(ports).await?,
        };
        let images = RegionImages::default();
        // A failing cluster doesn't stop the others.
        let mut failed = None;
        for cluster in clusters {
            let (cluster, chunks) = (&cluster, &self.chunks);
            let pass = ClassesPass { ports, cluster, chunks, images: &images, told: &told, causes };
            if let Err(error) = run(&pass).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A look at a cluster's classes.
struct ClassesPass<'a, P> {
    ports: &'a P,
    cluster: &'a ClusterName,
    chunks: &'a ChunkCaches,
    images: &'a RegionImages,
    told: &'a ClassesWake,
    causes: &'a [WakeCause],
}

/// The result of a pass's observations.
#[derive(Debug, Default)]
struct NodeClassesDone {
    plan: Option<NodeClassesPlan>,
    committed: CommittedClasses,
}

impl<P: Ports> Pass for ClassesPass<'_, P> {
    type Ports = P;
    type Input = NodeClassesObservation;
    type Plan = Option<NodeClassesPlan>;
    type Done = NodeClassesDone;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::NodeClasses
    }

    fn of(&self) -> Of<'_> {
        Of::Cluster(self.cluster)
    }

    async fn observe(&self, _: &mut NodeClassesDone) -> Result<Option<NodeClassesObservation>, HandlerError> {
        let mut chunks = self.chunks.take(self.cluster);
        let look = ClassesLook { told: self.told, images: self.images, causes: self.causes };
        let observed = observe::observe(self.ports, self.cluster, look, &mut chunks).await;
        self.chunks.put(self.cluster, chunks);
        observed
    }

    fn plan(&self, observed: &NodeClassesObservation) -> (Option<NodeClassesPlan>, Report) {
        match &observed.found {
            Ok(input) => {
                let (plan, report) = plan::plan(input);
                (Some(plan), report)
            }
            Err(waiting) => {
                let mut report = Report::default();
                report.wait(waiting);
                (None, report)
            }
        }
    }

    async fn commit(
        &self,
        _: &NodeClassesObservation,
        plan: Option<NodeClassesPlan>,
        looked: &mut NodeClassesDone,
    ) -> Result<AfterCommit, HandlerError> {
        if let Some(plan) = &plan {
            looked.committed = commit::commit(self.ports, self.cluster, plan).await?;
        }
        looked.plan = plan;
        Ok(AfterCommit::Settled)
    }

    async fn execute(
        &self,
        _: &NodeClassesObservation,
        looked: &mut NodeClassesDone,
    ) -> Result<(), HandlerError> {
        if let Some(plan) = &looked.plan {
            execute::execute(self.ports, self.cluster, plan, &looked.committed).await;
        }
        Ok(())
    }

    fn end(&self, observed: NodeClassesObservation, looked: &NodeClassesDone) -> End {
        let after = |by| self.ports.now().saturating_add(by).ok();
        // The next sweep can't rely on a look that lost a race.
        if !looked.committed.lost.is_empty() {
            return End { seen: None, wake_at: after(RETRY_AFTER) };
        }
        let unrecorded = looked.plan.as_ref().is_some_and(|plan| plan.unrecorded);
        let seen = (!unrecorded).then(|| SeenOf {
            generations: observed.generations,
            deadline: looked.plan.as_ref().map(|plan| plan.look_at),
            due: None,
            before: observed.before,
            waits: Waits::Deadline,
            offerings: Vec::new(),
            offerings_at: None,
        });
        let wake_at = looked.plan.as_ref().and_then(|plan| plan.retry_after).and_then(after);
        End { seen, wake_at }
    }
}

fn told(causes: &[WakeCause]) -> ClassesWake {
    let mut told = ClassesWake {
        images: ChangedImages::These(BTreeSet::new()),
        shifts: false,
        launches: false,
        others: false,
    };
    for cause in causes {
        match cause {
            WakeCause::ImageChanged(Some(image)) => {
                if let ChangedImages::These(named) = &mut told.images {
                    named.insert(image.clone());
                }
                continue;
            }
            WakeCause::ImageChanged(None) => told.images = ChangedImages::Any,
            WakeCause::ZonalShift => told.shifts = true,
            WakeCause::StateChanged => told.launches = true,
            WakeCause::Sweep
            | WakeCause::Refresh(_)
            | WakeCause::SnapshotChanged
            | WakeCause::InstanceState { .. }
            | WakeCause::Interruption { .. } => {}
        }
        told.others = true;
    }
    told
}
