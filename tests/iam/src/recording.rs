//! The requests of functions and the agent: every scenario is played, and every call of every port is recorded.
//!
//! Decides nothing of its own. It keeps one call of each kind.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::{ClusterName, InstallationId, Region};
use tenon_domain::journal::JournalRecord;
use tenon_domain::wake::FunctionName;
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable};
use tenon_region::asked::AskedCall;
use tenon_region::gate::{CallFate, CallMoment, CallSite, Hooks};
use tenon_region::gated_ec2::BY_LAUNCH_ROLE;
use tenon_region::ports::TaskSignal;
use tenon_region::scenario::{Player, Progress, Scenario, SetupOptions, build, built_in};
use tenon_registry::ResponseStatus;
use tenon_runtime::ports::wake_body;
use tenon_runtime::{BusEvent, Installation, Signals};
use tenon_table::{Commit, CommitError, Consistency, Item, Key, Query, QueryPage, Table, TableError};

use crate::calls;
use crate::request::{ACCOUNT, INSTALLATION, REGION, Request, Serves};

/// The requests of each task: by function or `agent`, one of each kind.
pub type Recording = BTreeMap<&'static str, BTreeMap<Request, Request>>;

/// The weather of a scenario, because recovery from a failure makes requests too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Without faults.
    Calm,
    /// One call in ten is throttled or its answer is lost, and one in fifty ends its task.
    Rough,
    /// The first answers of CreateFleet are lost, for longer than its token lives.
    Deaf,
    /// Every other call of EC2 is throttled.
    Busy,
}

/// How many answers of CreateFleet are lost: a launch is sent again every minute or so, and its token lives for ten.
const LOST_ANSWERS: u64 = 20;

/// What is played in every weather: what the recovery from a failure asks for beyond the calm requests is asked for here.
/// A right that only another scenario's recovery needs is told by the tests as one that nobody needs.
const EVERY_WEATHER: [&str; 3] = ["tour", "class-deleted", "replacement-probes"];

/// Records all requests.
#[derive(Debug)]
struct Ear {
    heard: Mutex<(Recording, Vec<String>)>,
    weather: Weather,
    calls: AtomicU64,
}

impl Ear {
    fn note(&self, task: &'static str, asked: AskedCall<'_>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        match calls::requests(asked) {
            Ok(requests) => {
                let of_cluster = ["agent", BY_LAUNCH_ROLE].contains(&task);
                let serves = if of_cluster { Serves::Cluster } else { Serves::Region };
                let known = heard.0.entry(task).or_default();
                for request in requests {
                    known.entry(request.kind(serves)).or_insert(request);
                }
            }
            Err(unknown) => heard.1.push(format!("{task}: {unknown}")),
        }
    }
}

impl Hooks for Ear {
    fn call(&self, site: CallSite) -> CallFate {
        let fleet = site.call == "ec2.create_fleet" && site.moment == CallMoment::After;
        let busy = site.call.starts_with("ec2.") && site.moment == CallMoment::Before;
        if (self.weather == Weather::Deaf && !fleet) || (self.weather == Weather::Busy && !busy) {
            return CallFate::Go;
        }
        let nth = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.weather {
            Weather::Calm => CallFate::Go,
            Weather::Deaf if nth < LOST_ANSWERS => CallFate::Fail,
            Weather::Busy if nth.is_multiple_of(2) => CallFate::Fail,
            Weather::Deaf | Weather::Busy => CallFate::Go,
            // Multiplied by a large odd number, neighbours are far from each other.
            Weather::Rough => match nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 {
                draw if draw % 50 == 0 => CallFate::Crash,
                draw if draw % 10 == 0 => CallFate::Fail,
                _ => CallFate::Go,
            },
        }
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        vec![SignedDuration::ZERO]
    }

    fn hear(&self, task: &'static str, asked: AskedCall<'_>) {
        self.note(task, asked);
    }
}

/// Plays the scenarios of folders and the built-in tour, some of them in every weather, and the requests of a cluster's
/// stack.
///
/// # Errors A scenario that can't be played, or a call with unknown rights.
pub fn record(folders: &[&Path]) -> Result<Recording, String> {
    let mut files = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.extension().is_some_and(|of| of == "yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut texts = vec![("tour".to_owned(), built_in("tour").unwrap_or_default().to_owned())];
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        texts.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text));
    }
    let mut recording = Recording::new();
    for weather in [Weather::Calm, Weather::Rough, Weather::Deaf, Weather::Busy] {
        let ear = Arc::new(Ear { heard: Mutex::default(), weather, calls: AtomicU64::new(0) });
        let played = |name: &str| weather == Weather::Calm || EVERY_WEATHER.contains(&name);
        for (name, text) in texts.iter().filter(|(name, _)| played(name)) {
            match play(&ear, text) {
                // In bad weather a step's object may not exist, such as an instance to remove.
                Err(error) if weather == Weather::Calm => return Err(format!("{name}: {error}")),
                Ok(()) | Err(_) => {}
            }
        }
        register(&ear)?;
        let (heard, unknown) = std::mem::take(&mut *ear.heard.lock().unwrap_or_else(PoisonError::into_inner));
        if !unknown.is_empty() {
            return Err(unknown.join("\n"));
        }
        for (task, requests) in heard {
            recording.entry(task).or_default().extend(requests);
        }
    }
    Ok(recording)
}

