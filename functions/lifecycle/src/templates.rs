//! Launch templates that nothing needs: EC2 has room for 5,000 in a region, and each image with each NodePool is one.
//!
//! Decides which templates are needed, and which are deleted when. [`crate::templates_view`] reads; `provisioner` makes
//! templates. A template that is deleted too early costs one call: the next launch makes it again.
//!
//! A deletion is two steps. First its name leaves: in one transaction the item goes and the name is noted, on the
//! condition of the cluster's revision, which every launch raises. So a launch committed before stops the deletion,
//! and one committed after finds the name among those that leave, and takes another. Then EC2 is asked, at every look
//! until its list lacks the template. Only a look that asks no more frees the name.
//!
//! Invariants: no name leaves while a launch's token may live; a name that leaves is free an hour later at the
//! earliest, long after every call of the pass that asked; a look deletes at most [`DELETED_MOST`].
//!
//! Source: docs.aws.amazon.com/AWSEC2/latest/UserGuide/launch-template-restrictions.html (read November 2026).

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::id::NodeClassName;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::{EC2_CONSISTENCY, REPLAY_WITHIN};
use tenon_domain::{SignedDuration, Timestamp};
use tenon_table::items::{LeavingTemplates, TemplateItem};

use crate::NAME;
use crate::input::LifecycleInput;
use crate::unneeded::UnneededTemplates;

/// The interval of looks. Templates are deleted up to so much later than a day after their last need.
pub const LOOK_EVERY: SignedDuration = SignedDuration::from_hours(6);
/// How long a template stays after its last need: an image that is rolled back soon finds it.
pub const UNNEEDED_FOR: SignedDuration = SignedDuration::from_hours(24);
/// The earliest that a name is free after it left: a pass ends with its invocation, after a minute at most.
pub const LEAVES_FOR: SignedDuration = SignedDuration::from_hours(1);
/// The most deletions of a look. They take from the same 50 tokens as CreateFleet, of which five a second come back,
/// about as many as calls in a row take.
pub const DELETED_MOST: usize = 20;
/// The most names that leave at once. Every planner reads them: with 4 KB it reads a unit more.
const LEAVING_MOST: usize = 60;
/// The most unneeded templates that are noted, so that the item stays under DynamoDB's 400 KB; the rest is noted later.
const NOTED_MOST: usize = 2000;

/// What a look sees.
#[derive(Debug, Clone, Default)]
pub struct TemplatesView {
    /// The cluster's revision, read before everything else.
    pub revision: u64,
    /// EC2's templates with the tags of the installation and the cluster, and the class that each is made for.
    pub in_ec2: BTreeMap<String, NodeClassName>,
    /// The table's templates, by name.
    pub items: BTreeMap<String, TemplateItem>,
    /// The launches in the table, by the templates that they name.
    pub uses: BTreeMap<String, LaunchUse>,
    /// Names that leave.
    pub leaving: LeavingTemplates,
    /// Templates that nothing needed at the last look.
    pub unneeded: UnneededTemplates,
}

/// How launches use a template; the greater one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaunchUse {
    /// The last one was committed then; all are settled.
    At(Timestamp),
    /// One isn't settled.
    Open,
}

/// The decisions of a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplatePlan {
    /// The cluster's revision, which the decisions about names are conditional on.
    pub revision: u64,
    /// The names that leave from now on, if they change.
    pub leaving: Option<LeavingTemplates>,
    /// The unneeded templates, if they change.
    pub unneeded: Option<UnneededTemplates>,
    /// Templates whose items go.
    pub forgotten: BTreeSet<String>,
    /// Templates to delete in EC2, among them those of earlier looks that EC2 still has.
    pub delete: BTreeSet<String>,
    /// What is told, by class.
    pub journal: Vec<JournalRecord>,
    /// How many deletions are due and left to the next look.
    pub left: usize,
}

/// Why a template is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateNeed {
    /// A launch's token may live.
    Launch,
    /// A class would make it now.
    Class,
    /// A verdict on a class is about it: the next dry run names it again.
    Verdict,
}

/// Why the template is needed now, if it is. A further need is a further arm.
fn need(name: &str, view: &TemplatesView, input: &LifecycleInput) -> Option<TemplateNeed> {
    let used = view.uses.get(name);
    let may_be_sent = |used: &LaunchUse| match used {
        LaunchUse::Open => true,
        LaunchUse::At(at) => input.since(*at) < REPLAY_WITHIN + EC2_CONSISTENCY,
    };
    // A class alone doesn't tell for which NodePools it makes templates. Its launches do, for as long as their nodes
    // live and seven days more.
    let is_made = |item: &TemplateItem| {
        let class = input.classes.get(&item.class);
        used.is_some() && class.is_some_and(|class| class.images.iter().any(|image| image.id == item.image))
    };
    let mut verdicts = input.verdicts.values().flat_map(|of_class| &of_class.0);
    let judged = verdicts.any(|verdict| input.now < verdict.until && verdict.templates.contains(name));
    if used.is_some_and(may_be_sent) {
        Some(TemplateNeed::Launch)
    } else if view.items.get(name).is_some_and(is_made) {
        Some(TemplateNeed::Class)
    } else if judged {
        Some(TemplateNeed::Verdict)
    } else {
        None
    }
}

