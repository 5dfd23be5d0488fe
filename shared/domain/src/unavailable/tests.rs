use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::catalog::CapacityType;
use crate::id::{ClusterName, InstanceType, LaunchId, ReservationId, SubnetId, ZoneId};

const OFFERING: &str = "offering#spot#use1-az1#m5.large";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn cluster(name: &str) -> ClusterName {
    ClusterName::parse(name).unwrap()
}

fn launch(n: usize) -> LaunchId {
    LaunchId::parse(format!("launch-{n}")).unwrap()
}

fn key(text: &str) -> UnavailableKey {
    UnavailableKey::parse(text).unwrap()
}

/// Launch `n` of a cluster, planned then.
struct Asker(ClusterName, LaunchId, Timestamp);

impl Asker {
    fn new(n: usize, planned_at: i64) -> Self {
        Self(cluster("prod"), launch(n), at(planned_at))
    }

    fn asked(&self) -> LaunchAsked<'_> {
        LaunchAsked { cluster: &self.0, launch: &self.1, planned_at: self.2 }
    }
}

/// The mark after a refusal of launch `n`.
fn refused(before: Option<&Mark>, n: usize, now: i64) -> Option<Mark> {
    refused_of(before, OFFERING, (n, None), now)
}

fn refused_of(before: Option<&Mark>, what: &str, (n, vcpus): (usize, Option<u32>), now: i64) -> Option<Mark> {
    let refusal = Refusal {
        key: &key(what),
        code: "InsufficientInstanceCapacity",
        cluster: &cluster("prod"),
        cause: RefusalCause::Launch(&launch(n)),
        vcpus,
        now: at(now),
    };
    Mark::refused(before, &refusal)
}

fn interrupted(before: Option<&Mark>, now: i64) -> Option<Mark> {
    let refusal = Refusal {
        key: &key(OFFERING),
        code: "SpotInterruption",
        cluster: &cluster("prod"),
        cause: RefusalCause::Interruption,
        vcpus: None,
        now: at(now),
    };
    Mark::refused(before, &refusal)
}

fn leased(mark: &Mark, n: usize, now: i64) -> Option<Mark> {
    mark.leased(Probe::of(Asker::new(n, now).asked()))
}

fn held_seconds(mark: &Mark) -> i64 {
    mark.until.duration_since(mark.asked_at).as_secs()
}

#[test]
fn keys_read_back() {
    for text in [
        OFFERING,
        "quota#on-demand#p4d",
        "subnet#subnet-0abc",
        "capacity-type#spot",
        "reservation#cr-0abc",
        "request#12ab",
        "request#12ab#on-demand#use1-az1#m5.large",
    ] {
        assert_eq!(key(text).to_string(), text);
    }
    for text in ["offering#cheap#use1-az1#m5.large", "offering#spot", "request#A", "request#", "weather#bad"]
    {
        assert_eq!(UnavailableKey::parse(text), None, "{text}");
    }
}

#[test]
fn the_first_refusal_holds_a_minute_and_the_doubling_ends_at_two_hours() {
    let mut mark = refused(None, 0, 0).unwrap();
    let mut holds = vec![held_seconds(&mark)];
    for n in 1..10 {
        let now = mark.until.as_second() + 1;
        assert_eq!(mark.state(at(now)), MarkState::Due);
        mark = refused(leased(&mark, n, now).as_ref(), n, now + 5).unwrap();
        holds.push(held_seconds(&mark));
        assert_eq!((mark.count, mark.since), (u32::try_from(n).unwrap() + 1, at(0)));
    }
    let least = [60, 120, 240, 480, 960, 1920, 3840, 7200, 7200, 7200];
    for (held, least) in holds.iter().zip(least) {
        assert!((least..=(least * 9 / 8).min(7200)).contains(held), "{holds:?}");
    }
    // Deterministic, and not all in step.
    assert_eq!(refused(None, 0, 0), refused(None, 7, 0));
    assert_ne!(holds[1], 2 * holds[0]);
}

