//! `catalog`: instance types, zones and prices of the region, from EC2 into the table.
//!
//! Each of the four parts is refreshed, fails and becomes stale on its own. A schedule starts refreshes; every wake
//! also tries parts that were never refreshed, failed or are overdue. Only this function writes the planners' items
//! (packed) and people's items (`TYPE#`). It doesn't decide which parts are fresh enough for a plan.
//!
//! Invariants: an empty or incomplete answer is an error, never a fact, so the last good generation stays; a
//! generation is visible wholly or not at all; unchanged content costs one small write.

mod commit;
mod execute;
mod observe;
pub mod plan;
pub mod read;
pub mod shrink;
pub mod types;

use std::collections::BTreeSet;

use tenon_domain::evidence::CatalogPart;
use tenon_domain::report::Report;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_runtime::{Handler, HandlerError, Ports, WakeScope};
use tenon_state::pass::{AfterCommit, End, Of, Pass, run};
use tenon_table::items::CatalogCache;

use crate::commit::CommittedParts;
use crate::plan::{Announcements, CatalogInput, CatalogPlan};

/// The function. Keeps unpacked parts between wakes: they never change under their digest.
#[derive(Debug, Default)]
pub struct CatalogFunction {
    cache: CatalogCache,
}

impl Handler for CatalogFunction {
    fn name(&self) -> FunctionName {
        FunctionName::Catalog
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        _: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        // Part by part, so that a call that hangs loses no other part's answer.
        let mut failed = None;
        for part in observe::due_parts(ports, &asked(causes)).await? {
            let looked = run(&CatalogPass { ports, part, cache: &self.cache }).await?;
            failed = looked.and_then(|looked| looked.committed.failed).or(failed);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(input) = observe::observe_types(ports, &self.cache).await? else { return Ok(()) };
        commit::commit_types(ports, &types::plan(&input)).await
    }
}

/// A look at one part.
struct CatalogPass<'a, P> {
    ports: &'a P,
    part: CatalogPart,
    cache: &'a CatalogCache,
}

/// The result of an observation.
#[derive(Debug, Default)]
struct CatalogDone {
    announcements: Announcements,
    committed: CommittedParts,
}

impl<'a, P: Ports> Pass for CatalogPass<'a, P> {
    type Ports = P;
    type Input = CatalogInput<'a>;
    type Plan = (CatalogPlan, Announcements);
    type Done = CatalogDone;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Catalog
    }

    fn of(&self) -> Of<'_> {
        Of::Region(&self.ports.installation().region)
    }

    async fn observe(&self, _: &mut CatalogDone) -> Result<Option<CatalogInput<'a>>, HandlerError> {
        observe::observe(self.ports, self.part, self.cache).await.map(Some)
    }

    fn plan(&self, input: &CatalogInput<'a>) -> (Self::Plan, Report) {
        let (plan, announcements) = plan::plan(input);
        let mut report = Report::default();
        announcements.tell(&mut report);
        ((plan, announcements), report)
    }

    async fn commit(
        &self,
        _: &CatalogInput<'a>,
        (plan, announcements): Self::Plan,
        looked: &mut CatalogDone,
    ) -> Result<AfterCommit, HandlerError> {
        *looked = CatalogDone { announcements, committed: commit::commit(self.ports, &plan).await };
        Ok(AfterCommit::Settled)
    }

    async fn execute(&self, _: &CatalogInput<'a>, looked: &mut CatalogDone) -> Result<(), HandlerError> {
        execute::execute(self.ports, &looked.announcements, &looked.committed).await;
        Ok(())
    }

    fn end(&self, _: CatalogInput<'a>, _: &CatalogDone) -> End {
        End::default()
    }
}

/// The scheduled parts, each once.
fn asked(causes: &[WakeCause]) -> BTreeSet<CatalogPart> {
    let part = |cause: &WakeCause| match cause {
        WakeCause::Refresh(part) => Some(*part),
        WakeCause::Sweep
        | WakeCause::SnapshotChanged
        | WakeCause::StateChanged
        | WakeCause::ZonalShift
        | WakeCause::ImageChanged(_)
        | WakeCause::InstanceState { .. }
        | WakeCause::Interruption { .. } => None,
    };
    causes.iter().filter_map(part).collect()
}
