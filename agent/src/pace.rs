//! When the agent looks: after changes of the cluster (a batch window), of Nodes that an action waits for, and of
//! deleted owners; after a ring, at its own times, and at a start.
//!
//! Decides when a step is due, its parts, and the time of the next one. It has no clock and doesn't wait: the binary
//! and the simulated region drive it, each with its own clock.
//!
//! Invariants: a change is looked at once its window closes; a ring is never lost, however long a step takes; a
//! failed step is soon repeated.

use jiff::{SignedDuration, Timestamp};
use tenon_snapshot::snapshot::ChunkKind;
use tenon_snapshot::{Kube, Versions};
use tenon_table::Table;

use crate::agent::{Agent, AgentError, Burst, Converged, HEARTBEAT_EVERY, Reported};
use crate::awaited::Awaited;
use crate::bell::Bell;
use crate::deleted::Tainted;
use crate::window::ChangeWindow;

/// How long the agent waits after a step that failed.
pub const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// The wait before Nodes are tainted again after a conflict. It also bounds the fight with a writer that removes the
/// taint, such as an admission webhook.
pub const TAINT_RETRY: SignedDuration = SignedDuration::from_secs(1);

/// The time in which functions answer a changed pool or class: a wake, and queries to EC2.
pub const ANSWERED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// The parts of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepWork {
    /// It reports.
    Report(Burst),
    /// It converges; the results are reported with the next change.
    Converge,
    /// It converges, and reports the results.
    ConvergeAndReport(Burst),
}

impl StepWork {
    const fn converges(self) -> bool {
        match self {
            Self::Converge | Self::ConvergeAndReport(_) => true,
            Self::Report(_) => false,
        }
    }

    /// The scope of its report, if it reports.
    const fn reports(self) -> Option<Burst> {
        match self {
            Self::Report(burst) | Self::ConvergeAndReport(burst) => Some(burst),
            Self::Converge => None,
        }
    }
}

/// When the agent looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPace {
    seen: Versions,
    arrivals: ChangeWindow,
    changes: ChangeWindow,
    nodes: ChangeWindow,
    deletions: ChangeWindow,
    rung: WasRung,
    awaited: Awaited,
    converge_at: Timestamp,
    beat_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WasRung {
    Yes,
    No,
}

/// The result of a step.
#[derive(Debug)]
pub struct StepEnded {
    /// The parts of the step.
    pub work: StepWork,
    /// Whether deleted Nodes are tainted, if the API server answered.
    pub tainted: Option<Tainted>,
    /// The result of the convergence, if it was a part and ended.
    pub converged: Option<Converged>,
    /// The result of the report, if it ended.
    pub reported: Option<Reported>,
    /// Why either didn't.
    pub errors: Vec<AgentError>,
}

impl Default for AgentPace {
    /// An agent that has just started: it looks at once.
    fn default() -> Self {
        Self {
            seen: Versions::default(),
            arrivals: ChangeWindow::of_arrivals(),
            changes: ChangeWindow::of_changes(),
            nodes: ChangeWindow::of_nodes(),
            deletions: ChangeWindow::of_nodes(),
            rung: WasRung::Yes,
            awaited: Awaited::Nothing,
            converge_at: Timestamp::MIN,
            beat_at: Timestamp::MIN,
        }
    }
}

impl AgentPace {
    /// Notes the cluster's counters. Returns when to look, if anything changed since the last look.
    pub fn observe(&mut self, versions: Versions, now: Timestamp) -> Option<Timestamp> {
        let before = std::mem::replace(&mut self.seen, versions);
        if versions == before {
            return None;
        }
        self.changes.observe_change(now);
        if versions.arrivals != before.arrivals {
            self.arrivals.observe_change(now);
        }
        if versions.nodes != before.nodes {
            self.nodes.observe_change(now);
        }
        if versions.deletions != before.deletions {
            self.deletions.observe_change(now);
        }
        Some(self.due(now))
    }

    /// Notes the counters at the beginning of a step: the step sees these changes.
    pub const fn note(&mut self, versions: Versions) {
        self.seen = versions;
    }

    /// The doorbell rang.
    pub const fn observe_ring(&mut self) {
        self.rung = WasRung::Yes;
    }

