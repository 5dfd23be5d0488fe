//! What Tenon tries again at a stated time: a region with such a time ahead isn't settled, although nothing is under way.
//!
//! Decides it from the claims, the commands and the statuses of classes, by what docs/budgets.md, docs/consolidation.md
//! and docs/images.md state. It doesn't decide whether the try succeeds.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimPhase, RemovalReason};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::wait::{doubled, later};
use tenon_region::engine::SimulatedRegion;

/// The wait after the first command that was undone; twice as long after each further one.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(10);
/// The longest.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(2);

/// The next try of a cluster, and what it is about.
pub(crate) fn next_try(region: &SimulatedRegion, cluster: &ClusterName) -> Option<(Timestamp, String)> {
    let (claims, commands) = (region.claims(cluster), region.commands(cluster));
    let now = region.now();
    let of_claims = of_commands(&claims, &commands).into_iter().chain(of_marks(&claims));
    let of_classes = region.classes(cluster);
    let of_classes = of_classes.iter().filter_map(of_class);
    of_claims.chain(of_classes).filter(|(at, _)| *at > now).min()
}

/// When candidates are tried again whose command was undone for want of a replacement: they serve, and it is done.
fn of_commands(claims: &[Arc<Claim>], commands: &[Arc<Command>]) -> Vec<(Timestamp, String)> {
    let mut undone: BTreeMap<(&ClaimName, RemovalReason), (u32, Timestamp)> = BTreeMap::new();
    for command in commands.iter().filter(|command| command.reason != RemovalReason::Underutilized) {
        let CommandState::Done { at } = command.state else { continue };
        for name in &command.candidates {
            let (times, last) = undone.entry((name, command.reason)).or_insert((0, at));
            *times = times.saturating_add(1);
            *last = at.max(*last);
        }
    }
    let serves = |name: &ClaimName| {
        claims.iter().any(|claim| claim.name == *name && claim.phase() == ClaimPhase::Initialized)
    };
    let tried = undone.into_iter().filter(|((name, _), _)| serves(name));
    let tried = tried.map(|((name, _), (times, last))| {
        let wait = doubled(FIRST_WAIT, times.saturating_sub(1), LONGEST_WAIT);
        (later(last, wait), format!("{name} is tried again"))
    });
    tried.collect()
}

/// When nodes are tried again whose consolidation was undone: their marks begin then.
fn of_marks(claims: &[Arc<Claim>]) -> impl Iterator<Item = (Timestamp, String)> {
    let serve = claims.iter().filter(|claim| claim.phase() == ClaimPhase::Initialized);
    serve.filter_map(|claim| {
        let mark = claim.consolidatable.as_ref()?;
        Some((mark.since, format!("{} is tried again", claim.name)))
    })
}

/// When a class tries an image again, or asks AWS.
fn of_class(class: &ClassStatus) -> Option<(Timestamp, String)> {
    Some((class.next_try()?, format!("class {} tries again", class.name)))
}

#[cfg(test)]
mod tests {
    use tenon_domain::claim::ClaimState;
    use tenon_harness::claims;

    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    /// A command for the first claim.
    fn command(id: &str, reason: RemovalReason, state: CommandState) -> Arc<Command> {
        Arc::new(Command {
            id: id.parse().unwrap(),
            revision: 1,
            pool: claims::claim(1, serving()).pool,
            reason,
            drifted_to: None,
            candidates: vec![claims::claim_name(1)],
            replacements: Vec::new(),
            state,
            created_at: at(0),
        })
    }

    fn serving() -> ClaimState {
        ClaimState::Initialized { instance: claims::instance(1), node: claims::node_name(1), at: at(0) }
    }

    fn check(commands: &[Arc<Command>], state: ClaimState, expected: Option<Timestamp>) {
        let claims = [Arc::new(claims::claim(1, state))];
        let found = of_commands(&claims, commands).into_iter().map(|(at, _)| at).min();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_undone_command_doubles_the_wait_until_its_node_is_tried_again() {
        use RemovalReason::{Drifted, ScheduledChange, Underutilized};
        let done = |id, reason, minutes| command(id, reason, CommandState::Done { at: at(minutes) });
        check(&[done("command-1", ScheduledChange, 23)], serving(), Some(at(33)));
        let twice = [done("command-1", Drifted, 23), done("command-2", Drifted, 43)];
        check(&twice, serving(), Some(at(63)));
        check(&[done("command-1", Underutilized, 23)], serving(), None);
        let active = CommandState::Draining { since: at(23) };
        check(&[command("command-1", Drifted, active)], serving(), None);
        // A command that isn't undone leaves no candidate.
        check(&[done("command-1", Drifted, 23)], ClaimState::Planned, None);
    }
}