#[test]
fn failures_of_one_storm_count_once() {
    let mark = refused(None, 0, 0).unwrap();
    // Fifty launches were in flight.
    assert!((1..50).all(|n| refused(Some(&mark), n, 3).is_none()));
    // The answer that is settled again after a crash.
    assert_eq!(refused(Some(&mark), 0, 0), None);
    // One of them was sent late: the mark is renewed, not raised.
    let late = refused(Some(&mark), 50, 100).unwrap();
    assert_eq!((late.count, late.since, late.asked_at, late.revision), (1, at(0), at(100), 2));
    // While one probes, the others' failures are nothing new.
    let now = late.until.as_second();
    let probing = leased(&late, 51, now).unwrap();
    assert_eq!(refused(Some(&probing), 52, now + 1), None);
    assert_eq!(interrupted(Some(&probing), now + 1), None);
    let raised = refused(Some(&probing), 51, now + 2).unwrap();
    assert_eq!((raised.count, &raised.probe), (2, &None));
    assert_eq!(refused(Some(&raised), 51, now + 3), None);
}

#[test]
fn one_launch_probes_until_its_lease_ends() {
    let mark = refused(None, 0, 0).unwrap();
    // A last-resort probe asks during the hold.
    let early = leased(&mark, 1, 30).unwrap();
    assert_eq!(early.blocked_until(), at(30) + LEASE);
    let now = mark.until.as_second();
    let probing = leased(&mark, 1, now).unwrap();
    assert!(matches!(probing.state(at(now + 179)), MarkState::Probing(probe) if probe.launch == launch(1)));
    assert_eq!(leased(&probing, 2, now + 179), None);
    assert_eq!(probing.state(at(now + 180)), MarkState::Due);
    let again = leased(&probing, 2, now + 180).unwrap();
    // The first probe's answer comes late: the second one's is waited for.
    assert_eq!(refused(Some(&again), 1, now + 181), None);
    // If no other launch took the lease, the late answer is the probe's.
    assert_eq!(refused(Some(&probing), 1, now + 181).unwrap().count, 2);
    // The same launch id of another cluster is another launch.
    let mut other = Asker::new(2, now + 180);
    other.0 = cluster("staging");
    assert_eq!(again.unanswered(other.asked(), at(now + 182)), None);
}

#[test]
fn a_probe_without_an_answer_waits_as_long_again() {
    let mark = refused(None, 0, 0).unwrap();
    let now = mark.until.as_second();
    let probing = leased(&mark, 1, now).unwrap();
    let after = probing.unanswered(Asker::new(1, now).asked(), at(now + 4)).unwrap();
    assert_eq!((after.count, &after.probe, after.asked_at), (1, &None, at(now + 4)));
    assert_eq!(held_seconds(&after), held_seconds(&mark));
    assert_eq!(after.unanswered(Asker::new(1, now).asked(), at(now + 5)), None);
}

#[test]
fn what_was_had_again_is_cleared() {
    let mark = refused(None, 0, 100).unwrap();
    // Planned before the refusal: its success may be older.
    assert_eq!(mark.cleared(Asker::new(1, 100).asked(), at(105)), None);
    let cleared = mark.cleared(Asker::new(1, 101).asked(), at(105)).unwrap();
    assert_eq!((cleared.state(at(105)), cleared.forget_at()), (MarkState::Forgotten, at(105)));
    // Settled again, nothing changes.
    assert_eq!(cleared.cleared(Asker::new(1, 101).asked(), at(106)), None);
    assert_eq!(leased(&cleared, 2, 106), None);
    // A later refusal starts a new mark, under the existing revision.
    let anew = refused(Some(&cleared), 2, 110).unwrap();
    assert_eq!((anew.count, anew.since, anew.revision), (1, at(110), 3));
    // A probe knows the mark, whenever it was planned.
    let probing = leased(&mark, 3, 100).unwrap();
    assert!(probing.cleared(Asker::new(3, 100).asked(), at(105)).is_some());
}

