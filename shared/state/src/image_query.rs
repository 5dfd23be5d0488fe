//! EC2 queries for the images that a class selects: one for all ids, those that SSM parameters name among them, and
//! one for each other term.
//!
//! Decides the queries (aws/karpenter-provider-aws `pkg/providers/amifamily/types.go`), their form in the class's
//! item, from which `images` reads them without the class's spec, and which records a query matches. Queries include
//! images in *every* state: the caller decides which are fit for launches, and reports pending ones.
//!
//! Invariants: an unknown id doesn't hide the other images of its query; records answer a query only as EC2 would, and
//! only if a recent sweep asked EC2 the same.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::node_class::AmiSelectorTerm;
use tenon_domain::boot::BootRecord;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::id::ImageId;
use tenon_domain::image::{ImageRecord, ImageState};
use tenon_ec2::port::{DisabledImages, Image, ImageArchitecture, ImageFilter, TagFilter, wildcard_matches};
use tenon_ec2::{Ec2, Ec2Error};
use tenon_table::form_digest;
use tenon_table::items::form::{Attributes, Fields};
use tenon_table::items::{FieldError, ImageSweep, ItemForm};

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

/// How long a sweep's records answer queries: two sweeps, one of which may be lost.
const SWEEP_LASTS: SignedDuration = SignedDuration::from_mins(10);

/// The version of the form of a query's digest.
const DIGEST_FORM: &str = "image-query-1";
/// Letters and digits of a query's digest.
const DIGEST_DIGITS: usize = 16;

/// What the last sweep's item has of a query.
#[must_use]
pub fn digest(filter: &ImageFilter) -> String {
    form_digest(DIGEST_FORM, |to| write_filter(filter, to)).base36(DIGEST_DIGITS)
}

/// Whether a query matches an image, by its record, whatever its state.
#[must_use]
pub fn matches(filter: &ImageFilter, image: &ImageRecord, account: &str) -> bool {
    let owner = |owner: &String| {
        *owner == image.owner
            || (owner == "self" && image.owner == account)
            || image.owner_alias.as_ref() == Some(owner)
    };
    let name = |name: &String| escapes(name) || wildcard_matches(name, &image.name);
    let tag = |tag: &TagFilter| {
        let escaped = tag.values.iter().any(|value| escapes(value));
        if escaped { image.tags.contains_key(&tag.key) } else { tag.matches(&image.tags) }
    };
    (filter.ids.is_empty() || filter.ids.contains(&image.id))
        && (filter.owners.is_empty() || filter.owners.iter().any(owner))
        && (filter.names.is_empty() || filter.names.iter().any(name))
        && filter.tags.iter().all(tag)
}

/// Whether a pattern has an escaped wildcard, which only EC2 reads: a record may match it.
fn escapes(pattern: &str) -> bool {
    pattern.contains('\\')
}

/// The records of a region's images, as the last sweep left them and events changed them since.
#[derive(Debug, Clone)]
pub struct SweptImages {
    /// The last sweep.
    pub sweep: ImageSweep,
    /// The records.
    pub records: Vec<ImageRecord>,
    /// What their instances showed.
    pub boots: Vec<BootRecord>,
}

impl SweptImages {
    /// Whether records answer a query now: a recent sweep asked EC2 the same.
    #[must_use]
    pub fn answers(sweep: &ImageSweep, filter: &ImageFilter, now: Timestamp) -> bool {
        let values = filter.tags.iter().flat_map(|tag| &tag.values);
        now.duration_since(sweep.at) <= SWEEP_LASTS
            && sweep.queries.contains(&digest(filter))
            && !filter.names.iter().chain(values).any(|pattern| escapes(pattern))
    }

    /// The images of a query, as [`describe`] returns them; `None` if only EC2 can answer it.
    #[must_use]
    pub fn answer(&self, filter: &ImageFilter, account: &str, now: Timestamp) -> Option<Vec<Image>> {
        if !Self::answers(&self.sweep, filter, now) {
            return None;
        }
        let returned = |record: &&ImageRecord| {
            record.state != ImageState::Deregistered && matches(filter, record, account)
        };
        let mut images: Vec<Image> = self.records.iter().filter(returned).map(image).collect();
        images.sort_by(|a, b| a.id.cmp(&b.id));
        Some(images)
    }
}

/// An image as EC2 described it for its record.
fn image(record: &ImageRecord) -> Image {
    let architecture = match &record.architecture {
        Some(Architecture::X86_64) => Some(ImageArchitecture::X86_64),
        Some(Architecture::Arm64) => Some(ImageArchitecture::Arm64),
        Some(Architecture::Other(_)) | None => None,
    };
    Image {
        id: record.id.clone(),
        name: record.name.clone(),
        owner: record.owner.clone(),
        owner_alias: record.owner_alias.clone(),
        architecture,
        state: record.state,
        created_at: record.created_at,
        deprecated_at: record.deprecated_at,
        facts: record.facts.clone(),
        tags: record.tags.clone(),
    }
}