    /// Restarts the agent: it looks at once, and knows nothing about its earlier writes.
    pub const fn restart(&mut self) {
        self.rung = WasRung::Yes;
        self.beat_at = Timestamp::MIN;
    }

    /// Begins a step, if one is due.
    pub fn begin(&mut self, now: Timestamp) -> Option<StepWork> {
        let is_due = |window: &ChangeWindow| window.due().is_some_and(|at| at <= now);
        let arrived = is_due(&self.arrivals);
        let changed = arrived || is_due(&self.changes);
        let joined = self.joined().is_some_and(|at| at <= now);
        // An action may wait for this change: a Node that joined, a pod that ended.
        let waited = changed && (joined || self.awaited == Awaited::Anything);
        let deleted = is_due(&self.deletions);
        let converge = self.rung == WasRung::Yes || now >= self.converge_at || waited;
        if !converge && !changed && now < self.beat_at {
            if joined {
                self.nodes.close();
            }
            if deleted {
                self.deletions.close();
            }
            return (joined || deleted).then_some(StepWork::Converge);
        }
        let converge = converge || deleted;
        self.changes.close();
        let burst = if arrived || self.arrivals.due().is_none() { Burst::Over } else { Burst::GoesOn };
        if burst == Burst::Over {
            self.arrivals.close();
        }
        if !converge {
            return Some(StepWork::Report(burst));
        }
        self.nodes.close();
        self.deletions.close();
        self.rung = WasRung::No;
        Some(StepWork::ConvergeAndReport(burst))
    }

    /// When to look at changed Nodes, if an action may wait for them.
    fn joined(&self) -> Option<Timestamp> {
        match self.awaited {
            Awaited::Anything | Awaited::Nodes => self.nodes.due(),
            Awaited::Nothing => None,
        }
    }

    /// A step ended; when the next one is due.
    pub fn end(&mut self, ended: &StepEnded, now: Timestamp) -> Timestamp {
        let after = |duration| now.checked_add(duration).unwrap_or(Timestamp::MAX);
        match &ended.converged {
            Some(converged) => {
                self.converge_at = converged.next;
                self.awaited = converged.awaited;
            }
            None if ended.work.converges() || ended.tainted.is_none() => self.converge_at = after(RETRY),
            None => {}
        }
        if let Some(Reported::Changed(ring)) = &ended.reported
            && ring.changed.iter().any(is_answered)
        {
            self.converge_at = self.converge_at.min(after(ANSWERED_AFTER));
        }
        if ended.tainted == Some(Tainted::Some) {
            self.converge_at = self.converge_at.min(after(TAINT_RETRY));
        }
        match &ended.reported {
            Some(Reported::Changed(_) | Reported::Unchanged) => self.beat_at = after(HEARTBEAT_EVERY),
            Some(Reported::Later(at)) => self.beat_at = *at,
            None if ended.work.reports().is_some() => self.beat_at = after(RETRY),
            None => {}
        }
        self.due(now)
    }

    /// When a step is due; `now` where it is already.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Timestamp {
        if self.rung == WasRung::Yes {
            return now;
        }
        let windows = [self.arrivals.due(), self.changes.due(), self.deletions.due(), self.joined()];
        let windows = windows.into_iter().flatten();
        windows.fold(self.converge_at.min(self.beat_at), Timestamp::min).max(now)
    }
}

/// Whether functions answer a change of this kind with a status, for which no ring comes; a user may wait for it.
const fn is_answered(kind: &ChunkKind) -> bool {
    matches!(kind, ChunkKind::NodePools | ChunkKind::NodeClasses)
}

