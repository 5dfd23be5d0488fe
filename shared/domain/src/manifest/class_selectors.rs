//! Selector terms of an EC2NodeClass.
//!
//! Decides which terms exclude each other. Karpenter rejects a list of subnets' or security groups' terms only where
//! every term mixes what excludes itself; a list with a clean term beside a mixed one is accepted here too, with a
//! warning, and the mixed term counts by its id (or name), as there (aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass.go`).

use std::collections::BTreeMap;

use crate::api::node_class::{
    AmiSelectorTerm, ReservationSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use crate::catalog::settings::AmiFamily;
use crate::id::{ImageId, ReservationId, SecurityGroupId, SubnetId};
use crate::reservation::MatchCriteria;

use super::decode::{At, Fields, quoted};

/// Karpenter's bounds.
const MAX_TERMS: usize = 30;
const MAX_TAGS: usize = 20;
const MAX_ALIAS: usize = 30;
const ALIASES: [(&str, AmiFamily); 6] = [
    ("al2", AmiFamily::Al2),
    ("al2023", AmiFamily::Al2023),
    ("bottlerocket", AmiFamily::Bottlerocket),
    ("windows2019", AmiFamily::Windows2019),
    ("windows2022", AmiFamily::Windows2022),
    ("windows2025", AmiFamily::Windows2025),
];

/// The family that an alias names.
pub(super) fn alias_family(name: &str) -> Option<AmiFamily> {
    ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, family)| *family)
}

/// Whether a term has an alias, well formed or not.
pub(super) fn has_alias(spec: At<'_>) -> bool {
    spec.field("amiSelectorTerms").is_some_and(|list| list.items().any(|term| term.has("alias")))
}

/// Reads a list of terms that has to be there.
fn terms<'a, T>(
    spec: &'a At<'a>,
    key: &'a str,
    fields: Fields<'_>,
    read: impl Fn(At<'_>) -> Option<T>,
) -> Vec<T> {
    let Some(list) = spec.list(key) else {
        match spec.field(key) {
            None => spec.missing(key, "at least one term"),
            Some(field) => field.error("must not be empty", "add at least one term"),
        }
        return Vec::new();
    };
    check_count(list);
    let maps = list.items().filter(|item| item.check_map(fields));
    maps.filter_map(read).collect()
}

fn check_count(list: At<'_>) {
    if list.items().count() > MAX_TERMS {
        list.error(format!("more than {MAX_TERMS} terms"), "leave some out");
    }
}

/// Rejects a list whose every term gives one field beside others that it excludes; warns of single such terms.
fn check_mixed(spec: At<'_>, key: &str, exclusive: &[&str], all: &[&str]) {
    let Some(list) = spec.list(key) else { return };
    let mixed = |term: &At<'_>, field: &str| {
        term.has(field) && all.iter().any(|other| *other != field && term.has(other))
    };
    for field in exclusive {
        let every = list.items().all(|term| mixed(&term, field));
        for term in list.items().filter(|term| mixed(term, field)) {
            let others: Vec<&str> =
                all.iter().copied().filter(|other| other != field && term.has(other)).collect();
            let message = format!("`{field}` can't be combined with {}", quoted(&others));
            if every {
                term.error(message, "write them as separate terms, or keep one of them");
            } else {
                term.warn(
                    format!("{message}; only `{field}` counts"),
                    "write them as separate terms, or keep one of them",
                );
            }
        }
    }
}

fn tags(term: At<'_>) -> BTreeMap<String, String> {
    if let Some(field) = term.field("tags") {
        if field.entries().count() > MAX_TAGS {
            field.error(format!("more than {MAX_TAGS} tags"), "leave some out");
        }
        for (key, value) in field.entries() {
            if key.is_empty() || value.tree().value == super::tree::Value::Text(String::new()) {
                value.error("empty tag keys or values aren't supported", "write `*` for any value");
            }
        }
    }
    term.text_map("tags")
}

fn nothing(term: At<'_>, expected: &[&str]) {
    term.error("the term selects by nothing", format!("add one of {}", quoted(expected)));
}

pub(super) fn read_subnet_terms(spec: At<'_>) -> Vec<SubnetSelectorTerm> {
    let key = "subnetSelectorTerms";
    let all = ["tags", "id"];
    check_mixed(spec, key, &["id"], &all);
    terms(&spec, key, Fields::Only(&all), |term| {
        let tags = tags(term);
        if let Some(id) = term.field("id") {
            return id.id(SubnetId::parse).map(SubnetSelectorTerm::Id);
        }
        if tags.is_empty() {
            nothing(term, &all);
        }
        Some(SubnetSelectorTerm::Tags(tags))
    })
}

pub(super) fn read_security_group_terms(spec: At<'_>) -> Vec<SecurityGroupSelectorTerm> {
    let key = "securityGroupSelectorTerms";
    let all = ["tags", "id", "name"];
    check_mixed(spec, key, &["id", "name"], &all);
    terms(&spec, key, Fields::Only(&all), |term| {
        let tags = tags(term);
        if let Some(id) = term.field("id") {
            return id.id(SecurityGroupId::parse).map(SecurityGroupSelectorTerm::Id);
        }
        if term.has("name") {
            return term.required_text("name", "the group's name").map(SecurityGroupSelectorTerm::Name);
        }
        if tags.is_empty() {
            nothing(term, &all);
        }
        Some(SecurityGroupSelectorTerm::Tags(tags))
    })
}