/// The part of a class's item that names the selected images; the rest is the class's status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassImages {
    /// Its queries.
    pub filters: BTreeSet<ImageFilter>,
}

impl ItemForm for ClassImages {
    fn write(&self, to: &mut Attributes) {
        to.list(ATTRIBUTE, &self.filters, |filter, to| write_filter(filter, to));
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

fn write_filter(filter: &ImageFilter, to: &mut Attributes) {
    to.texts("ids", &filter.ids);
    to.texts("owners", &filter.owners);
    to.texts("names", &filter.names);
    to.list("tags", &filter.tags, |tag, to| {
        to.text("key", &tag.key);
        to.texts("values", &tag.values);
    });
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

    const ACCOUNT: &str = "111122223333";

    fn record(name: &str, state: ImageState) -> ImageRecord {
        ImageRecord {
            revision: 1,
            id: ImageId::parse("ami-1").unwrap(),
            name: name.to_owned(),
            state,
            architecture: Some(Architecture::Arm64),
            created_at: None,
            owner: ACCOUNT.to_owned(),
            owner_alias: None,
            tags: BTreeMap::from([("team".to_owned(), "web".to_owned())]),
            deprecated_at: None,
            facts: tenon_domain::image::ImageFacts::default(),
            first_seen_at: Timestamp::UNIX_EPOCH,
            seen_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn check_match(term: AmiSelectorTerm, edit: impl Fn(&mut ImageRecord), expected: bool) {
        let mut record = record("nodes-1", ImageState::Available);
        edit(&mut record);
        let filter = queries(&[term], []).pop_first().unwrap();
        assert_eq!(matches(&filter, &record, ACCOUNT), expected, "{filter:?} {record:?}");
    }

    #[test]
    fn a_record_matches_as_ec2_does() {
        let same = |_: &mut ImageRecord| {};
        let foreign = |record: &mut ImageRecord| record.owner = "999988887777".to_owned();
        let amazons = |record: &mut ImageRecord| {
            foreign(record);
            record.owner_alias = Some("amazon".to_owned());
        };
        check_match(by(Some("nodes-*"), None, &[]), same, true);
        check_match(by(Some("node?-1"), None, &[]), same, true);
        check_match(by(Some("nodes"), None, &[]), same, false);
        check_match(by(Some("Nodes-1"), None, &[]), same, false);
        check_match(by(Some("nodes-*"), None, &[]), foreign, false);
        check_match(by(Some("nodes-*"), None, &[]), amazons, true);
        check_match(by(Some("nodes-*"), Some("999988887777"), &[]), foreign, true);
        check_match(by(Some("nodes-*"), Some("amazon"), &[]), same, false);
        check_match(by(None, Some("self"), &[]), same, true);
        check_match(by(None, None, &[("team", "w*")]), same, true);
        check_match(by(None, None, &[("team", "*")]), same, true);
        check_match(by(None, None, &[("team", "web"), ("stage", "*")]), same, false);
        let retagged = |record: &mut ImageRecord| drop(record.tags.insert("team".into(), "other".into()));
        check_match(by(None, None, &[("team", "web")]), retagged, false);
        check_match(AmiSelectorTerm::Id(ImageId::parse("ami-1").unwrap()), same, true);
        check_match(AmiSelectorTerm::Id(ImageId::parse("ami-2").unwrap()), same, false);
        // Only EC2 reads an escaped wildcard.
        check_match(by(Some("nodes\\*"), None, &[]), same, true);
        check_match(by(Some("nodes-*"), None, &[]), |record| record.state = ImageState::Deregistered, true);
    }

    #[test]
    fn records_answer_a_recently_swept_query_and_no_other() {
        let filter = queries(&[by(Some("nodes-*"), None, &[])], []).pop_first().unwrap();
        let escaped = queries(&[by(Some("nodes-\\**"), None, &[])], []).pop_first().unwrap();
        let swept = |state: ImageState| SweptImages {
            sweep: ImageSweep {
                at: Timestamp::UNIX_EPOCH,
                queries: BTreeSet::from([digest(&filter), digest(&escaped)]),
            },
            records: vec![record("nodes-1", state)],
            boots: Vec::new(),
        };
        let answer = |state: ImageState, filter: &ImageFilter, seconds: i64| {
            let now = Timestamp::from_second(seconds).unwrap();
            Some(
                swept(state)
                    .answer(filter, ACCOUNT, now)?
                    .into_iter()
                    .map(|image| image.state)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(answer(ImageState::Available, &filter, 600), Some(vec![ImageState::Available]));
        assert_eq!(answer(ImageState::Disabled, &filter, 600), Some(vec![ImageState::Disabled]));
        assert_eq!(answer(ImageState::Deregistered, &filter, 600), Some(Vec::new()));
        assert_eq!(answer(ImageState::Available, &filter, 601), None);
        assert_eq!(answer(ImageState::Available, &escaped, 600), None);
        let other = queries(&[by(Some("nodes-1"), None, &[])], []).pop_first().unwrap();
        assert_eq!(answer(ImageState::Available, &other, 0), None);
    }
}
