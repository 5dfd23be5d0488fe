//! `tenon local --kubeconfig`: the region beside a real cluster on this machine.
//!
//! Decides the account of such a cluster: the networks, images and node roles that its classes need, new classes
//! included. It runs in real time, and the agent's actions are printed like the region's.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::id::{ClusterName, Region as RegionName};
use tenon_domain::manifest::node_class_from_value;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_region::bill::CountedCalls;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{Hooks, Undisturbed};
use tenon_region::happening::{Happening, HappeningKind};
use tenon_region::kubelet::BootTimes;
use tenon_region::scenario::{ClusterForm, ImageForm, Scenario, SetupOptions, add_outside, build};
use tenon_region::{
    live::AgentNews, live::Client, live::ClusterTelling, live::LiveCluster, live::LiveError, live::LiveWorld,
    live::classes, live::client,
};
use tokio::runtime::Runtime;

use super::lines::{Ending, OutputLines};
use super::region::{LocalRegion, cluster_of, grant, images_of};
use super::{Ended, answers, deadline};
use crate::api::ApiRequest;
use crate::args::{DEFAULT_PORT, LocalArgs, Speed, Until};
use crate::errors::{CommandOutcome, Failure, Problem, chain};
use crate::output::OutputReader;
use crate::server::Server;

/// The longest pause of the region.
const TURN: Duration = Duration::from_millis(50);
/// How often it is looked for new classes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// There are no machines to wait for, but a node takes a moment, as elsewhere.
const BOOT: BootTimes =
    BootTimes { joins_after: SignedDuration::from_secs(3), ready_after: SignedDuration::ZERO };

/// Nor for images.
const IMAGES_TAKE: SignedDuration = SignedDuration::from_secs(1);

struct Live {
    world: LocalRegion,
    cluster: String,
    telling: ClusterTelling,
    api: Client,
    runtime: Runtime,
    granted: BTreeSet<String>,
    looked_at: Instant,
    deadline: Timestamp,
    server: Server,
    lines: OutputLines,
}

/// Runs the command.
pub(super) fn run(args: &LocalArgs, kubeconfig: &Path) -> Result<CommandOutcome, Failure> {
    if args.until == Some(Until::Settled) {
        let remedy = "give a duration such as `10m`, or leave it out and end it with Ctrl-C";
        return Err(Problem::new("a real cluster never settles", remedy).at("--until").into());
    }
    let mut live = Live::begin(args, kubeconfig)?;
    live.lines.begin(&live.world, Speed::Times(1.0), Some(live.server.port))?;
    let ended = live.run()?;
    let left = live.world.region.unsettled().0;
    let ending = match ended {
        Ended::Reached => Ending::Reached,
        Ended::Stopped => Ending::Stopped,
    };
    live.lines.end(&live.world.region, &left, ending)?;
    Ok(CommandOutcome::Done)
}

fn wrong(error: &LiveError) -> Failure {
    Problem::new(chain(error), "see docs/local.md").at("--kubeconfig").into()
}

/// The readable classes; conditions show the problems of the others.
fn read_classes(runtime: &Runtime, api: &Client) -> Result<Vec<Ec2NodeClass>, LiveError> {
    let found = runtime.block_on(classes(api))?;
    Ok(found.iter().filter_map(|class| node_class_from_value(class).ok()).collect())
}

