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
use tenon_ec2::Ec2Error;
use tenon_runtime::{Handler, HandlerError, Ports, WakeScope};
use tenon_state::pass::{AfterCommit, End, Of, Pass, run};
use tenon_table::CommitError;
use tenon_table::items::ImageSweep;

pub use observe::ImagesLook;
use observe::ImagesObservation;
use plan::{ImageChange, ImagesPlan};

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

/// The result of a pass.
#[derive(Debug, Default)]
pub(crate) struct ImagesDone {
    /// The written changes.
    pub(crate) committed: Vec<ImageChange>,
    /// Images that another pass wrote first: they are looked at again.
    pub(crate) lost: Option<LostImages>,
    /// The sweep, if this was a whole one.
    pub(crate) sweep: Option<ImageSweep>,
    /// Why the look is incomplete.
    pub(crate) failed: Option<Ec2Error>,
    /// The last class that couldn't be read.
    pub(crate) unreadable: Option<HandlerError>,
}

/// Images whose records another pass wrote first.
#[derive(Debug)]
pub(crate) struct LostImages {
    /// Which.
    pub(crate) ids: BTreeSet<ImageId>,
    /// The first lost commit.
    pub(crate) error: CommitError,
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
    type Done = ImagesDone;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Images
    }

    fn of(&self) -> Of<'_> {
        Of::Region(&self.ports.installation().region)
    }

    async fn observe(&self, done: &mut ImagesDone) -> Result<Option<ImagesObservation>, HandlerError> {
        let again = done.lost.as_ref().map(|lost| ImagesLook::At(lost.ids.clone()));
        let mut observed = observe::observe(self.ports, again.as_ref().unwrap_or(&self.look)).await?;
        if again.is_none() {
            done.unreadable = observed.unreadable.take();
            done.sweep.clone_from(&observed.sweep);
        }
        if let Some(error) = &observed.failed {
            done.failed = Some(error.clone());
            // Records that lost their race stay older than the sweep.
            done.sweep = done.sweep.take().filter(|_| again.is_none());
        }
        Ok(Some(observed))
    }

    fn plan(&self, observed: &ImagesObservation) -> (ImagesPlan, Report) {
        (plan::plan(&observed.input), Report::default())
    }

    async fn commit(
        &self,
        _: &ImagesObservation,
        plan: ImagesPlan,
        done: &mut ImagesDone,
    ) -> Result<AfterCommit, HandlerError> {
        commit::commit(self.ports, &plan, done).await?;
        Ok(if done.lost.is_some() { AfterCommit::LookAgain } else { AfterCommit::Settled })
    }

    async fn execute(&self, _: &ImagesObservation, done: &mut ImagesDone) -> Result<(), HandlerError> {
        execute::execute(self.ports, &done.committed).await;
        if let Some(LostImages { error, .. }) = done.lost.take() {
            return Err(HandlerError::Commit(error));
        }
        if let Some(sweep) = &done.sweep {
            commit::swept(self.ports, sweep).await?;
        }
        // Answers are kept; the rest is queried again when the event comes back.
        let failed = done.failed.take().map(HandlerError::Ec2);
        failed.or(done.unreadable.take()).map_or(Ok(()), Err)
    }

    fn end(&self, _: ImagesObservation, _: &ImagesDone) -> End {
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
