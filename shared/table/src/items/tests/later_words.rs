//! Words of later releases: what each is taken for, and the few that make an item unreadable.

use std::collections::BTreeSet;
use std::fmt::Debug;

use tenon_domain::boot::{BootFailure, BootFault, BootRecord};
use tenon_domain::claim::{
    AnnouncementKind, Claim, ClaimState, InstanceAnnouncement, MinValuesState, RemovalReason,
};
use tenon_domain::class_status::{ClassStatus, ConditionStatus, ImageVariant};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::evidence::{CatalogPart, ErrorKind};
use tenon_domain::image::{ImageFacts, ImageRecord, ImageState};
use tenon_domain::launch_verdict::ClassVerdicts;
use tenon_domain::placement::Tenancy;
use tenon_domain::reservation::{ClassReservations, LaunchedInto, ReservationKind};
use tenon_domain::unavailable::{Mark, OfferingKey};
use tenon_domain::wake::FunctionName;

use super::super::form::FieldProblem;
use super::super::*;
use super::claim_samples::*;
use super::class_samples::*;
use super::samples::*;
use super::{SampleVisitor, drifted_claim, visit_samples};
use crate::{Item, Key, Value};

const LATER: &str = "WordOfLater";

/// Changes each text of a value that is at that path: names of maps, joined by dots.
fn each_text(value: &mut Value, at: &str, change: &mut impl FnMut(&str, &mut String)) {
    match value {
        Value::S(text) => change(at, text),
        Value::L(values) => values.iter_mut().for_each(|value| each_text(value, at, change)),
        Value::M(fields) => {
            for (name, value) in fields {
                let under = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                each_text(value, &under, change);
            }
        }
        Value::N(_) | Value::Bool(_) | Value::B(_) | Value::Null => {}
    }
}

/// An item with an unknown word there.
fn with_later_word(item: &Item, path: &str) -> Item {
    let (mut whole, mut changed) = (Value::M(item.clone()), 0);
    each_text(&mut whole, "", &mut |at, text| {
        if at == path {
            LATER.clone_into(text);
            changed += 1;
        }
    });
    assert!(changed > 0, "no text at `{path}`");
    let Value::M(item) = whole else { panic!() };
    item
}

/// The attributes whose unknown word makes an item unreadable, by kind.
#[derive(Default)]
struct StrictWords(BTreeSet<String>);

impl SampleVisitor for StrictWords {
    fn visit<T: ItemForm + PartialEq + Debug>(&mut self, key: Key, value: &T) {
        let item = to_item(value);
        let mut paths = BTreeSet::new();
        each_text(&mut Value::M(item.clone()), "", &mut |at, _| {
            paths.insert(at.to_owned());
        });
        for path in paths {
            let read = from_item::<T>(&key, &with_later_word(&item, &path));
            if read.is_err_and(|error| matches!(error.field.problem, FieldProblem::Unknown(_))) {
                let kind = key.sk.split('#').next().unwrap_or_default();
                self.0.insert(format!("{kind} {path}"));
            }
        }
    }
}

/// A release that adds one of these words must be able to read it before the next release writes it: `docs/upgrade.md`
/// says so. All other words of later releases are read.
#[test]
fn only_these_words_of_a_later_release_make_an_item_unreadable() {
    let mut strict = StrictWords::default();
    visit_samples(&mut strict);
    // The stack's parameters: its own function `registry` refuses a word that it doesn't know.
    let words = strict.0.into_iter().filter(|word| !word.starts_with("CLUSTER "));
    let expected = [
        "CATALOG on-demand-prices.currency",
        "CATALOG on-demand-prices.origin",
        "CATALOG spot-prices.currency",
        "COMMAND phase",
        "LAUNCH phase",
        "NODECLAIM instance.capacity_type",
        "NODECLAIM phase",
        "NODECLASS placement_group.strategy",
        // Each function reads its own items, and nobody else's are named by a function that isn't there.
        "SEEN function",
        "TOLD function",
        "TRIAL function",
        // Whoever reads all marks leaves such a one out.
        "UNAVAILABLE what",
    ];
    assert_eq!(words.collect::<Vec<_>>(), expected);
}

/// What an item with a later word reads as.
fn check<T: ItemForm + PartialEq + Debug + Clone>(value: &T, path: &str, expected: &T) {
    let key = keys::halt(&cluster());
    let read = from_item::<T>(&key, &with_later_word(&to_item(value), path));
    assert_eq!(read.as_ref(), Ok(expected), "{path}");
    assert_ne!(value, expected, "{path}");
}