impl Live {
    fn begin(args: &LocalArgs, kubeconfig: &Path) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::from(Problem::new(format!("can't start threads: {error}"), "try again"))
        })?;
        let api = runtime.block_on(client(kubeconfig)).map_err(|error| wrong(&error))?;
        let classes = read_classes(&runtime, &api).map_err(|error| wrong(&error))?;
        let cluster = cluster_of(&classes);
        let mut world = world(args, kubeconfig)?;
        let setup =
            |error: &dyn std::error::Error| Failure::from(Problem::new(chain(error), "see docs/local.md"));
        let name = ClusterName::parse(cluster.as_str()).map_err(|error| setup(&error))?;
        let given = LiveWorld {
            name,
            installation: Arc::clone(world.region.installation()),
            table: world.region.table().clone(),
            boot: BOOT,
        };
        let (outside, telling, _) = LiveCluster::start(runtime.handle(), api.clone(), api.clone(), given);
        let form = ClusterForm { name: cluster.clone(), ..ClusterForm::default() };
        add_outside(&mut world.region, &form, Box::new(outside)).map_err(|error| setup(&error))?;
        let start = world.region.started();
        let mut live = Self {
            cluster,
            telling,
            api,
            runtime,
            granted: BTreeSet::new(),
            looked_at: Instant::now(),
            deadline: deadline(args, start),
            server: Server::start(args.port.unwrap_or(DEFAULT_PORT))?,
            lines: OutputLines::new(args.output.format, start),
            world,
        };
        live.grant_to(&classes);
        Ok(live)
    }

    fn run(&mut self) -> Result<Ended, Failure> {
        loop {
            let region = &mut self.world.region;
            region.run_until(Timestamp::now().min(self.deadline));
            let news = self.telling.pass_on(region, Duration::ZERO);
            let happened = told(region, &self.cluster, news);
            for happening in self.lines.worth_telling(happened) {
                if self.lines.happened(&happening)? == OutputReader::Gone {
                    return Ok(Ended::Stopped);
                }
            }
            if self.world.region.now() >= self.deadline {
                return Ok(Ended::Reached);
            }
            match self.server.next(TURN) {
                Some(ask) if ask.request == ApiRequest::Stop => return Ok(Ended::Stopped),
                Some(ask) => {
                    let answer = answers::answer(&mut self.world, &ask.request);
                    ask.answer(answer);
                }
                None => {}
            }
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.looked_at = Instant::now();
                // A failed list is repeated the next time.
                let classes = read_classes(&self.runtime, &self.api).unwrap_or_default();
                self.grant_to(&classes);
            }
        }
    }

    /// Adds the resources that new classes need.
    fn grant_to(&mut self, classes: &[Ec2NodeClass]) {
        let (region, name) = (&mut self.world.region, &self.world.region_name);
        let new: Vec<Ec2NodeClass> =
            classes.iter().filter(|class| !self.granted.contains(class.name.as_str())).cloned().collect();
        if new.is_empty() {
            return;
        }
        self.granted.extend(new.iter().map(|class| class.name.to_string()));
        for image in new.iter().flat_map(images_of) {
            // Its event makes the function look at the class again.
            region.make_image(&ImageForm { takes: Some(IMAGES_TAKE), ..image });
        }
        if let Err(message) = grant(region, name, &self.cluster, &new) {
            region.note(&self.cluster, format!("can't grant what the EC2NodeClasses ask for: {message}"));
        }
    }
}

/// The happenings of the region, and its cluster's news.
fn told(region: &mut SimulatedRegion, cluster: &str, news: Vec<AgentNews>) -> Vec<Happening> {
    let mut happened = region.take_happenings();
    let subject = format!("agent of {cluster}");
    happened.extend(news.into_iter().map(|news| {
        let message = match news {
            AgentNews::Reported { generation, pending_pods } => {
                format!("reported generation {generation}, pending pods: {pending_pods}")
            }
            AgentNews::Crashed => "crashed".to_owned(),
            AgentNews::Trouble(message) => message,
        };
        Happening::new(region.now(), HappeningKind::Action, subject.clone(), message)
    }));
    happened
}

/// A region in which nothing has happened, at the real time.
fn world(args: &LocalArgs, kubeconfig: &Path) -> Result<LocalRegion, Failure> {
    let scenario = Scenario {
        title: format!("The cluster of {} with a region of this machine", kubeconfig.display()),
        region: args.region.resolve()?.to_string(),
        seed: 0,
        types: Vec::new(),
        zones: Vec::new(),
        clusters: Vec::new(),
        images: Vec::new(),
        steps: Vec::new(),
    };
    let calls = Arc::new(CountedCalls::new(Arc::new(Undisturbed)));
    let hooks: Arc<dyn Hooks> = Arc::<CountedCalls>::clone(&calls);
    let options = SetupOptions { seed: args.seed, hooks, start: Timestamp::now(), ..SetupOptions::default() };
    let setup =
        |error: &dyn std::error::Error| Failure::from(Problem::new(chain(error), "see docs/local.md"));
    let region = build(&scenario, &options).map_err(|error| setup(&error))?;
    let region_name = RegionName::parse(scenario.region.as_str()).map_err(|error| setup(&error))?;
    let name = kubeconfig.display().to_string();
    Ok(LocalRegion { region, region_name, scenario, name, warnings: Vec::new(), events_sent: 0, calls })
}