#[test]
fn an_operator_clears_a_mark_whoever_probes_it() {
    let mark = refused(None, 0, 100).unwrap();
    for known in [mark.clone(), leased(&mark, 1, 110).unwrap()] {
        let cleared = known.cleared_by_operator(at(120)).unwrap();
        assert_eq!((cleared.state(at(120)), cleared.forget_at()), (MarkState::Forgotten, at(120)));
        assert_eq!((cleared.revision, &cleared.probe), (known.revision + 1, &None));
        assert_eq!(cleared.cleared_by_operator(at(121)), None);
        // The probe's answer: the lease has ended, so nothing is left to end or double.
        assert_eq!(cleared.unanswered(Asker::new(1, 110).asked(), at(122)), None);
        let anew = refused(Some(&cleared), 1, 122).unwrap();
        assert_eq!((anew.count, anew.since, anew.revision), (1, at(122), cleared.revision + 1));
    }
    let forgotten = mark.forget_at();
    assert_eq!(mark.cleared_by_operator(forgotten), None);
}

#[test]
fn an_interruption_holds_three_minutes_at_least_and_lowers_nothing() {
    let mark = interrupted(None, 0).unwrap();
    assert!((180..=202).contains(&held_seconds(&mark)), "{mark:?}");
    assert_eq!((mark.count, mark.code.as_str()), (1, "SpotInterruption"));
    let mut often = refused(None, 0, 0).unwrap();
    for n in 1..5 {
        let now = often.until.as_second();
        often = refused(leased(&often, n, now).as_ref(), n, now).unwrap();
    }
    assert_eq!(interrupted(Some(&often), often.asked_at.as_second() + 1), None);
    let due = often.until.as_second();
    let after = interrupted(Some(&often), due).unwrap();
    assert_eq!((after.count, held_seconds(&after)), (5, held_seconds(&often)));
}

#[test]
fn a_mark_that_nobody_asks_after_is_forgotten() {
    let mark = refused(None, 0, 0).unwrap();
    let end = mark.until.as_second();
    assert_eq!(mark.state(at(end + 7199)), MarkState::Due);
    assert_eq!(mark.state(at(end + 7200)), MarkState::Forgotten);
    let anew = refused(Some(&mark), 1, end + 7200).unwrap();
    assert_eq!((anew.count, anew.since, anew.revision), (1, at(end + 7200), 2));
}

#[test]
fn a_quota_is_marked_from_the_smallest_size_that_was_refused() {
    let quota = "quota#on-demand#m5";
    let mark = refused_of(None, quota, (0, Some(96)), 0).unwrap();
    assert_eq!(mark.from_vcpus, Some(96));
    assert_eq!(refused_of(Some(&mark), quota, (1, Some(96)), 1), None);
    let lowered = refused_of(Some(&mark), quota, (1, Some(8)), 1).unwrap();
    assert_eq!((lowered.from_vcpus, lowered.count, lowered.until), (Some(8), 1, mark.until));
    assert_eq!(refused_of(Some(&lowered), quota, (2, Some(48)), 2), None);
    let blocks = |mark: &Mark, vcpus: u32| {
        let marks: Marks = [mark.clone()].into_iter().collect();
        let offering = OfferingKey::parse("on-demand#use1-az1#m5.large").unwrap();
        marks.blocking(&WantedOffering::new(&offering, vcpus), at(2)).is_some()
    };
    assert_eq!([48, 96].map(|vcpus| blocks(&mark, vcpus)), [false, true]);
    assert_eq!([4, 8, 96].map(|vcpus| blocks(&lowered, vcpus)), [false, true, true]);
}

