//! What launches show of their classes: a launch that succeeded is EC2's consent, whatever a dry run said, and one that
//! was denied is what a denied dry run is.
//!
//! Decides which launches are noted. A launch that was refused otherwise leaves a mark, which tells its class
//! (`settle`).
//!
//! Invariants: a launch of another request than the class's now says nothing of it; a launch of a validated class is
//! noted once an hour.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{ClassStatus, ConditionReason, ConditionType};
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::launch::Launch;
use tenon_domain::launch_verdict::{
    ClassVerdicts, JudgedRequest, LaunchVerdict, VALIDATION_REFRESH, VerdictOutcome,
};
use tenon_domain::registry::FeatureGate;
use tenon_domain::unavailable::RequestDigest;
use tenon_ec2::port::CreateFleetRequest;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::observe::ClusterObservation;

use crate::denials::DeniedLaunch;
use crate::settle::Settlement;
use crate::validate::{awaits, write};

/// What a launch showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Noted {
    /// Nothing new.
    Nothing,
    /// EC2 denies launches, which wasn't known.
    Denial,
    /// EC2 allows launches, which wasn't known.
    Consent,
    /// EC2 allows launches that a dry run was denied.
    DoubtEnded,
}

/// The verdicts while the launches of one observation are sent.
pub(crate) struct Validated<'a> {
    cluster: &'a ClusterName,
    observed: &'a ClusterObservation,
    /// Those that this pass wrote.
    written: BTreeMap<NodeClassName, ClassVerdicts>,
}

impl<'a> Validated<'a> {
    /// Before the first launch.
    pub(crate) const fn new(cluster: &'a ClusterName, observed: &'a ClusterObservation) -> Self {
        Self { cluster, observed, written: BTreeMap::new() }
    }

    /// Notes a settled launch. A lost race changes nothing: the next launch is noted.
    pub(crate) async fn note<P: Ports>(
        &mut self,
        ports: &P,
        launch: &Launch,
        settlement: &Settlement,
    ) -> Result<Noted, HandlerError> {
        let Some(mut judged) = self.judged(launch) else { return Ok(Noted::Nothing) };
        let mut noted = Noted::Nothing;
        for architecture in launched(judged.status, settlement) {
            let before = judged.before(&architecture);
            if before.is_none() && !awaits(judged.status) && !decides_profile(judged.status) {
                continue;
            }
            let now = ports.now();
            let next = LaunchVerdict::of_launch(before.as_ref(), judged.request(), &architecture, now);
            let Some(next) = next else { continue };
            noted = noted.max(match before.map(|before| before.outcome) {
                Some(VerdictOutcome::Allowed) => Noted::Nothing,
                Some(VerdictOutcome::Unused { .. } | VerdictOutcome::Warned { .. }) | None => Noted::Consent,
                Some(VerdictOutcome::Doubted { .. } | VerdictOutcome::Denied { .. }) => Noted::DoubtEnded,
            });
            judged.change(next);
        }
        self.keep(ports, judged, noted).await
    }

    /// Notes that EC2 denied a launch, which is to its class what a denied dry run is. Nothing is asked before `held`,
    /// when the launch's mark is due.
    pub(crate) async fn deny<P: Ports>(
        &mut self,
        ports: &P,
        launch: &Launch,
        denied: &DeniedLaunch,
        held: Option<Timestamp>,
    ) -> Result<Noted, HandlerError> {
        let Some(mut judged) = self.judged(launch) else { return Ok(Noted::Nothing) };
        let (now, mut noted) = (ports.now(), Noted::Nothing);
        for architecture in asked(judged.status, launch) {
            let before = judged.before(&architecture);
            // Many launches may be denied together: they are one denial.
            if before.as_ref().is_some_and(|before| launch.created_at <= before.at) {
                continue;
            }
            let outcome = denied.outcome(before.as_ref(), now);
            if before.as_ref().is_none_or(|before| before.outcome != outcome) {
                noted = Noted::Denial;
            }
            let next = LaunchVerdict::of_denied_launch(
                before.as_ref(),
                judged.request(),
                &architecture,
                outcome,
                now,
            );
            let until = held.map_or(next.until, |at| at.max(next.until));
            judged.change(LaunchVerdict { until, ..next });
        }
        self.keep(ports, judged, noted).await
    }

