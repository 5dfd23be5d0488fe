//! Crashes between any two calls, and two invocations at once.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use super::stepping::stepping;
use super::*;

/// Polls a handler so many times, then drops it, as a crash would.
pub(super) fn crash_after(cluster: &Cluster, polls: usize) -> bool {
    let function = Provisioner::default();
    let scope = WakeScope::Cluster(cluster.name.clone());
    let ports = stepping(&cluster.world);
    let mut future = pin!(function.handle(&ports, &scope, &[]));
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).any(|_| future.as_mut().poll(&mut context).is_ready())
}

#[test]
fn a_cut_between_any_two_calls_ends_in_the_same_place() {
    for polls in 1..60 {
        let cluster = cluster(3);
        let done = crash_after(&cluster, polls);
        advance(&cluster, SignedDuration::from_secs(30));
        wake(&cluster);
        let launched = phases(&cluster, ClaimPhase::Launched);
        assert!(launched > 0);
        check_settled(&cluster, launched);
        if done {
            return;
        }
    }
    panic!("the handler never ended");
}

#[test]
fn two_at_once_never_launch_twice() {
    for lead in 0..12 {
        let cluster = cluster(3);
        let (one, two) = (Provisioner::default(), Provisioner::default());
        let scope = WakeScope::Cluster(cluster.name.clone());
        let ports = stepping(&cluster.world);
        let mut first = pin!(one.handle(&ports, &scope, &[]));
        let mut second = pin!(two.handle(&ports, &scope, &[]));
        let mut context = Context::from_waker(Waker::noop());
        let mut ended = (false, false);
        for turn in 0..400 {
            if !ended.0 {
                ended.0 = first.as_mut().poll(&mut context).is_ready();
            }
            if turn >= lead && !ended.1 {
                ended.1 = second.as_mut().poll(&mut context).is_ready();
            }
        }
        assert_eq!(ended, (true, true));
        let launched = phases(&cluster, ClaimPhase::Launched);
        assert!(launched > 0);
        check_settled(&cluster, launched);
    }
}