#[test]
fn a_claims_words_of_a_later_release() {
    let drifted = drifted_claim();
    check(&drifted, "drift.reason", &Claim { drift: None, ..drifted.clone() });
    let announced = |kind| {
        let announced = InstanceAnnouncement { kind, at: at("00:00:00"), starts_at: Some(at("12:00:00")) };
        Claim { announced: Some(announced), ..claim(ClaimState::Planned) }
    };
    let recommended = announced(AnnouncementKind::RebalanceRecommendation);
    check(&recommended, "announced.kind", &announced(AnnouncementKind::ScheduledChange));
    let draining = |reason| {
        let (at, instance) = (at("00:00:05"), instance());
        claim(ClaimState::Draining { instance, node: None, reason, at, deadline: Some(at) })
    };
    check(&draining(RemovalReason::Drifted), "removal", &draining(RemovalReason::Deleted));
    let with_tenancy = Claim { tenancy: Tenancy::Dedicated, ..claim(ClaimState::Planned) };
    let item = with_later_word(&to_item(&with_tenancy), "tenancy");
    let key = keys::claim(&cluster(), &with_tenancy.name);
    assert_eq!(from_item::<Claim>(&key, &item).unwrap(), with_tenancy);
    let relaxed = Claim { min_values: MinValuesState::Relaxed, ..claim(ClaimState::Planned) };
    let item = with_later_word(&to_item(&relaxed), "min_values");
    assert_eq!(from_item::<Claim>(&key, &item).unwrap(), relaxed);
    let reserved = |kind| {
        let mut instance = instance();
        instance.reservation = Some(LaunchedInto { id: "cr-1".parse().unwrap(), kind });
        claim(ClaimState::Launched { instance, at: at("00:00:05") })
    };
    let (block, default) = (reserved(ReservationKind::CapacityBlock), reserved(ReservationKind::Default));
    check(&block, "instance.capacity_reservation.kind", &default);
}

#[test]
fn a_commands_reason_of_a_later_release() {
    let done = command(CommandState::Done { at: at("00:00:08") });
    check(&done, "reason", &Command { reason: RemovalReason::Deleted, ..done.clone() });
}

#[test]
fn an_images_words_of_a_later_release() {
    let failed = |fault| {
        let failure = boot().failure.map(|failure| BootFailure { fault, ..failure });
        BootRecord { failure, ..boot() }
    };
    check(&failed(BootFault::LaunchFailed), "failure.reason", &failed(BootFault::NeverJoined));
    let image = image_record();
    check(&image, "state", &ImageRecord { state: ImageState::Invalid, ..image.clone() });
    let facts = |facts| ImageRecord { facts, ..image_record() };
    check(&image, "boot_mode", &facts(ImageFacts { boot_mode: None, ..image.facts.clone() }));
    check(&image, "ena", &facts(ImageFacts { ena: None, ..image.facts.clone() }));
    check(&image, "root_device_type", &facts(ImageFacts { root_device_type: None, ..image.facts.clone() }));
}

#[test]
fn a_classs_words_of_a_later_release() {
    let class = class_status();
    let of = |change: fn(&mut ClassStatus)| {
        let mut class = class_status();
        change(&mut class);
        class
    };
    let nvidia = of(|class| class.images.iter_mut().for_each(|image| image.variant = ImageVariant::Nvidia));
    check(&nvidia, "images.variant", &of(|class| class.images.clear()));
    check(
        &class,
        "images.boot_mode",
        &of(|class| class.images.iter_mut().for_each(|image| image.boot_mode = None)),
    );
    check(
        &class,
        "conditions.status",
        &of(|class| class.conditions.iter_mut().for_each(|one| one.status = ConditionStatus::Unknown)),
    );
    for word in ["capacity_reservations.match_criteria", "capacity_reservations.kind"] {
        check(&class, word, &of(|class| class.reservations = ClassReservations::restored(Vec::new())));
    }
    for word in ["verdicts.outcome", "verdicts.by"] {
        check(&verdicts(), word, &ClassVerdicts::default());
    }
}

#[test]
fn the_catalogues_words_of_a_later_release() {
    let failed = |kind| {
        let mut meta = catalog_meta();
        for part in meta.parts.values_mut() {
            part.last_error_kind = kind;
        }
        meta
    };
    let mut one = failed(None);
    let spot = one.parts.get_mut(&CatalogPart::SpotPrices).unwrap();
    spot.last_error_kind = Some(ErrorKind::Denied);
    check(&one, "spot-prices.last_error_kind", &failed(None));
    let seen = seen_by_provisioner();
    let mut item = to_item(&seen);
    let Some(Value::M(parts)) = item.get_mut("catalog") else { panic!() };
    parts.insert("part-of-later".to_owned(), Value::number(3_u64));
    let key = keys::seen(&cluster(), FunctionName::Provisioner);
    assert_eq!(from_item::<SeenRecord>(&key, &item).unwrap(), seen);
    let owner = InstanceOwner {
        instance: instance().id,
        cluster: cluster(),
        claim: name("default-3k9x2"),
        offering: OfferingKey::parse("spot#use1-az1#m5.large"),
    };
    check(&owner, "offering", &InstanceOwner { offering: None, ..owner.clone() });
}

#[test]
fn marks_of_what_only_a_later_release_knows_are_left_out() {
    let key = keys::unavailable(&region(), &mark().key);
    let (known, mut broken) = (to_item(&mark()), to_item(&mark()));
    let items = [(key.clone(), with_later_word(&known, "what")), (key.clone(), known)];
    assert_eq!(from_known_items::<Mark>(&items).unwrap(), [mark()]);
    broken.remove("count");
    let error = from_known_items::<Mark>(&[(key, broken)]).unwrap_err();
    assert_eq!(error.field.to_string(), "attribute `count`: it is missing");
}