/// Which of the marks block m5.large of 2 vCPUs by spot in use1-az1, in a reservation and a placement group.
fn check(marks: &[&str], now: i64, expected: &[&str]) {
    let marks: Marks = marks.iter().map(|what| refused_of(None, what, (0, Some(2)), 0).unwrap()).collect();
    let offering = OfferingKey::parse("spot#use1-az1#m5.large").unwrap();
    let requests = ["12ab", "34cd"].map(|text| RequestDigest::parse(text).unwrap());
    let wanted = WantedOffering {
        requests: &requests,
        reservation: Some(&ReservationId::parse("cr-1").unwrap()),
        ..WantedOffering::new(&offering, 2)
    };
    let found = marks.blocking(&wanted, at(now)).map_or(Vec::new(), |blocking| blocking.keys);
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn a_mark_concerns_what_it_names_and_nothing_else() {
    for what in [
        OFFERING,
        "quota#spot#m5",
        "capacity-type#spot",
        "reservation#cr-1",
        "request#12ab",
        "request#34cd",
        "request#12ab#spot#use1-az1#m5.large",
    ] {
        check(&[what], 0, &[what]);
        // It stays until it is forgotten, and may be probed from its end on.
        check(&[what], 3600, &[what]);
        check(&[what], 3 * 3600, &[]);
    }
    for what in [
        "offering#spot#use1-az2#m5.large",
        "offering#on-demand#use1-az1#m5.large",
        "offering#spot#use1-az1#m5.xlarge",
        "quota#spot#m5a",
        "quota#on-demand#m5",
        "capacity-type#on-demand",
        "reservation#cr-2",
        "request#56ef",
        "request#56ef#spot#use1-az1#m5.large",
        "request#12ab#spot#use1-az2#m5.large",
        // A zone has several subnets: which is taken is chosen later.
        "subnet#subnet-1",
    ] {
        check(&[what], 0, &[]);
    }
    check(&["capacity-type#spot", OFFERING, "quota#spot#c5"], 0, &[OFFERING, "capacity-type#spot"]);
}

/// One launch's refusals are probed by one launch; those of several don't stay at one moment.
#[test]
fn last_resorts_of_different_moments_drift_apart_within_three_minutes() {
    let resort = |zone: &str, now: i64| {
        let mark = refused_of(None, &format!("offering#spot#{zone}#m5.large"), (0, None), now).unwrap();
        mark.last_resort_at().duration_since(at(now)).as_secs()
    };
    let after: BTreeSet<i64> = (0..20).map(|now| resort("use1-az1", now)).collect();
    assert!(after.len() > 10 && after.iter().all(|after| (135..=180).contains(after)), "{after:?}");
    assert_eq!(resort("use1-az1", 7), resort("use1-az2", 7));
    // EC2 needs the capacity that it takes back.
    let interrupted = interrupted(None, 7).unwrap();
    assert_eq!(interrupted.last_resort_at(), at(187));
}

#[test]
fn the_latest_of_all_marks_counts() {
    let first = refused(None, 0, 0).unwrap();
    let second = refused_of(None, "capacity-type#spot", (0, None), 40).unwrap();
    let marks: Marks = [first.clone(), second.clone()].into_iter().collect();
    let offering = OfferingKey::parse("spot#use1-az1#m5.large").unwrap();
    let wanted = WantedOffering::new(&offering, 2);
    let blocking = marks.blocking(&wanted, at(90)).unwrap();
    let latest = second.last_resort_at().max(first.last_resort_at());
    assert_eq!((blocking.until, blocking.last_resort_at), (second.until, latest));
    assert!(!blocking.is_due(at(90)) && blocking.is_due(second.until));
    let probing: Marks = [first, leased(&second, 1, 150).unwrap()].into_iter().collect();
    let blocking = probing.blocking(&wanted, at(151)).unwrap();
    assert_eq!((blocking.until, blocking.last_resort_at), (at(330), at(330)));
    assert_eq!(marks.blocking_key(&key(OFFERING), at(1)).unwrap().keys, [key(OFFERING)]);
}

/// The possible changes of a mark.
#[derive(Debug, Clone)]
enum Happens {
    Refused { n: usize, vcpus: u32 },
    Interrupted,
    Leased(usize),
    Unanswered(usize),
    Cleared { n: usize, ago: i64 },
    ClearedByOperator,
    Time(i64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0..4_usize, 1..100_u32).prop_map(|(n, vcpus)| Happens::Refused { n, vcpus }),
        Just(Happens::Interrupted),
        (0..4_usize).prop_map(Happens::Leased),
        (0..4_usize).prop_map(Happens::Unanswered),
        (0..4_usize, 0..400_i64).prop_map(|(n, ago)| Happens::Cleared { n, ago }),
        Just(Happens::ClearedByOperator),
        prop_oneof![0..200_i64, 0..20_000_i64].prop_map(Happens::Time),
    ]
}

