//! `catalog`: instance types, zones and prices of the region, from EC2 into the table.
//!
//! Each of the four parts is refreshed, fails and goes stale on its own. A schedule says when; every wake also looks
//! after parts that never arrived, failed or are overdue. What planners read (packed items) and what people read
//! (`TYPE#`) are written here, and by nobody else. Nothing here decides what is fresh enough to plan from.
//!
//! Invariants: an empty or torn answer is an error of the reader and never of the world, so the last good generation
//! stays; a generation is visible wholly or not at all; what is unchanged costs one small write.

mod commit;
mod execute;
mod observe;
pub mod plan;
pub mod read;
pub mod shrink;
pub mod types;

use std::collections::BTreeSet;

use tenon_domain::evidence::CatalogPart;
use tenon_domain::wake::{Cause, FunctionName};
use tenon_runtime::{Handler, HandlerError, Ports, Scope};
use tenon_table::items::CatalogCache;

/// The function. Keeps unpacked parts between wakes: they never change under their digest.
#[derive(Debug, Default)]
pub struct Catalog {
    cache: CatalogCache,
}

impl Handler for Catalog {
    fn name(&self) -> FunctionName {
        FunctionName::Catalog
    }

    async fn handle<P: Ports>(&self, ports: &P, _: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        // Part by part: a call that hangs takes no answer along that another part was given.
        let mut failed = None;
        for part in observe::due_parts(ports, &asked(causes)).await? {
            let input = observe::observe(ports, part, &self.cache).await?;
            let (plan, report) = plan::plan(&input);
            let committed = commit::commit(ports, &plan).await;
            execute::execute(ports, &report, &committed).await;
            failed = committed.failed.or(failed);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(input) = observe::observe_types(ports, &self.cache).await? else { return Ok(()) };
        commit::commit_types(ports, &types::plan(&input)).await
    }
}

/// The parts whose schedule rang; several of one part are one.
fn asked(causes: &[Cause]) -> BTreeSet<CatalogPart> {
    let part = |cause: &Cause| match cause {
        Cause::Refresh(part) => Some(*part),
        Cause::Sweep
        | Cause::SnapshotChanged
        | Cause::StateChanged
        | Cause::ZonalShift
        | Cause::ImageChanged(_)
        | Cause::InstanceState { .. }
        | Cause::Interruption { .. } => None,
    };
    causes.iter().filter_map(part).collect()
}
