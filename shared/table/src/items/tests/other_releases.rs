//! Words of other releases: what a reader makes of one that it doesn't know.

use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::class_status::{ClassStatus, Condition, ConditionReason, ConditionStatus, ImageFault};
use tenon_domain::journal::{Decision, JournalRecord};
use tenon_domain::launch_verdict::{ClassVerdicts, VerdictOutcome};
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::wake::FunctionName;

use super::super::*;
use super::claim_samples::*;
use super::class_samples::*;
use super::samples::*;
use crate::{Item, Value, Write};

fn class_of(status: ConditionStatus, reason: ConditionReason) -> (ClassStatus, Item) {
    let of = |condition: &Condition| Condition { status, reason, next_try: None, ..condition.clone() };
    let conditions = class_status().conditions.iter().map(of).collect();
    let class = ClassStatus { conditions, ..class_status() };
    let item = to_item(&class);
    (class, item)
}

fn each_condition(item: &mut Item, change: impl Fn(&mut Item)) {
    let Some(Value::L(conditions)) = item.get_mut("conditions") else { panic!() };
    for condition in conditions {
        let Value::M(fields) = condition else { panic!() };
        change(fields);
    }
}

/// A release reads what the one before it wrote, and the other way round.
#[test]
fn a_reason_of_another_release_is_no_error() {
    let key = keys::node_class(&cluster(), &class_status().name);
    let check = |status: ConditionStatus, expected: ConditionReason| {
        let (class, mut item) = class_of(status, expected);
        each_condition(&mut item, |fields| {
            fields.insert("reason".into(), Value::text("ReasonOfLater"));
            fields.insert("exact_reason".into(), Value::text("ExactReasonOfLater"));
        });
        assert_eq!(from_item::<ClassStatus>(&key, &item).unwrap(), class);
    };
    check(ConditionStatus::True, ConditionReason::Holds);
    check(ConditionStatus::False, ConditionReason::UnhealthyDependents);
    check(ConditionStatus::Unknown, ConditionReason::UnhealthyDependents);
}

#[test]
fn a_condition_of_a_later_release_is_left_out_and_the_others_are_read() {
    fn later(mut item: Item) -> Item {
        let Some(Value::L(conditions)) = item.get_mut("conditions") else { panic!() };
        let mut first = conditions[0].clone();
        let Value::M(fields) = &mut first else { panic!() };
        fields.insert("type".into(), Value::text("TypeOfLater"));
        conditions.insert(0, first);
        item
    }
    let (class, pool) = (class_status(), pool_status());
    let key = keys::node_class(&cluster(), &class.name);
    assert_eq!(from_item::<ClassStatus>(&key, &later(to_item(&class))).unwrap(), class);
    let key = keys::node_pool(&cluster(), &pool.name);
    assert_eq!(from_item::<PoolStatus>(&key, &later(to_item(&pool))).unwrap(), pool);
}

#[test]
fn a_verdicts_reason_of_a_later_release_is_a_refusal_with_its_message() {
    let key = keys::node_class(&cluster(), &class_status().name);
    let mut item = to_item(&verdicts());
    let Some(Value::L(of)) = item.get_mut("verdicts") else { panic!() };
    let denied = of.iter_mut().find_map(|verdict| {
        let Value::M(fields) = verdict else { panic!() };
        fields.contains_key("reason").then_some(fields)
    });
    denied.unwrap().insert("reason".into(), Value::text("ReasonOfLater"));
    let read: ClassVerdicts = from_item(&key, &item).unwrap();
    let mut expected = verdicts();
    for verdict in &mut expected.0 {
        if let VerdictOutcome::Denied { reason, .. } = &mut verdict.outcome {
            *reason = ConditionReason::LaunchRefused;
        }
    }
    assert_ne!(expected, verdicts());
    assert_eq!(read, expected);
}