fn step(before: Option<&Mark>, what: &str, happens: &Happens, now: i64) -> Option<Mark> {
    match happens {
        Happens::Refused { n, vcpus } => refused_of(before, what, (*n, Some(*vcpus)), now),
        Happens::Interrupted => interrupted(before, now),
        Happens::Leased(n) => before.and_then(|mark| leased(mark, *n, now)),
        Happens::Unanswered(n) => {
            before.and_then(|mark| mark.unanswered(Asker::new(*n, now).asked(), at(now)))
        }
        Happens::Cleared { n, ago } => {
            before.and_then(|mark| mark.cleared(Asker::new(*n, now - ago).asked(), at(now)))
        }
        Happens::ClearedByOperator => before.and_then(|mark| mark.cleared_by_operator(at(now))),
        Happens::Time(_) => None,
    }
}

/// The invariants of every transition.
fn check_step(before: Option<&Mark>, after: &Mark, happens: &Happens, now: i64) {
    assert_eq!(after.revision, before.map_or(0, |mark| mark.revision) + 1);
    let known = before.filter(|mark| mark.state(at(now)) != MarkState::Forgotten);
    let probe = known.and_then(|mark| mark.probe.as_ref());
    let held = after.until.duration_since(after.asked_at);
    if after.count > 0 {
        assert!((FIRST_HOLD..=MOST_HOLD).contains(&held), "{held}");
        let least = after.probe.as_ref().map_or(after.asked_at, |probe| probe.until);
        assert!(after.last_resort_at() <= least.max(after.asked_at + LAST_RESORT));
    }
    if let Some(known) = known {
        assert_eq!(known.since, after.since);
        assert!(after.from_vcpus <= known.from_vcpus);
    }
    match happens {
        Happens::Refused { n, .. } => {
            let of_probe = probe.is_some_and(|probe| probe.launch == launch(*n));
            assert_eq!(after.count, known.map_or(1, |mark| mark.count + u32::from(of_probe)));
            assert!(!matches!(after.state(at(now)), MarkState::Due | MarkState::Forgotten));
        }
        Happens::Interrupted => {
            assert_eq!(after.count, known.map_or(1, |mark| mark.count));
            assert!(held >= INTERRUPTED_HOLD);
        }
        Happens::Leased(n) => {
            assert!(!matches!(known.unwrap().state(at(now)), MarkState::Probing(_)));
            assert!(matches!(after.state(at(now)), MarkState::Probing(probe) if probe.launch == launch(*n)));
        }
        Happens::Unanswered(n) => {
            assert_eq!(probe.unwrap().launch, launch(*n));
            assert_eq!((after.state(at(now)), after.count), (MarkState::Held, known.unwrap().count));
        }
        Happens::Cleared { .. } | Happens::ClearedByOperator => {
            assert_eq!((after.state(at(now)), after.count), (MarkState::Forgotten, 0));
        }
        Happens::Time(_) => unreachable!(),
    }
}

fn offering_key() -> impl Strategy<Value = OfferingKey> {
    (0..3_usize, 1..3_u8, prop_oneof!["m5", "c5"], prop_oneof!["large", "xlarge"]).prop_map(
        |(capacity_type, zone, family, size)| OfferingKey {
            capacity_type: CapacityType::ALL[capacity_type],
            zone_id: ZoneId::parse(format!("use1-az{zone}")).unwrap(),
            instance_type: InstanceType::parse(format!("{family}.{size}")).unwrap(),
        },
    )
}

