//! Selector terms of an EC2NodeClass.
//!
//! Decides which fields of a term exclude each other. Like Karpenter, it rejects a list of subnet or security group
//! terms only if every term has excluded fields (aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass.go`). If one
//! term is correct, the others get a warning and select by their id or name alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use super::decode::{Place, quoted, told};
use super::fields::texts;
use crate::api::node_class::{
    AmiSelectorTerm, PlacementGroupSelector, ReservationSelectorTerm, SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
};
use crate::catalog::settings::AmiFamily;
use crate::id::{ImageId, PlacementGroupId, ReservationId, SecurityGroupId, SubnetId};
use crate::requirement::hints::nearest;
use crate::reservation::MatchCriteria;

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
const APART: &str = "write them as separate terms, or keep one of them";

/// The family that an alias names.
pub(super) fn alias_family(name: &str) -> Option<AmiFamily> {
    ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, family)| *family)
}

type SelectorTags = Option<TagMap>;

#[derive(Debug, Deserialize)]
struct TagMap(#[serde(deserialize_with = "texts")] BTreeMap<String, String>);

/// A term of `subnetSelectorTerms`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SubnetTerm {
    tags: SelectorTags,
    id: Option<SubnetId>,
}

/// A term of `securityGroupSelectorTerms`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupTerm {
    tags: SelectorTags,
    id: Option<SecurityGroupId>,
    name: Option<String>,
}

/// A term of `amiSelectorTerms`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AmiTerm {
    tags: SelectorTags,
    id: Option<ImageId>,
    name: Option<String>,
    owner: Option<String>,
    alias: Option<String>,
    ssm_parameter: Option<String>,
}

/// A term of `capacityReservationSelectorTerms`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ReservationTerm {
    tags: SelectorTags,
    id: Option<ReservationId>,
    instance_match_criteria: Option<MatchCriteria>,
    #[serde(rename = "ownerID", deserialize_with = "account")]
    owner_id: Option<String>,
}

/// `placementGroupSelector`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlacementGroupTerm {
    name: Option<String>,
    #[serde(deserialize_with = "placement_group_id")]
    id: Option<PlacementGroupId>,
}

fn account<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Some(text));
    }
    Err(Error::custom(told(format_args!("`{text}` is not an account"), "write twelve digits")))
}

fn placement_group_id<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PlacementGroupId>, D::Error> {
    let text = String::deserialize(deserializer)?;
    PlacementGroupId::parse(text).map(Some).map_err(|error| {
        let message = format!("`{}` is not a placement group's id", error.value);
        Error::custom(told(message, "write `pg-` and letters or digits"))
    })
}

/// A list of terms as written, and its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct TermList<'a> {
    pub(super) place: &'a Place<'a>,
    pub(super) given: Option<&'a Value>,
}

impl<'t> TermList<'t> {
    /// The known fields of each term.
    fn fields(&self) -> Vec<Vec<&'t str>> {
        let strangers = self.place.context().strangers.borrow();
        let term = |(index, term): (usize, &'t Value)| -> Vec<&'t str> {
            let place = self.place.index(index);
            let says = |(key, value): &(&String, &Value)| {
                !value.is_null() && !strangers.contains_key(&place.key(key).to_string())
            };
            let fields = term.as_object().into_iter().flatten().filter(says);
            fields.map(|(key, _)| key.as_str()).collect()
        };
        self.given.and_then(Value::as_array).into_iter().flatten().enumerate().map(term).collect()
    }