pub(super) fn read_ami_terms(spec: At<'_>) -> Vec<AmiSelectorTerm> {
    let all = ["tags", "id", "name", "owner", "alias", "ssmParameter"];
    let read = terms(&spec, "amiSelectorTerms", Fields::Only(&all), |term| {
        let given: Vec<&str> = all.into_iter().filter(|key| term.has(key)).collect();
        for alone in ["alias", "id"] {
            let others: Vec<&str> = given.iter().copied().filter(|key| *key != alone).collect();
            // Karpenter forgot the parameter in its rule: the term counts by its id or alias there, and here.
            if term.has(alone) && others == ["ssmParameter"] {
                term.warn(
                    format!("`{alone}` can't be combined with `ssmParameter`; only `{alone}` counts"),
                    "write them as separate terms, or keep one of them",
                );
            } else if term.has(alone) && !others.is_empty() {
                term.error(
                    format!("`{alone}` can't be combined with {}", quoted(&others)),
                    "write them as separate terms, or keep one of them",
                );
                return None;
            }
        }
        let tags = tags(term);
        if let Some(id) = term.field("id") {
            return id.id(ImageId::parse).map(AmiSelectorTerm::Id);
        }
        if let Some(alias) = term.field("alias") {
            return read_alias(alias);
        }
        if term.has("ssmParameter") {
            return term.required_text("ssmParameter", "a name or an ARN").map(AmiSelectorTerm::SsmParameter);
        }
        let (name, owner) = (term.text_of("name"), term.text_of("owner"));
        if name.is_none() && tags.is_empty() {
            nothing(term, &["tags", "id", "name", "alias", "ssmParameter"]);
        }
        Some(AmiSelectorTerm::Match { name, tags, owner })
    });
    if let Some(list) = spec.list("amiSelectorTerms")
        && has_alias(spec)
        && list.items().count() > 1
    {
        list.error("an alias has to be the only term", "keep the alias, or the other terms");
    }
    read
}

fn read_alias(at: At<'_>) -> Option<AmiSelectorTerm> {
    let text = at.text()?;
    let words = ALIASES.map(|(alias, _)| alias);
    if text.len() > MAX_ALIAS {
        at.error(format!("an alias of more than {MAX_ALIAS} characters"), "shorten it");
        return None;
    }
    let Some((family, version)) = text.split_once('@').filter(|(_, version)| !version.is_empty()) else {
        at.error(format!("`{text}` is not an alias"), "write `family@version`, such as `al2023@latest`");
        return None;
    };
    if alias_family(family).is_none() {
        let near = crate::requirement::hints::nearest(family, words);
        let remedy =
            near.map_or("use one of these".to_owned(), |near| format!("did you mean `{near}@{version}`?"));
        at.error(format!("`{family}` is not a family of aliases: expected {}", quoted(&words)), remedy);
        return None;
    }
    if family.starts_with("windows") && version != "latest" {
        at.error("aliases of Windows have no versions", format!("write `{family}@latest`"));
        return None;
    }
    Some(AmiSelectorTerm::Alias { family: family.to_owned(), version: version.to_owned() })
}

/// `capacityReservationSelectorTerms`, which may be missing.
pub(super) fn read_reservation_terms(spec: At<'_>) -> Vec<ReservationSelectorTerm> {
    let key = "capacityReservationSelectorTerms";
    let all = ["tags", "id", "instanceMatchCriteria", "ownerID"];
    check_mixed(spec, key, &["id"], &all);
    let Some(list) = spec.list(key) else { return Vec::new() };
    check_count(list);
    let maps = list.items().filter(|item| item.check_map(Fields::Only(&all)));
    maps.filter_map(|term| read_reservation_term(term)).collect()
}

fn read_reservation_term(term: At<'_>) -> Option<ReservationSelectorTerm> {
    let tags = tags(term);
    let id = term.field("id").map(|id| id.id(ReservationId::parse));
    let criteria = term
        .field("instanceMatchCriteria")
        .and_then(|field| field.one_of("an instance match criterion", &["open", "targeted"]));
    let owner = term.field("ownerID").and_then(|owner| {
        let text = owner.text()?;
        if !(text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit())) {
            owner.error(format!("`{text}` is not an account"), "write twelve digits");
        }
        Some(text.to_owned())
    });
    if let Some(id) = id {
        return id.map(ReservationSelectorTerm::Id);
    }
    if !term.has("instanceMatchCriteria") && tags.is_empty() {
        nothing(term, &["tags", "id", "instanceMatchCriteria"]);
    }
    let match_criteria = criteria.and_then(MatchCriteria::parse);
    Some(ReservationSelectorTerm::Match { tags, owner, match_criteria })
}

/// `placementGroupSelector`: validated only.
pub(super) fn check_placement_group(spec: At<'_>) {
    let Some(at) = spec.object("placementGroupSelector", Fields::Only(&["name", "id"])) else { return };
    if at.has("name") == at.has("id") {
        at.error("exactly one of `name` and `id` is required", "keep one of them");
        return;
    }
    if at.has("name") {
        at.required_text("name", "the placement group's name");
    }
    if let Some(field) = at.field("id")
        && let Some(text) = field.text()
    {
        let rest = text.strip_prefix("pg-").unwrap_or_default();
        if rest.is_empty() || !rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
            field.error(
                format!("`{text}` is not a placement group's id"),
                "write `pg-` and letters or digits",
            );
        }
    }
}