fn any_key() -> impl Strategy<Value = UnavailableKey> {
    let digest = prop_oneof!["1", "2"].prop_map(|text| RequestDigest::parse(&text).unwrap());
    prop_oneof![
        offering_key().prop_map(UnavailableKey::Offering),
        offering_key().prop_map(|o| UnavailableKey::quota(o.capacity_type, &o.instance_type)),
        (1..3_u8).prop_map(|n| UnavailableKey::Subnet(SubnetId::parse(format!("subnet-{n}")).unwrap())),
        (0..3_usize).prop_map(|n| UnavailableKey::CapacityType(CapacityType::ALL[n])),
        (1..3_u8).prop_map(|n| UnavailableKey::Reservation(ReservationId::parse(format!("cr-{n}")).unwrap())),
        digest.clone().prop_map(UnavailableKey::Request),
        (digest, offering_key())
            .prop_map(|(digest, offering)| UnavailableKey::RequestOffering { digest, offering }),
    ]
}

proptest! {
    #[test]
    fn transitions_keep_their_invariants(
        quota in any::<bool>(),
        history in prop::collection::vec(happens(), 1..60),
    ) {
        let what = if quota { "quota#spot#m5" } else { OFFERING };
        let (mut mark, mut now): (Option<Mark>, i64) = (None, 1_000_000);
        for happens in &history {
            if let Happens::Time(by) = happens {
                now += by;
                continue;
            }
            if quota && matches!(happens, Happens::Interrupted) {
                continue;
            }
            let Some(after) = step(mark.as_ref(), what, happens, now) else { continue };
            check_step(mark.as_ref(), &after, happens, now);
            // Settling again from the result changes nothing.
            prop_assert_eq!(step(Some(&after), what, happens, now), None);
            mark = Some(after);
        }
    }

    #[test]
    fn every_key_reads_back(key in any_key()) {
        prop_assert_eq!(UnavailableKey::parse(&key.to_string()), Some(key));
    }

    #[test]
    fn the_index_finds_what_each_mark_says_of_itself(
        keys in prop::collection::btree_set(any_key(), 0..20),
        offering in offering_key(),
        vcpus in 1..4_u32,
        now in 0..20_000_i64,
    ) {
        let all: Vec<Mark> =
            keys.iter().map(|key| refused_of(None, &key.to_string(), (0, Some(2)), 0).unwrap()).collect();
        let marks: Marks = all.iter().cloned().collect();
        let requests = [RequestDigest::parse("1").unwrap()];
        let reservation = ReservationId::parse("cr-1").unwrap();
        let wanted = WantedOffering {
            requests: &requests,
            reservation: Some(&reservation),
            ..WantedOffering::new(&offering, vcpus)
        };
        let blocking = marks.blocking(&wanted, at(now));
        let expected: Vec<&Mark> = all
            .iter()
            .filter(|mark| mark.concerns(&wanted) && mark.state(at(now)) != MarkState::Forgotten)
            .collect();
        let mut found = blocking.as_ref().map_or(Vec::new(), |blocking| blocking.keys.clone());
        found.sort();
        prop_assert_eq!(found, expected.iter().map(|mark| mark.key.clone()).collect::<Vec<_>>());
        prop_assert_eq!(blocking.map(|b| b.until), expected.iter().map(|mark| mark.until).max());
    }
}

#[test]
fn a_class_with_another_spec_or_image_makes_other_requests() {
    assert_ne!(RequestDigest::of(["prod", "linux"]), RequestDigest::of(["prod", "windows"]));
    let digest = RequestDigest::of(["prod"]).to_string();
    assert_eq!(RequestDigest::parse(&digest).unwrap().to_string(), digest);
    assert_eq!(SignedDuration::from_mins(3), LAST_RESORT);
}