#[test]
fn a_reason_that_earlier_releases_cant_read_stands_beside_one_that_they_can() {
    let key = keys::node_class(&cluster(), &class_status().name);
    let (class, mut item) = class_of(ConditionStatus::False, ConditionReason::KubeletExpressionsDisabled);
    assert_eq!(from_item::<ClassStatus>(&key, &item).unwrap(), class);
    each_condition(&mut item, |fields| {
        assert_eq!(fields["reason"].as_text(), Some("InvalidKubeletConfiguration"));
        fields.insert("exact_reason".into(), Value::text("ReasonOfLater"));
    });
    let (earlier, _) = class_of(ConditionStatus::False, ConditionReason::InvalidKubeletConfiguration);
    assert_eq!(from_item::<ClassStatus>(&key, &item).unwrap(), earlier);
}

/// The fields of an item's list of maps.
fn maps_of<'a>(item: &'a mut Item, name: &str) -> Vec<&'a mut Item> {
    let Some(Value::L(maps)) = item.get_mut(name) else { panic!("no list `{name}`") };
    let fields = |map: &'a mut Value| {
        let Value::M(fields) = map else { panic!("`{name}` has no maps") };
        fields
    };
    maps.iter_mut().map(fields).collect()
}

#[test]
fn an_images_fault_of_a_later_release_is_a_refusal_with_its_message() {
    let key = keys::node_class(&cluster(), &class_status().name);
    let mut item = to_item(&class_status());
    for image in maps_of(&mut item, "rejected_images") {
        for reason in maps_of(image, "reasons") {
            reason.insert("reason".into(), Value::text("FaultOfLater"));
        }
    }
    let mut expected = class_status();
    for reason in expected.rejected_images.iter_mut().flat_map(|image| &mut image.reasons) {
        reason.fault = ImageFault::LaunchRefused;
    }
    assert_ne!(expected, class_status());
    assert_eq!(from_item::<ClassStatus>(&key, &item).unwrap(), expected);
}

#[test]
fn a_decision_of_a_later_release_keeps_its_sentence() {
    let record = journal_record();
    for write in Journal::of(JournalOf::Cluster(&cluster())).writes(&record, DecisionCounter::Subject(12)) {
        let Write::Put { key, mut item } = write else { panic!("a record is put") };
        item.insert("decision".into(), Value::text("DecisionOfLater"));
        let read: JournalRecord = journal_from_item(&key, &item).unwrap();
        assert_eq!((read.decision, read.message), (Decision::Unknown, record.message.clone()));
    }
}

#[test]
fn a_finding_of_a_later_release_hides_no_other() {
    let key = keys::told(&cluster(), FunctionName::Provisioner);
    let item = to_item(&told());
    let finding = || {
        let Some(Value::L(findings)) = item.get("findings") else { panic!("no findings") };
        let Some(Value::M(finding)) = findings.first() else { panic!("no finding") };
        finding.clone()
    };
    let check = |name: &str, expected: &[Decision]| {
        let mut later = finding();
        later.insert(name.into(), Value::text("WordOfLater"));
        let mut item = item.clone();
        item.insert("findings".into(), Value::L(vec![Value::M(later), Value::M(finding())]));
        let read: ToldFindings = from_item(&key, &item).unwrap();
        let decisions: Vec<Decision> = read.findings.iter().map(|finding| finding.decision).collect();
        assert_eq!(decisions, expected, "{name}");
    };
    check("decision", &[Decision::Unknown, Decision::Refused]);
    check("shown", &[Decision::Refused, Decision::Refused]);
    check("kind", &[Decision::Refused]);
}

#[test]
fn a_hash_of_another_version_counts_as_absent() {
    let claim = claim(ClaimState::Planned);
    let key = keys::claim(&cluster(), &claim.name);
    let mut item = to_item(&claim);
    assert!(!item.contains_key("class_hash_version"), "as before the attribute");
    item.insert("class_hash_version".into(), Value::text("v7"));
    let read = from_item::<Claim>(&key, &item).unwrap();
    assert_eq!((read.class_hash, read.pool_hash), (None, claim.pool_hash));
    item.insert("pool_hash_version".into(), Value::text("v4"));
    assert_eq!(from_item::<Claim>(&key, &item).unwrap().pool_hash, None);
}
