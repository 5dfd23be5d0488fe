//! EC2 queries for the images that a class selects: one for all ids, those that SSM parameters name among them, and
//! one for each other term.
//!
//! Decides the queries (aws/karpenter-provider-aws `pkg/providers/amifamily/types.go`) and their form in the class's
//! item, from which `images` reads them without the class's spec. Queries include images in *every* state: the caller
//! decides which are fit for launches, and reports pending ones.
//!
//! Invariant: an unknown id doesn't hide the other images of its query.

use std::collections::BTreeSet;

use tenon_domain::api::node_class::AmiSelectorTerm;
use tenon_domain::id::ImageId;
use tenon_domain::image::ImageRecord;
use tenon_ec2::port::{DisabledImages, Image, ImageFilter, TagFilter, wildcard_matches};
use tenon_ec2::{Ec2, Ec2Error};
use tenon_table::items::form::{Attributes, Fields};
use tenon_table::items::{FieldError, ItemForm};

/// The attribute of a class's item.
const ATTRIBUTE: &str = "image_queries";

/// The owners of a term by name that gives none: anybody may name an image as ours are named.
const OWNERS_OF_NAMES: [&str; 2] = ["self", "amazon"];

/// The most pages of one query: 10,000 images, far more than a sensible selector matches.
const PAGES: usize = 10;

/// The queries of a class's terms, and of the images that its parameters name; none twice.
#[must_use]
pub fn queries(terms: &[AmiSelectorTerm], named: impl IntoIterator<Item = ImageId>) -> BTreeSet<ImageFilter> {
    let mut ids: BTreeSet<ImageId> = named.into_iter().collect();
    let mut filters = BTreeSet::new();
    for term in terms {
        match term {
            AmiSelectorTerm::Id(id) => {
                ids.insert(id.clone());
            }
            AmiSelectorTerm::Match { name, tags, owner } => {
                let owners: Vec<String> = match (owner, name) {
                    (Some(owner), _) => vec![owner.clone()],
                    (None, Some(_)) => OWNERS_OF_NAMES.map(str::to_owned).to_vec(),
                    (None, None) => Vec::new(),
                };
                let tags = tags.iter().map(|(key, value)| tag_filter(key, value)).collect();
                let names = name.iter().cloned().collect();
                filters.insert(ImageFilter { owners, names, tags, ..everything() });
            }
            // Their parameters name images.
            AmiSelectorTerm::Alias { .. } | AmiSelectorTerm::SsmParameter(_) => {}
        }
    }
    if !ids.is_empty() {
        filters.insert(ImageFilter { ids: ids.into_iter().collect(), ..everything() });
    }
    filters
}

/// A selector's tag as a filter: the value `*` matches any value.
#[must_use]
pub fn tag_filter(key: &str, value: &str) -> TagFilter {
    if value == "*" { TagFilter::exists(key) } else { TagFilter::equals(key, value) }
}

/// All images of a query, in every state, by id. Unknown ids are left out.
///
/// # Errors [`Ec2Error`] of the first failed page: an incomplete list would hide images.
pub async fn describe<E: Ec2>(ec2: &E, filter: &ImageFilter) -> Result<Vec<Image>, Ec2Error> {
    let mut filter = filter.clone();
    // Each round without an answer takes at least one id away.
    for _ in 0..=filter.ids.len() {
        match describe_pages(ec2, &filter).await {
            Err(Ec2Error::NotFound { ids: missing, action, code, message }) => {
                let before = filter.ids.len();
                filter.ids.retain(|id| !missing.iter().any(|missing| missing == id.as_str()));
                if filter.ids.is_empty() {
                    return Ok(Vec::new());
                }
                if filter.ids.len() == before {
                    return Err(Ec2Error::NotFound { ids: missing, action, code, message });
                }
            }
            answer => return answer,
        }
    }
    Ok(Vec::new())
}

async fn describe_pages<E: Ec2>(ec2: &E, filter: &ImageFilter) -> Result<Vec<Image>, Ec2Error> {
    let mut images = Vec::new();
    let mut next = None;
    for _ in 0..PAGES {
        let page = ec2.describe_images(filter, next).await?;
        images.extend(page.items);
        next = page.next;
        if next.is_none() {
            images.sort_by(|a: &Image, b: &Image| a.id.cmp(&b.id));
            return Ok(images);
        }
    }
    Err(Ec2Error::Invalid {
        action: "DescribeImages".to_owned(),
        code: "TooManyImages".to_owned(),
        message: format!(
            "the selector matches more than {PAGES} pages of images; narrow it by name, tag or owner"
        ),
    })
}

