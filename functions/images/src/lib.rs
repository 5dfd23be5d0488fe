//! `images`: records the states of images in the table, and announces which can be launched.
//!
//! Events of EC2 and of pipelines name an image to look at; a schedule looks at all selected images and all without a
//! final state. The state always comes from EC2: a pending image is recorded as pending, and announced only once EC2
//! returns `available`. `node-classes` decides which image a class uses.

mod commit;
mod execute;
mod observe;
pub mod plan;

use std::collections::BTreeSet;

use tenon_domain::id::ImageId;
use tenon_domain::report::Report;
use tenon_domain::wake::{Cause, FunctionName};
use tenon_runtime::{Handler, HandlerError, Ports, Scope};
use tenon_state::pass::{End, Next, Of, Pass, run};

pub use observe::Look;
use observe::Observed;
use plan::Plan;

/// The function.
#[derive(Debug, Clone, Copy, Default)]
pub struct Images;

impl Handler for Images {
    fn name(&self) -> FunctionName {
        FunctionName::Images
    }

    async fn handle<P: Ports>(&self, ports: &P, _: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        run(&ImagesPass { ports, look: look(causes) }).await?;
        Ok(())
    }
}

/// A look at some images, or at all.
struct ImagesPass<'a, P> {
    ports: &'a P,
    look: Look,
}

impl<P: Ports> Pass for ImagesPass<'_, P> {
    type Ports = P;
    type Input = Observed;
    type Plan = Plan;
    type Done = Plan;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Images
    }

    fn of(&self) -> Of<'_> {
        Of::Region(&self.ports.installation().region)
    }

    async fn observe(&self, _: &mut Plan) -> Result<Option<Observed>, HandlerError> {
        observe::observe(self.ports, &self.look).await.map(Some)
    }

    fn plan(&self, observed: &Observed) -> (Plan, Report) {
        (plan::plan(&observed.input), Report::default())
    }

    async fn commit(&self, _: &Observed, plan: Plan, done: &mut Plan) -> Result<Next, HandlerError> {
        commit::commit(self.ports, &plan).await?;
        *done = plan;
        Ok(Next::Settled)
    }

    async fn execute(&self, observed: &Observed, plan: &mut Plan) -> Result<(), HandlerError> {
        execute::execute(self.ports, plan).await;
        // Answers are kept; the rest is queried again when the message comes back.
        match &observed.failed {
            Some(error) if plan.unanswered > 0 => Err(HandlerError::Ec2(error.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn end(&self, _: Observed, _: &Plan) -> End {
        End::default()
    }
}

/// The scope of a look: the images of events, or all.
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