/// Runs a step. Deleted Nodes are tainted first, because the rest needs AWS.
pub async fn run_step<K: Kube, T: Table, B: Bell>(
    agent: &mut Agent<K, T, B>,
    work: StepWork,
    clock: impl Fn() -> Timestamp + Send,
) -> StepEnded {
    let mut ended = StepEnded { work, tainted: None, converged: None, reported: None, errors: Vec::new() };
    match agent.taint_deleted().await {
        Ok(tainted) => ended.tainted = Some(tainted),
        Err(error) => ended.errors.push(error),
    }
    if work.converges() {
        match agent.converge(clock()).await {
            Ok(done) => ended.converged = Some(done),
            Err(error) => ended.errors.push(error),
        }
    }
    if let Some(burst) = work.reports() {
        match agent.report(clock(), burst).await {
            Ok(reported) => ended.reported = Some(reported),
            Err(error) => ended.errors.push(error),
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Ring;
    use tenon_snapshot::KubeError;

    /// A pod came.
    const PODS: Versions = Versions { all: 1, nodes: 0, arrivals: 1, deletions: 0 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn converged(next: i64, awaited: Awaited) -> StepEnded {
        let converged = Converged {
            reports: vec![],
            awaited,
            next: at(next),
            operations: 0,
            unreadable: vec![],
            unwritten: vec![],
        };
        let reported = Some(Reported::Unchanged);
        StepEnded {
            work: StepWork::ConvergeAndReport(Burst::Over),
            tainted: Some(Tainted::All),
            converged: Some(converged),
            reported,
            errors: vec![],
        }
    }

    fn rested(awaited: Awaited) -> AgentPace {
        let mut pace = AgentPace::default();
        assert_eq!(pace.begin(at(0)), Some(StepWork::ConvergeAndReport(Burst::Over)));
        assert_eq!(pace.end(&converged(60, awaited), at(0)), at(40));
        assert_eq!(pace.begin(at(39)), None);
        pace
    }

    #[test]
    fn it_beats_converges_and_hears() {
        let mut pace = rested(Awaited::Nothing);
        assert_eq!(pace.begin(at(40)), Some(StepWork::Report(Burst::Over)));
        assert_eq!(pace.begin(at(60)), Some(StepWork::ConvergeAndReport(Burst::Over)));
        let mut pace = rested(Awaited::Nothing);
        pace.observe_ring();
        assert_eq!(pace.due(at(3)), at(3));
        assert_eq!(pace.begin(at(3)), Some(StepWork::ConvergeAndReport(Burst::Over)));
        // Rung while the step runs: it runs again.
        pace.observe_ring();
        assert_eq!(pace.end(&converged(60, Awaited::Nothing), at(4)), at(4));
    }

    #[test]
    fn a_change_is_reported_and_what_is_under_way_is_looked_at() {
        let check = |awaited, expected| {
            let mut pace = rested(awaited);
            assert_eq!(pace.observe(PODS, at(10)), Some(at(11)));
            assert_eq!((pace.begin(at(10)), pace.begin(at(11))), (None, Some(expected)));
            assert_eq!(pace.begin(at(12)), None);
        };
        check(Awaited::Nothing, StepWork::Report(Burst::Over));
        check(Awaited::Nodes, StepWork::Report(Burst::Over));
        check(Awaited::Anything, StepWork::ConvergeAndReport(Burst::Over));
    }

    #[test]
    fn a_node_that_an_action_waits_for_is_looked_at_in_the_middle_of_a_burst() {
        let check = |awaited, expected| {
            let mut pace = rested(awaited);
            pace.observe(PODS, at(10));
            pace.observe(Versions { all: 2, nodes: 1, ..PODS }, at(10) + SignedDuration::from_millis(900));
            pace.observe(Versions { all: 3, nodes: 1, arrivals: 2, ..PODS }, at(11));
            assert_eq!(pace.begin(at(11)), expected);
            // The burst is reported as it would have been.
            assert_eq!(pace.begin(at(11) + SignedDuration::from_millis(999)), None);
            assert!(pace.begin(at(12)).is_some());
        };
        check(Awaited::Nothing, None);
        check(Awaited::Nodes, Some(StepWork::Converge));
        check(Awaited::Anything, Some(StepWork::Converge));
    }

    #[test]
    fn a_deletion_is_looked_at_at_once_whatever_is_under_way() {
        for awaited in [Awaited::Nothing, Awaited::Nodes, Awaited::Anything] {
            let mut pace = rested(awaited);
            let soon = at(10) + SignedDuration::from_millis(100);
            let deletion = Versions { all: 1, nodes: 1, arrivals: 0, deletions: 1 };
            assert_eq!(pace.observe(deletion, at(10)), Some(soon));
            assert_eq!((pace.begin(at(10)), pace.begin(soon)), (None, Some(StepWork::Converge)));
            assert_eq!(pace.begin(at(10) + SignedDuration::from_millis(200)), None);
            // A Node changed while it was tainted.
            let ended = StepEnded { tainted: Some(Tainted::Some), ..converged(60, awaited) };
            let ended = StepEnded { work: StepWork::Converge, reported: None, ..ended };
            assert!(pace.end(&ended, soon) <= soon + TAINT_RETRY);
            // It is reported, and handled again.
            assert!(pace.begin(at(11)).is_some());
            assert_eq!(pace.begin(soon + TAINT_RETRY), Some(StepWork::ConvergeAndReport(Burst::Over)));
        }
    }

    #[test]
    fn a_ring_in_the_middle_of_a_burst_ends_no_burst() {
        let mut pace = rested(Awaited::Nothing);
        pace.observe(PODS, at(10));
        pace.observe_ring();
        assert_eq!(pace.begin(at(10)), Some(StepWork::ConvergeAndReport(Burst::GoesOn)));
        let reported = Some(Reported::Later(at(40)));
        assert_eq!(pace.end(&StepEnded { reported, ..converged(60, Awaited::Nothing) }, at(10)), at(11));
        assert_eq!(pace.begin(at(11)), Some(StepWork::Report(Burst::Over)));
        // Rung while nothing changes: there is no burst.
        pace.observe_ring();
        assert_eq!(pace.begin(at(12)), Some(StepWork::ConvergeAndReport(Burst::Over)));
    }

    #[test]
    fn a_convergence_alone_leaves_the_heartbeat_where_it_was() {
        let mut pace = rested(Awaited::Anything);
        pace.observe(Versions { all: 1, nodes: 1, arrivals: 0, ..PODS }, at(39));
        assert_eq!(pace.begin(at(39) + SignedDuration::from_millis(100)), Some(StepWork::Converge));
        let ended =
            StepEnded { work: StepWork::Converge, reported: None, ..converged(60, Awaited::Anything) };
        assert_eq!(pace.end(&ended, at(39) + SignedDuration::from_millis(200)), at(40));
    }

    #[test]
    fn a_step_that_failed_is_tried_again_soon() {
        let failed = |work| {
            let error = AgentError::Kube(KubeError::UnknownKind { kind: tenon_snapshot::Kind::Node });
            StepEnded { work, tainted: None, converged: None, reported: None, errors: vec![error] }
        };
        let mut pace = rested(Awaited::Nothing);
        let work = pace.begin(at(60)).unwrap();
        assert_eq!(pace.end(&failed(work), at(60)), at(62));
        // A ring before the due time: its work remains.
        let mut pace = rested(Awaited::Nothing);
        pace.observe_ring();
        let work = pace.begin(at(10)).unwrap();
        assert_eq!(
            (work, pace.end(&failed(work), at(10))),
            (StepWork::ConvergeAndReport(Burst::Over), at(12))
        );
        assert_eq!(pace.begin(at(12)), Some(StepWork::ConvergeAndReport(Burst::Over)));
    }

    #[test]
    fn a_changed_class_is_answered_soon() {
        let mut pace = rested(Awaited::Nothing);
        pace.observe(PODS, at(20));
        assert_eq!(pace.begin(at(21)), Some(StepWork::Report(Burst::Over)));
        let ring = Ring {
            generation: 2,
            changed: [ChunkKind::NodeClasses].into(),
            pending_pods: 0,
            deletions: 0,
            freed: 0,
        };
        let reported = Some(Reported::Changed(ring));
        let ended = StepEnded {
            work: StepWork::Report(Burst::Over),
            tainted: Some(Tainted::All),
            converged: None,
            reported,
            errors: vec![],
        };
        assert_eq!(pace.end(&ended, at(21)), at(26));
        assert_eq!(pace.begin(at(26)), Some(StepWork::ConvergeAndReport(Burst::Over)));
    }

    #[test]
    fn one_that_starts_anew_looks_at_once() {
        let mut pace = rested(Awaited::Nothing);
        pace.restart();
        assert_eq!(pace.begin(at(1)), Some(StepWork::ConvergeAndReport(Burst::Over)));
    }
}
