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
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_runtime::{Handler, HandlerError, Ports, WakeScope};
use tenon_state::pass::{AfterCommit, End, Of, Pass, run};

pub use observe::ImagesLook;
use observe::ImagesObservation;
use plan::ImagesPlan;

/// The function.
#[derive(Debug, Clone, Copy, Default)]
pub struct Images;

impl Handler for Images {
    fn name(&self) -> FunctionName {
        FunctionName::Images
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        _: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        run(&ImagesPass { ports, look: look(causes) }).await?;
        Ok(())
    }
}

/// A look at some images, or at all.
struct ImagesPass<'a, P> {
    ports: &'a P,
    look: ImagesLook,
}

impl<P: Ports> Pass for ImagesPass<'_, P> {
    type Ports = P;
    type Input = ImagesObservation;
    type Plan = ImagesPlan;
    type Done = ImagesPlan;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Images
    }

    fn of(&self) -> Of<'_> {
        Of::Region(&self.ports.installation().region)
    }

    async fn observe(&self, _: &mut ImagesPlan) -> Result<Option<ImagesObservation>, HandlerError> {
        observe::observe(self.ports, &self.look).await.map(Some)
    }

    fn plan(&self, observed: &ImagesObservation) -> (ImagesPlan, Report) {
        (plan::plan(&observed.input), Report::default())
    }

    async fn commit(
        &self,
        _: &ImagesObservation,
        plan: ImagesPlan,
        done: &mut ImagesPlan,
    ) -> Result<AfterCommit, HandlerError> {
        commit::commit(self.ports, &plan).await?;
        *done = plan;
        Ok(AfterCommit::Settled)
    }

    async fn execute(&self, observed: &ImagesObservation, plan: &mut ImagesPlan) -> Result<(), HandlerError> {
        execute::execute(self.ports, plan).await;
        // Answers are kept; the rest is queried again when the message comes back.
        match &observed.failed {
            Some(error) if plan.unanswered > 0 => Err(HandlerError::Ec2(error.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn end(&self, _: ImagesObservation, _: &ImagesPlan) -> End {
        End::default()
    }
}

/// The scope of a look: the images of events, or all.
fn look(causes: &[WakeCause]) -> ImagesLook {
    let mut named: BTreeSet<ImageId> = BTreeSet::new();
    for cause in causes {
        match cause {
            WakeCause::ImageChanged(Some(image)) => {
                named.insert(image.clone());
            }
            WakeCause::ImageChanged(None)
            | WakeCause::Sweep
            | WakeCause::Refresh(_)
            | WakeCause::SnapshotChanged
            | WakeCause::StateChanged
            | WakeCause::ZonalShift
            | WakeCause::InstanceState { .. }
            | WakeCause::Interruption { .. } => return ImagesLook::Everything,
        }
    }
    ImagesLook::At(named)
}