    /// Makes the terms of a list that needs at least one.
    fn some<T, R>(
        &self,
        terms: Option<Vec<T>>,
        exclusive: &[&str],
        make: impl Fn(T, &Place<'_>) -> Option<R>,
    ) -> Vec<R> {
        let terms = terms.unwrap_or_default();
        if terms.is_empty() {
            self.place.error("must not be empty", "add at least one term");
        }
        self.any(terms, exclusive, make)
    }

    fn any<T, R>(
        &self,
        terms: Vec<T>,
        exclusive: &[&str],
        make: impl Fn(T, &Place<'_>) -> Option<R>,
    ) -> Vec<R> {
        if terms.len() > MAX_TERMS {
            self.place.error(format!("more than {MAX_TERMS} terms"), "leave some out");
        }
        check_mixed(&self.fields(), self.place, exclusive);
        let make = |(index, term)| make(term, &self.place.index(index));
        terms.into_iter().enumerate().filter_map(make).collect()
    }
}

/// Rejects a list if every term combines an exclusive field with others; warns if only some terms do.
fn check_mixed(given: &[Vec<&str>], place: &Place<'_>, exclusive: &[&str]) {
    for field in exclusive {
        let mixed = |given: &[&str]| given.contains(field) && given.len() > 1;
        let every = given.iter().all(|given| mixed(given));
        for (index, given) in given.iter().enumerate().filter(|(_, given)| mixed(given)) {
            let others: Vec<&str> = given.iter().copied().filter(|other| other != field).collect();
            let message = format!("`{field}` can't be combined with {}", quoted(&others));
            if every {
                place.index(index).error(message, APART);
            } else {
                place.index(index).warn(format!("{message}; only `{field}` counts"), APART);
            }
        }
    }
}

fn tags(tags: SelectorTags, term: &Place<'_>) -> BTreeMap<String, String> {
    let tags = tags.map(|TagMap(tags)| tags).unwrap_or_default();
    let place = term.key("tags");
    if tags.len() > MAX_TAGS {
        place.error(format!("more than {MAX_TAGS} tags"), "leave some out");
    }
    for (key, _) in tags.iter().filter(|(key, value)| key.is_empty() || value.is_empty()) {
        place.key(key).error("empty tag keys or values aren't supported", "write `*` for any value");
    }
    tags
}

fn nothing(term: &Place<'_>, expected: &[&str]) {
    term.error("the term has no selector", format!("add one of {}", quoted(expected)));
}

pub(super) fn subnets(list: TermList<'_>, terms: Option<Vec<SubnetTerm>>) -> Vec<SubnetSelectorTerm> {
    list.some(terms, &["id"], |term, place| {
        let tags = tags(term.tags, place);
        if let Some(id) = term.id {
            return Some(SubnetSelectorTerm::Id(id));
        }
        if tags.is_empty() {
            nothing(place, &["tags", "id"]);
        }
        Some(SubnetSelectorTerm::Tags(tags))
    })
}

pub(super) fn security_groups(
    list: TermList<'_>,
    terms: Option<Vec<GroupTerm>>,
) -> Vec<SecurityGroupSelectorTerm> {
    list.some(terms, &["id", "name"], |term, place| {
        let tags = tags(term.tags, place);
        match (term.id, term.name) {
            (Some(id), _) => return Some(SecurityGroupSelectorTerm::Id(id)),
            (None, Some(name)) if name.is_empty() => place.missing("name", "the group's name"),
            (None, Some(name)) => return Some(SecurityGroupSelectorTerm::Name(name)),
            (None, None) if tags.is_empty() => nothing(place, &["tags", "id", "name"]),
            (None, None) => {}
        }
        Some(SecurityGroupSelectorTerm::Tags(tags))
    })
}

pub(super) fn amis(list: TermList<'_>, terms: Option<Vec<AmiTerm>>) -> Vec<AmiSelectorTerm> {
    let given = list.fields();
    if given.len() > 1 && given.iter().any(|given| given.contains(&"alias")) {
        list.place.error("an alias must be the only term", "keep the alias, or the other terms");
    }
    for (index, given) in given.iter().enumerate() {
        check_alone(given, &list.place.index(index));
    }
    list.some(terms, &[], |term, place| {
        let tags = tags(term.tags, place);
        if let Some(id) = term.id {
            return Some(AmiSelectorTerm::Id(id));
        }
        if let Some(alias) = term.alias {
            return read_alias(&alias, &place.key("alias"));
        }
        match term.ssm_parameter {
            Some(name) if name.is_empty() => place.missing("ssmParameter", "a name or an ARN"),
            Some(name) => return Some(AmiSelectorTerm::SsmParameter(name)),
            None if term.name.is_none() && tags.is_empty() => {
                nothing(place, &["tags", "id", "name", "alias", "ssmParameter"]);
            }
            None => {}
        }
        Some(AmiSelectorTerm::Match { name: term.name, tags, owner: term.owner })
    })
}

/// Rejects other fields beside an alias or an id.
fn check_alone(given: &[&str], place: &Place<'_>) {
    for alone in ["alias", "id"] {
        let others: Vec<&str> = given.iter().copied().filter(|key| *key != alone).collect();
        if !given.contains(&alone) || others.is_empty() {
            continue;
        }
        // Karpenter's rule forgets the parameter: it accepts the term and selects by its id or alias alone.
        if others == ["ssmParameter"] {
            let message = format!("`{alone}` can't be combined with `ssmParameter`; only `{alone}` counts");
            place.warn(message, APART);
        } else {
            place.error(format!("`{alone}` can't be combined with {}", quoted(&others)), APART);
        }
    }
}

fn read_alias(text: &str, place: &Place<'_>) -> Option<AmiSelectorTerm> {
    if text.len() > MAX_ALIAS {
        place.error(format!("an alias of more than {MAX_ALIAS} characters"), "shorten it");
        return None;
    }
    let Some((family, version)) = text.split_once('@').filter(|(_, version)| !version.is_empty()) else {
        place.error(format!("`{text}` is not an alias"), "write `family@version`, such as `al2023@latest`");
        return None;
    };
    if alias_family(family).is_none() {
        let words = ALIASES.map(|(alias, _)| alias);
        let remedy = nearest(family, words)
            .map_or("use one of these".to_owned(), |near| format!("did you mean `{near}@{version}`?"));
        place.error(format!("`{family}` is not an alias family: expected {}", quoted(&words)), remedy);
        return None;
    }
    if family.starts_with("windows") && version != "latest" {
        place.error("Windows aliases have no versions", format!("write `{family}@latest`"));
        return None;
    }
    Some(AmiSelectorTerm::Alias { family: family.to_owned(), version: version.to_owned() })
}

pub(super) fn reservations(list: TermList<'_>, terms: Vec<ReservationTerm>) -> Vec<ReservationSelectorTerm> {
    list.any(terms, &["id"], |term, place| {
        let tags = tags(term.tags, place);
        if let Some(id) = term.id {
            return Some(ReservationSelectorTerm::Id(id));
        }
        let match_criteria = term.instance_match_criteria;
        if match_criteria.is_none() && tags.is_empty() {
            nothing(place, &["tags", "id", "instanceMatchCriteria"]);
        }
        Some(ReservationSelectorTerm::Match { tags, owner: term.owner_id, match_criteria })
    })
}

/// Rejects a selector with both `name` and `id`, or with neither.
pub(super) fn placement_group(
    selector: Option<PlacementGroupTerm>,
    place: &Place<'_>,
) -> Option<PlacementGroupSelector> {
    let selector = selector?;
    match (selector.name, selector.id) {
        (Some(name), None) if name.is_empty() => {
            place.key("name").error("must not be empty", "write the placement group's name");
            None
        }
        (Some(name), None) => Some(PlacementGroupSelector::Name(name)),
        (None, Some(id)) => Some(PlacementGroupSelector::Id(id)),
        (Some(_), Some(_)) | (None, None) => {
            place.error("exactly one of `name` and `id` is required", "keep one of them");
            None
        }
    }
}