/// Whether a look is due. During a halt none is.
#[must_use]
pub fn is_due(input: &LifecycleInput) -> bool {
    input.halt.is_none() && input.audit.templates_at.is_some_and(|at| input.since(at) >= LOOK_EVERY)
}

/// Plans a look.
#[must_use]
pub fn plan(view: &TemplatesView, input: &LifecycleInput) -> TemplatePlan {
    let mut leaving = view.leaving.since.clone();
    leaving.retain(|name, since| view.in_ec2.contains_key(name) || input.since(*since) < LEAVES_FOR);
    let mut plan = TemplatePlan { revision: view.revision, ..TemplatePlan::default() };
    // A pass that sent the launch of another one may have written the item again.
    let freed = view.leaving.since.keys().filter(|name| !leaving.contains_key(*name));
    plan.forgotten = freed.filter(|name| view.items.contains_key(*name)).cloned().collect();
    let again = leaving.keys().filter(|name| view.in_ec2.contains_key(*name));
    plan.delete = again.take(DELETED_MOST).cloned().collect();

    let mut unneeded = unneeded(view, input);
    let since = |name: &str, noted: Timestamp| match view.uses.get(name) {
        Some(LaunchUse::At(at)) => noted.max(*at),
        Some(LaunchUse::Open) => input.now,
        None => noted,
    };
    let due: Vec<String> = unneeded
        .iter()
        .filter(|(name, noted)| input.since(since(name, **noted)) >= UNNEEDED_FOR)
        .map(|(name, _)| name.clone())
        .collect();
    let room = DELETED_MOST.saturating_sub(plan.delete.len()).min(LEAVING_MOST.saturating_sub(leaving.len()));
    plan.left = due.len().saturating_sub(room);
    let chosen: BTreeSet<String> = due.into_iter().take(room).collect();
    for name in &chosen {
        unneeded.remove(name);
        leaving.insert(name.clone(), input.now);
    }
    plan.journal = told(&chosen, view, input);
    plan.delete.extend(chosen.iter().filter(|name| view.in_ec2.contains_key(*name)).cloned());
    plan.forgotten.extend(chosen);

    let next = |revision: u64| revision.saturating_add(1);
    if leaving != view.leaving.since {
        plan.leaving = Some(LeavingTemplates { revision: next(view.leaving.revision), since: leaving });
    }
    if unneeded != view.unneeded.since {
        plan.unneeded = Some(UnneededTemplates { revision: next(view.unneeded.revision), since: unneeded });
    }
    plan
}

/// The templates that nothing needs now, each since the first look that saw it.
fn unneeded(view: &TemplatesView, input: &LifecycleInput) -> BTreeMap<String, Timestamp> {
    let known = view.items.keys().chain(view.in_ec2.keys()).collect::<BTreeSet<_>>().into_iter();
    let idle = known
        .filter(|name| !view.leaving.since.contains_key(*name))
        .filter(|name| need(name, view, input).is_none());
    let (noted, new): (Vec<&String>, Vec<&String>) =
        idle.partition(|name| view.unneeded.since.contains_key(*name));
    let since = |name: &String| view.unneeded.since.get(name).copied().unwrap_or(input.now);
    noted.into_iter().chain(new).take(NOTED_MOST).map(|name| (name.clone(), since(name))).collect()
}

/// One record for the templates of each class.
fn told(chosen: &BTreeSet<String>, view: &TemplatesView, input: &LifecycleInput) -> Vec<JournalRecord> {
    let mut by_class: BTreeMap<&NodeClassName, Vec<&str>> = BTreeMap::new();
    for name in chosen {
        let item = view.items.get(name).map(|item| &item.class);
        if let Some(class) = item.or_else(|| view.in_ec2.get(name)) {
            by_class.entry(class).or_default().push(name);
        }
    }
    by_class.into_iter().filter_map(|(class, names)| record(class, &names, view, input)).collect()
}

fn record(
    class: &NodeClassName,
    names: &[&str],
    view: &TemplatesView,
    input: &LifecycleInput,
) -> Option<JournalRecord> {
    let (templates, them) = match names {
        [] => return None,
        [only] => (format!("launch template `{only}`"), "it"),
        [first, rest @ ..] => (format!("launch template `{first}` and {} more", rest.len()), "them"),
    };
    let hours = UNNEEDED_FOR.as_hours();
    let message = format!(
        "deleting {templates} of EC2NodeClass `{class}`: neither the class nor a launch has needed {them} for {hours} h"
    );
    let subject = Subject { kind: SubjectKind::Class, name: class.to_string() };
    let record = JournalRecord::new(subject, input.now, NAME, Decision::TemplatesDeleted, message);
    Some(record.detail("templates", names.join(" ")).evidence("revision", view.revision))
}
