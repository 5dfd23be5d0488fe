//! The stacks' policies against the code's requests.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

mod adapters;
mod invoke;
mod mutants;
mod rights;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tenon_iam_tests::recording::record;
use tenon_iam_tests::request::{LEADING_KEYS, OWNER, Request};
use tenon_iam_tests::stack::{Account, CLUSTERS, Role, SNAPSHOTS_OF_NEXT, Stack, account};
use tenon_iam_tests::{forgeries, platform, reference};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

struct PoliciesWorld {
    account: Account,
    stacks: Vec<Stack>,
    /// The requests of each role.
    asked: BTreeMap<String, BTreeSet<Request>>,
    /// All requests with one change.
    forged: BTreeSet<Request>,
}

static WORLD: LazyLock<PoliciesWorld> = LazyLock::new(|| {
    let (account, stacks) = account().expect("the templates can be worked out");
    let recording = record(&[&root().join("tests/scenarios"), &root().join("tests/iam/scenarios")])
        .expect("the scenarios are played");
    let mut asked: BTreeMap<String, BTreeSet<Request>> = BTreeMap::new();
    for name in account.roles.keys() {
        let of = asked.entry(name.clone()).or_default();
        of.extend(platform::requests(name, &stacks).expect("the stacks say what is asked"));
        let task = platform::recorded_as(name, &account);
        of.extend(task.into_iter().flat_map(|task| recording[task].values().cloned()));
    }
    // The recorded agent and launch role are one cluster's; another's do the same for their own.
    let [recorded, other] = CLUSTERS;
    let of_agent = asked[&format!("agent of {recorded}")].iter();
    let of_agent: BTreeSet<Request> = of_agent.map(|request| moved(request, recorded, other)).collect();
    asked.insert(format!("agent of {other}"), of_agent);
    let of_launches = asked[&format!("launch of {recorded}")].iter();
    let of_launches: BTreeSet<Request> =
        of_launches.map(|request| launched(request, recorded, other)).collect();
    asked.insert(format!("launch of {other}"), of_launches);
    let forged = asked.values().flatten().flat_map(forgeries::forge).collect();
    PoliciesWorld { account, stacks, asked, forged }
});

fn moved(request: &Request, from: &str, to: &str) -> Request {
    let moved = |text: &String| text.strip_suffix(from).map_or(text.clone(), |start| format!("{start}{to}"));
    let context =
        request.context.iter().map(|(key, values)| (key.clone(), values.iter().map(moved).collect()));
    Request { action: request.action.clone(), resource: moved(&request.resource), context: context.collect() }
}

/// A launch role's request as another cluster's role makes it. Snapshots are of another owner there.
fn launched(request: &Request, from: &str, to: &str) -> Request {
    let moved = Request { resource: request.resource.replace(from, to), ..moved(request, from, to) };
    if moved.resource.contains(":snapshot/") { moved.with(OWNER, [SNAPSHOTS_OF_NEXT]) } else { moved }
}

/// The partitions with the same prefix as a region's journal: a cluster may have any name, records are for people
/// only, and a condition can't exclude one.
const SHARED_PREFIX: &str = "JOURNAL#REGION#";

/// Reading one item or several of a partition is one right; so is writing them.
fn class(action: &str) -> &str {
    match action {
        "dynamodb:BatchGetItem" | "dynamodb:GetItem" | "dynamodb:Query" => "read",
        "dynamodb:ConditionCheckItem"
        | "dynamodb:DeleteItem"
        | "dynamodb:PutItem"
        | "dynamodb:UpdateItem" => "write",
        other => other,
    }
}

/// A request as rights see it: by kind, one for each partition.
fn kinds(role: &Role, request: &Request) -> BTreeSet<Request> {
    let mut kind = reference::as_asked(request).kind(role.serves);
    kind.action = class(&request.action).to_owned();
    let Some(keys) = kind.context.get(LEADING_KEYS).cloned() else { return BTreeSet::from([kind]) };
    keys.into_iter().map(|key| kind.clone().with(LEADING_KEYS, [key])).collect()
}

/// Whether the request equals one of the role's own.
struct Known {
    actions: BTreeSet<String>,
    kinds: BTreeSet<Request>,
}

impl Known {
    fn of(role: &Role, asked: &BTreeSet<Request>) -> Self {
        let actions = asked.iter().map(|request| request.action.clone()).collect();
        let mut all: BTreeSet<Request> = asked.iter().flat_map(|request| kinds(role, request)).collect();
        let journal = |request: &&Request| {
            request.context.get(LEADING_KEYS).is_some_and(|keys| keys.contains("JOURNAL#…"))
        };
        let shared: Vec<Request> = all
            .iter()
            .filter(journal)
            .flat_map(|r| {
                ["us-east-1", "eu-west-1"]
                    .map(|at| r.clone().with(LEADING_KEYS, [format!("{SHARED_PREFIX}{at}#…")]))
            })
            .collect();
        all.extend(shared);
        Self { actions, kinds: all }
    }

    fn covers(&self, role: &Role, request: &Request) -> bool {
        self.actions.contains(&request.action) && kinds(role, request).is_subset(&self.kinds)
    }
}
