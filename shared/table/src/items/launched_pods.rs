//! `JOURNAL#<cluster>#pods`: the names of the pods that launches were planned for, for people who ask about a pod.
//!
//! Decides their form: a line a claim, deflated. No decision reads them, and no step of a launch writes them again.
//!
//! Invariant: they are committed with their launch, so a launch in the table has them for as long as its records.

use tenon_domain::Timestamp;
use tenon_domain::id::{ClaimName, ClusterName, LaunchId, NamespacedName};
use tenon_domain::journal::JOURNAL_KEPT;

use super::deflated::{read_deflated, write_deflated};
use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm, put, seconds};
use super::keys;
use crate::key::EXPIRES_AT;
use crate::value::Value;
use crate::{Item, Write};

const PODS: &str = "pods";

/// The longest names that are read: 1,500 pods of a launch with names of at most 317 bytes.
const PODS_BYTES: u64 = 1 << 19;

/// The pods of a launch, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchedPods {
    /// The launch.
    pub launch: LaunchId,
    /// When it was planned.
    pub at: Timestamp,
    /// Its claims that pods are counted on, with these pods.
    pub claims: Vec<ClaimPods>,
}

/// The pods that are counted on a claim, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPods {
    /// The claim.
    pub claim: ClaimName,
    /// Its pods.
    pub pods: Vec<NamespacedName>,
}

impl LaunchedPods {
    /// Their write; `None` without pods.
    #[must_use]
    pub fn write(&self, cluster: &ClusterName) -> Option<Write> {
        let key = keys::launched_pods(cluster, self.at, &self.launch);
        self.claims.iter().any(|claim| !claim.pods.is_empty()).then(|| put(key, self))
    }
}

/// The pods of a launch's item by claim, as far as earlier releases wrote their names there:
/// `<namespace>/<name>/<uid>`.
#[must_use]
pub fn pods_named_in_launch(launch: &Item) -> Vec<ClaimPods> {
    let claims = match launch.get("claims") {
        Some(Value::L(claims)) => claims.as_slice(),
        _ => &[],
    };
    let of_claim = |claim: &Value| {
        let Value::M(claim) = claim else { return None };
        let Some(Value::L(pods)) = claim.get(PODS) else { return None };
        let pods = pods.iter().filter_map(|pod| name(pod.as_text()?.rsplit_once('/')?.0)).collect();
        Some(ClaimPods { claim: ClaimName::parse(claim.get("name")?.as_text()?).ok()?, pods })
    };
    claims.iter().filter_map(of_claim).collect()
}

fn name(text: &str) -> Option<NamespacedName> {
    let (namespace, name) = text.split_once('/')?;
    (!name.is_empty()).then(|| NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() })
}

impl ItemForm for LaunchedPods {
    fn write(&self, to: &mut Attributes) {
        to.text("launch", &self.launch);
        to.time("at", self.at);
        to.value(EXPIRES_AT, seconds(self.at.saturating_add(JOURNAL_KEPT).unwrap_or(self.at)));
        write_deflated(PODS, &text(&self.claims), to);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let invalid = |problem: String| FieldError::at(PODS, FieldProblem::Invalid(problem));
        let text = read_deflated(PODS, from, PODS_BYTES)?;
        let claims = text.lines().map(|line| {
            let mut words = line.split(' ');
            let claim = ClaimName::parse(words.next().unwrap_or_default());
            let pods = words.map(|word| name(word).ok_or_else(|| invalid(format!("`{word}` names no pod"))));
            Ok(ClaimPods {
                claim: claim.map_err(|error| invalid(error.to_string()))?,
                pods: pods.collect::<Result<_, _>>()?,
            })
        });
        let claims = claims.collect::<Result<_, _>>()?;
        Ok(Self { launch: from.parsed("launch")?, at: from.time("at")?, claims })
    }
}

/// A line a claim: its name and its pods' names, which hold no spaces.
fn text(claims: &[ClaimPods]) -> String {
    let mut text = String::new();
    for claim in claims.iter().filter(|claim| !claim.pods.is_empty()) {
        text.push_str(claim.claim.as_str());
        for pod in &claim.pods {
            text.push(' ');
            text.push_str(&pod.to_string());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::{from_item, to_item};

    fn claim(name: &str) -> ClaimName {
        ClaimName::parse(name).unwrap()
    }

    fn named(claims: &[ClaimPods]) -> Vec<(&str, String)> {
        let of_claim =
            |claim: &ClaimPods| claim.pods.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        claims.iter().map(|claim| (claim.claim.as_str(), of_claim(claim))).collect()
    }

    #[test]
    fn names_of_thousands_of_pods_take_a_few_bytes_each() {
        let pod = |n: u32| {
            name(&format!("shop/checkout-6d4cf56db6-{:05x}", n.wrapping_mul(0x9e37_79b9) >> 12)).unwrap()
        };
        let claims = (0..20).map(|n| ClaimPods {
            claim: claim(&format!("default-{n:05}")),
            pods: (75 * n..75 * (n + 1)).map(pod).collect(),
        });
        let pods = LaunchedPods {
            launch: LaunchId::parse("launch-7").unwrap(),
            at: Timestamp::UNIX_EPOCH,
            claims: claims.collect(),
        };
        let (key, item) =
            (keys::launched_pods(&"prod".parse().unwrap(), pods.at, &pods.launch), to_item(&pods));
        assert_eq!(from_item::<LaunchedPods>(&key, &item).unwrap(), pods);
        let bytes = item[PODS].as_bytes().unwrap().len();
        assert!(bytes < 1500 * 8, "{bytes} bytes");
    }

    #[test]
    fn a_launch_without_pods_writes_no_names() {
        let claims = vec![ClaimPods { claim: claim("default-3k9x2"), pods: Vec::new() }];
        let launch = LaunchId::parse("launch-7").unwrap();
        let pods = LaunchedPods { launch, at: Timestamp::UNIX_EPOCH, claims };
        assert_eq!(pods.write(&"prod".parse().unwrap()), None);
    }

    #[test]
    fn names_in_launches_of_earlier_releases_are_read() {
        let map = |pods: Value| {
            let fields = [("name".to_owned(), Value::text("default-3k9x2")), (PODS.to_owned(), pods)];
            Value::M(fields.into())
        };
        let texts = |pods: &[&str]| Value::L(pods.iter().map(|pod| Value::text(*pod)).collect());
        let claims = vec![
            map(texts(&["shop/web-1/5d1c", "shop/web-2/f47ac10b-58cc-4372-a567-0e02b2c3d479"])),
            map(texts(&["//5d1c"])),
            map(Value::B(vec![0; 16])),
        ];
        let item = Item::from([("claims".to_owned(), Value::L(claims))]);
        let found = pods_named_in_launch(&item);
        assert_eq!(
            named(&found),
            [("default-3k9x2", "shop/web-1 shop/web-2".to_owned()), ("default-3k9x2", String::new())]
        );
    }
}
