//! `images`: image states as EC2 tells them, into the table, and word of those that may be launched or no longer may.
//!
//! Woken by EC2's and pipelines' events, which only say which image to look at, and by a schedule, which looks at all
//! that classes select and all that isn't final. The verdict always comes from EC2: a pending image is recorded as
//! pending, and announced only once EC2 says `available`. Which image a class takes is `node-classes`'.

mod commit;
mod execute;
mod observe;
pub mod plan;

use std::collections::BTreeSet;

use tenon_domain::id::ImageId;
use tenon_domain::wake::{Cause, FunctionName};
use tenon_runtime::{Handler, HandlerError, Ports, Scope};

pub use observe::Look;

/// The function.
#[derive(Debug, Clone, Copy, Default)]
pub struct Images;

impl Handler for Images {
    fn name(&self) -> FunctionName {
        FunctionName::Images
    }

    async fn handle<P: Ports>(&self, ports: &P, _: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        let observed = observe::observe(ports, &look(causes)).await?;
        let (plan, report) = plan::plan(&observed.input);
        commit::commit(ports, &plan).await?;
        execute::execute(ports, &plan).await;
        // What was seen is kept; what wasn't is looked at again when the message comes back.
        match observed.failed {
            Some(error) if report.unseen > 0 => Err(HandlerError::Ec2(error)),
            Some(_) | None => Ok(()),
        }
    }
}

/// What to look at: the images that events name, or everything.
fn look(causes: &[Cause]) -> Look {
    let mut named: BTreeSet<ImageId> = BTreeSet::new();
    for cause in causes {
        match cause {
            Cause::ImageChanged(Some(image)) => {
                named.insert(image.clone());
            }
            Cause::ImageChanged(None)
            | Cause::Sweep
            | Cause::Refresh(_)
            | Cause::SnapshotChanged
            | Cause::StateChanged
            | Cause::ZonalShift
            | Cause::InstanceState { .. }
            | Cause::Interruption { .. } => return Look::Everything,
        }
    }
    Look::At(named)
}
