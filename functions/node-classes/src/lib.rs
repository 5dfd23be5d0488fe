//! `node-classes`: what each EC2NodeClass resolves to, and its conditions.
//!
//! A class's spec comes from the agent's snapshot, what it may use from the registry, what there is from EC2. Subnets,
//! security groups and images are looked up together, and all conditions follow from that one observation. A sweep of
//! an unchanged world ends after one read, but every five minutes EC2 is asked all the same: events of images can be
//! lost. Where the cluster's setting `zonal_shift` is Enabled everything is asked every minute, because ARC sends no
//! event of an operator's shift. It doesn't make instance profiles or launch templates, and doesn't drift anything.
//!
//! Invariants: only an image that EC2 called available in this look is resolved to; nothing that the cluster's
//! registry doesn't allow is; a condition is Unknown only with a reason and a time of the next try.

mod commit;
mod execute;
mod item;
mod observe;
pub mod plan;
pub mod resolve;
pub mod spec;
pub mod spec_form;

use std::collections::BTreeSet;

use tenon_domain::id::{ClusterName, ImageId};
use tenon_domain::wake::{Cause, FunctionName};
use tenon_runtime::{Handler, HandlerError, Ports, Scope};
use tenon_snapshot::snapshot::ChunkCaches;
use tenon_state::view::sharpness;
use tenon_table::Consistency;

use crate::observe::Observed;

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

/// What a wake is about, beside what a look finds by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// Which images may have changed.
    pub(crate) images: Images,
    /// Whether ARC said something of a zone.
    pub(crate) shifts: bool,
}

/// Which images a wake is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Images {
    /// Any may have changed.
    Any,
    /// These; often none.
    These(BTreeSet<ImageId>),
}

impl Handler for NodeClasses {
    fn name(&self) -> FunctionName {
        FunctionName::NodeClasses
    }

    async fn handle<P: Ports>(&self, ports: &P, scope: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        let told = told(causes);
        let clusters = match scope {
            Scope::Cluster(cluster) => vec![cluster.clone()],
            Scope::Region => observe::clusters(ports).await?,
        };
        // A cluster that can't be looked at keeps no other from it.
        let mut failed = None;
        for cluster in clusters {
            if let Err(error) = self.look(ports, &cluster, (&told, sharpness(causes))).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl NodeClasses {
    async fn look<P: Ports>(
        &self,
        ports: &P,
        cluster: &ClusterName,
        (told, sharpness): (&Told, Consistency),
    ) -> Result<(), HandlerError> {
        let mut chunks = self.chunks.take(cluster);
        let observed = observe::observe(ports, cluster, (told, sharpness), &mut chunks).await;
        self.chunks.put(cluster, chunks);
        let input = match observed? {
            Observed::Nothing => return Ok(()),
            Observed::Waits { told_before: true, .. } => return Ok(()),
            Observed::Waits { waiting, seen, told_before: false } => {
                return commit::commit_waiting(ports, cluster, &waiting, &seen).await;
            }
            Observed::Input(input) => input,
        };
        let (plan, _report) = plan::plan(&input);
        let committed = commit::commit(ports, cluster, &plan).await?;
        execute::execute(ports, cluster, &plan, &committed).await;
        Ok(())
    }
}

fn told(causes: &[Cause]) -> Told {
    let mut told = Told { images: Images::These(BTreeSet::new()), shifts: false };
    for cause in causes {
        match cause {
            Cause::ImageChanged(None) => told.images = Images::Any,
            Cause::ImageChanged(Some(image)) => {
                if let Images::These(named) = &mut told.images {
                    named.insert(image.clone());
                }
            }
            Cause::ZonalShift => told.shifts = true,
            Cause::Sweep
            | Cause::Refresh(_)
            | Cause::SnapshotChanged
            | Cause::StateChanged
            | Cause::InstanceState { .. }
            | Cause::Interruption { .. } => {}
        }
    }
    told
}