    /// Writes changed verdicts. Returns what they showed, or nothing after a lost race.
    async fn keep<P: Ports>(
        &mut self,
        ports: &P,
        judged: LaunchOfClass<'_>,
        noted: Noted,
    ) -> Result<Noted, HandlerError> {
        let LaunchOfClass { status, verdicts, changed, .. } = judged;
        if !changed || !write(ports, self.cluster, status, &verdicts).await? {
            return Ok(Noted::Nothing);
        }
        self.written.insert(status.name.clone(), verdicts);
        Ok(noted)
    }

    /// The verdicts on a class, with those that this pass wrote.
    fn verdicts(&self, status: &ClassStatus) -> ClassVerdicts {
        let known = self.written.get(&status.name).or_else(|| self.observed.view.verdicts.get(&status.name));
        known.cloned().unwrap_or_default()
    }

    /// The class of a launch, if the launch was made from it as it is now.
    fn judged(&self, launch: &Launch) -> Option<LaunchOfClass<'a>> {
        let view = &self.observed.view;
        let (Ok(registry), Ok(snapshot)) = (&view.registry, &self.observed.snapshot) else { return None };
        let status = view.classes.get(&launch.class)?;
        let told = status.condition(ConditionType::ValidationSucceeded)?;
        let class = snapshot.node_classes.iter().find(|class| class.name == launch.class)?;
        let asks = match registry.settings.dry_runs {
            FeatureGate::Enabled => true,
            FeatureGate::Disabled => decides_profile(status),
        };
        let digest = RequestDigest::of_class(self.cluster, status);
        let of_this = match &launch.made_from {
            Some(of) => *of == digest,
            // An earlier release's launch. The condition changes with each verdict too, so such a launch may be missed.
            None => launch.created_at >= told.since,
        };
        (asks && of_this && status.is_of(&class.meta)).then(|| LaunchOfClass {
            status,
            digest,
            refresh: class.meta.annotations.get(VALIDATION_REFRESH).map(String::as_str),
            verdicts: self.verdicts(status),
            changed: false,
        })
    }
}

/// The class of a launch, with its verdicts while they change.
struct LaunchOfClass<'a> {
    status: &'a ClassStatus,
    digest: RequestDigest,
    /// The value of the class's annotation.
    refresh: Option<&'a str>,
    verdicts: ClassVerdicts,
    changed: bool,
}

impl LaunchOfClass<'_> {
    fn request(&self) -> JudgedRequest<'_> {
        JudgedRequest { digest: &self.digest, refresh: self.refresh }
    }

    /// The verdict before the launch.
    fn before(&self, architecture: &Architecture) -> Option<LaunchVerdict> {
        self.verdicts.on(self.request(), architecture).cloned()
    }

    fn change(&mut self, next: LaunchVerdict) {
        self.verdicts = self.verdicts.with(next);
        self.changed = true;
    }
}

/// Whether a launch shows what IAM didn't answer: that nodes can have the class's instance profile.
fn decides_profile(status: &ClassStatus) -> bool {
    status
        .condition(ConditionType::InstanceProfileReady)
        .is_some_and(|told| told.reason == ConditionReason::InstanceProfileNotChecked)
}

/// The architectures that a launch asked for.
fn asked(status: &ClassStatus, launch: &Launch) -> BTreeSet<Architecture> {
    let request = CreateFleetRequest::from_stored(&launch.request);
    let templates = request.iter().flat_map(|request| &request.launch_templates);
    let overrides = templates.flat_map(|template| &template.overrides);
    let images: BTreeSet<&ImageId> = overrides.filter_map(|from| from.image.as_ref()).collect();
    let asked = status.images.iter().filter(|image| images.contains(&image.id));
    asked.map(|image| image.architecture.clone()).collect()
}

/// The architectures of the launched instances.
fn launched(status: &ClassStatus, settlement: &Settlement) -> BTreeSet<Architecture> {
    let instances = settlement.claims.iter().filter_map(|claim| claim.state.instance());
    instances
        .filter_map(|instance| status.images.iter().find(|image| image.id == instance.image))
        .map(|image| image.architecture.clone())
        .collect()
}