fn play(ear: &Arc<Ear>, text: &str) -> Result<(), String> {
    let scenario = Scenario::parse(text).map_err(|error| error.to_string())?;
    ear.calls.store(0, Ordering::Relaxed);
    let hooks: Arc<dyn Hooks> = Arc::clone(ear) as Arc<dyn Hooks>;
    let options = SetupOptions { hooks, ..SetupOptions::default() };
    let mut region = build(&scenario, &options).map_err(|error| error.to_string())?;
    let mut player = Player::new(&scenario);
    while !matches!(player.advance(&mut region, Timestamp::MAX)?, Progress::Done) {
        drop(region.take_happenings());
    }
    Ok(())
}

/// Creates, updates and deletes a cluster's stack.
fn register(ear: &Arc<Ear>) -> Result<(), String> {
    let id = InstallationId::parse(INSTALLATION).map_err(|error| error.to_string())?;
    let region = Region::parse(REGION).map_err(|error| error.to_string())?;
    let table = INSTALLATION.to_owned();
    let installation = Installation { id, region, account: ACCOUNT.to_owned(), table };
    let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let table = Overheard { table: MemoryTable::new(MemoryConfig::strict(1), clock), ear: Arc::clone(ear) };
    let stack = format!("arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/demo/1");
    for kind in ["Create", "Update", "Delete"] {
        let request = json!({
            "RequestType": kind, "ResponseURL": "https://example.com", "StackId": stack, "RequestId": kind,
            "LogicalResourceId": "Registry",
            "ResourceProperties": {
                "Cluster": "demo", "Endpoint": "https://example.com", "CertificateAuthority": "LS0t",
                "KubernetesVersion": "1.35", "ServiceCidr": "10.100.0.0/16", "AgentQueue": "https://example.com",
                "AgentRole": format!("arn:aws:iam::{ACCOUNT}:role/agent"),
                "NodeRoles": [{"Role": "demo-node", "InstanceProfile": "demo-node"}],
                "SubnetTags": ["team=*"], "SecurityGroupTags": ["team=*"], "ReservedCapacity": "Disabled",
            },
        });
        let request = serde_json::from_value(request).map_err(|error| error.to_string())?;
        let signals = OverheardSignals { ear: Arc::clone(ear), installation: installation.clone() };
        let answer = block_on(tenon_registry::answer(&table, &signals, &installation, &request));
        if answer.status != ResponseStatus::Success {
            return Err(answer.reason);
        }
    }
    Ok(())
}

/// The table in memory, overheard.
struct Overheard {
    table: MemoryTable,
    ear: Arc<Ear>,
}

impl Table for Overheard {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        self.ear.note("registry", AskedCall::Get(key));
        self.table.get(key, consistency).await
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        self.ear.note("registry", AskedCall::BatchGet(keys));
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        self.ear.note("registry", AskedCall::Query(query));
        self.table.query(query).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.ear.note("registry", AskedCall::Commit(commit));
        self.table.commit(commit).await
    }
}

/// Doorbells that ring nobody, overheard.
struct OverheardSignals {
    ear: Arc<Ear>,
    installation: Installation,
}

impl OverheardSignals {
    fn note(&self, signal: &TaskSignal) {
        self.ear.note("registry", AskedCall::Ring(signal));
    }
}

impl Signals for OverheardSignals {
    async fn publish(&self, events: &[BusEvent]) {
        events.iter().for_each(|event| self.note(&TaskSignal::Publish(event.clone())));
    }

    async fn ring_agent(&self, cluster: &ClusterName) {
        self.note(&TaskSignal::RingAgent(cluster.clone()));
    }

    fn log(&self, _: &JournalRecord) {}

    async fn wake(&self, function: FunctionName, cluster: &ClusterName, after: SignedDuration) {
        let body = wake_body(&self.installation, cluster);
        self.note(&TaskSignal::Wake { function, body, cluster: cluster.clone(), after });
    }
}