/// Whether a query may match an image, by its record. The record can't tell owners given by alias, so those may
/// match.
#[must_use]
pub fn may_find(filter: &ImageFilter, image: &ImageRecord, account: &str) -> bool {
    let owner = |owner: &String| {
        let alias = !owner.bytes().all(|byte| byte.is_ascii_digit());
        if owner == "self" { image.owner == account } else { alias || *owner == image.owner }
    };
    (filter.ids.is_empty() || filter.ids.contains(&image.id))
        && (filter.owners.is_empty() || filter.owners.iter().any(owner))
        && (filter.names.is_empty() || filter.names.iter().any(|name| wildcard_matches(name, &image.name)))
        && filter.tags.iter().all(|tag| tag.matches(&image.tags))
}

/// The part of a class's item that names the selected images; the rest is the class's status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassImages {
    /// Its queries.
    pub filters: BTreeSet<ImageFilter>,
}

impl ItemForm for ClassImages {
    fn write(&self, to: &mut Attributes) {
        to.list(ATTRIBUTE, &self.filters, |filter, to| {
            to.texts("ids", &filter.ids);
            to.texts("owners", &filter.owners);
            to.texts("names", &filter.names);
            to.list("tags", &filter.tags, |tag, to| {
                to.text("key", &tag.key);
                to.texts("values", &tag.values);
            });
        });
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let filters = from.list(ATTRIBUTE, |from| {
            let tags = from.list("tags", |from| {
                Ok(TagFilter { key: from.string("key")?, values: from.texts("values")? })
            })?;
            Ok(ImageFilter {
                ids: from.texts("ids")?,
                owners: from.texts("owners")?,
                names: from.texts("names")?,
                tags,
                ..everything()
            })
        })?;
        Ok(Self { filters: filters.into_iter().collect() })
    }
}

fn everything() -> ImageFilter {
    ImageFilter { disabled: DisabledImages::Include, ..ImageFilter::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenon_table::items::{from_item, to_item};

    use super::*;

    fn by(name: Option<&str>, owner: Option<&str>, tags: &[(&str, &str)]) -> AmiSelectorTerm {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        AmiSelectorTerm::Match {
            name: name.map(str::to_owned),
            tags: tags.collect::<BTreeMap<_, _>>(),
            owner: owner.map(str::to_owned),
        }
    }

    fn check(term: AmiSelectorTerm, owners: &[&str], names: &[&str]) {
        let found = queries(&[term], []).pop_first().unwrap();
        assert_eq!((found.owners, found.names), (own(owners), own(names)));
    }

    fn own(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_name_alone_is_looked_for_among_our_own_and_amazons() {
        check(by(Some("a-*"), None, &[]), &["self", "amazon"], &["a-*"]);
        check(by(Some("a-*"), Some("111122223333"), &[]), &["111122223333"], &["a-*"]);
        check(by(None, None, &[("team", "web")]), &[], &[]);
    }

    #[test]
    fn ids_and_what_parameters_name_are_one_query() {
        let id = |text: &str| ImageId::parse(text).unwrap();
        let alias = AmiSelectorTerm::Alias { family: "al2023".to_owned(), version: "latest".to_owned() };
        let terms = [AmiSelectorTerm::Id(id("ami-2")), AmiSelectorTerm::Id(id("ami-1")), alias];
        let found = queries(&terms, [id("ami-3"), id("ami-1")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found.first().unwrap().ids, ["ami-1", "ami-2", "ami-3"].map(id));
    }

    #[test]
    fn queries_read_back_as_they_were_written() {
        let terms = [by(Some("a"), None, &[("k", "*"), ("l", "v")]), by(None, Some("self"), &[("x", "y")])];
        let class = ClassImages { filters: queries(&terms, []) };
        let item = to_item(&class);
        let key = tenon_table::Key::new("CLUSTER#prod", "NODECLASS#default");
        assert_eq!(from_item::<ClassImages>(&key, &item).unwrap(), class);
    }
}
