//! What the command line takes.
//!
//! Decides flags, their defaults and the help with its examples. What commands do with them is theirs.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tenon_domain::SignedDuration;
use tenon_domain::id::{InstallationId, InstanceType, ParseIdError, Region};

use crate::errors::{Failure, Problem};
use crate::output::OutputFormat;
use crate::state::{GetKind, StoryOf};

/// Gives Kubernetes clusters on EC2 their nodes, and says why.
#[derive(Debug, Parser)]
#[command(name = "tenon", version, disable_help_subcommand = true, subcommand_required = true)]
#[command(after_help = "Example:\n  tenon simulate -f pods.yaml -f nodepool.yaml -o json")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// A whole region and cluster on this machine, no AWS account
    Local(LocalArgs),
    /// What would be launched for these manifests, and why; changes nothing
    Simulate(SimulateArgs),
    /// Instance types as Tenon sees them
    Types(TypesArgs),
    /// Plays scenario files and compares with their golden transcripts
    Scenario(ScenarioArgs),
    /// Reads the state table
    Get(GetArgs),
    /// Clears marks of what EC2 refused, so that it is asked for again
    Clear(ClearArgs),
    /// The decisions that led there, newest last
    Why(WhyArgs),
    /// Sends an event in the shape in which AWS sends it
    Event(EventArgs),
}

/// `-o`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// How the result is written
    #[arg(short = 'o', long = "output", value_enum, default_value_t = OutputFormat::Table, value_name = "FORMAT")]
    pub(crate) format: OutputFormat,
}

/// `--region`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RegionArgs {
    /// The AWS region; `AWS_REGION` without, then us-east-1
    #[arg(long, value_name = "REGION", value_parser = parse_region)]
    region: Option<Region>,
}

impl RegionArgs {
    /// The flag's region, then that of `AWS_REGION`, then us-east-1.
    pub(crate) fn resolve(&self) -> Result<Region, Failure> {
        const VARIABLE: &str = "AWS_REGION";
        const DEFAULT: &str = "us-east-1";
        if let Some(region) = &self.region {
            return Ok(region.clone());
        }
        let set = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
        Region::parse(set.as_deref().unwrap_or(DEFAULT)).map_err(|error| {
            let remedy = "set it to a region such as `us-east-1`, or give `--region`";
            Problem::new(error.to_string(), remedy).at(VARIABLE).into()
        })
    }
}

fn parse_region(text: &str) -> Result<Region, ParseIdError> {
    Region::parse(text)
}

fn parse_instance_type(text: &str) -> Result<InstanceType, ParseIdError> {
    InstanceType::parse(text)
}

/// `tenon simulate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Pods, controllers, DaemonSets, Nodes, volumes, NodePools and EC2NodeClasses are read from the
files. Ends with 0 when every pod has a place, with 1 when pods are left over or something
is waited for.

Examples:
  tenon simulate -f deployment.yaml -f nodepool.yaml
  kubectl get pods,nodes,nodepools,ec2nodeclasses -A -o yaml | tenon simulate -f - -o json
  tenon simulate -f before.yaml --compare after.yaml")]
pub(crate) struct SimulateArgs {
    /// Manifests, YAML or JSON; `-` is standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// A catalogue to plan from, part by part instead of the one that comes with this build; JSON, plain or gzip'd
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Add how long the plan took and what memory it needed
    #[arg(long)]
    pub(crate) timing: bool,
    /// Plan these manifests too, and print what would differ
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon types`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without TYPE all that are known are printed; one that the region doesn't offer has no offerings.

Examples:
  tenon types m5.large c7g.xlarge
  tenon types --region eu-west-1 -f nodeclass.yaml -o json")]
pub(crate) struct TypesArgs {
    /// Instance types; all without any
    #[arg(value_name = "TYPE", value_parser = parse_instance_type)]
    pub(crate) types: Vec<InstanceType>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// An EC2NodeClass: what its nodes would be; the default class without
    #[arg(short, long = "filename", value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon scenario`.
#[derive(Debug, Args)]
#[command(after_help = "\
The golden transcript of NAME.yaml is NAME.golden beside it. Ends with 0 when all are equal, with 1
when one differs, which is printed, and with 2 when a file is no scenario or asks for what can't be.

Examples:
  tenon scenario tests/scenarios/*.yaml
  tenon scenario mine.yaml --bless")]
pub(crate) struct ScenarioArgs {
    /// Scenario files: see docs/scenarios.md
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the golden transcripts instead of comparing with them
    #[arg(long)]
    pub(crate) bless: bool,
}

/// Where `tenon local` serves unless it is told otherwise.
pub(crate) const DEFAULT_PORT: u16 = 7878;

/// Which region is meant: `--local`, or an account's.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// Ask the region that `tenon local` runs on this machine, not an account
    #[arg(
        long,
        value_name = "PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "7878",
        conflicts_with_all = ["region", "installation"]
    )]
    pub(crate) local: Option<u16>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// The installation, which is also the name of its table and of its bus
    #[arg(long, value_name = "ID", default_value = "tenon", value_parser = parse_installation)]
    pub(crate) installation: InstallationId,
}

fn parse_installation(text: &str) -> Result<InstallationId, ParseIdError> {
    InstallationId::parse(text)
}

/// `tenon get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenon get claims --local
  tenon get catalog --region eu-west-1
  tenon get nodes --local -o yaml
  tenon get types m5.large --local=7900 -o json")]
pub(crate) struct GetArgs {
    /// What to list
    #[arg(value_enum)]
    pub(crate) kind: GetKind,
    /// Only the one of this name; ends with 1 when there is none
    pub(crate) name: Option<String>,
    /// The cluster; without, the only one
    #[arg(long)]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon clear`.
#[derive(Debug, Args)]
#[command(after_help = "\
KEY is what `tenon get unavailable` or `tenon get learned` shows as WHAT. Where one of them isn't there, none is
cleared. Of what was learned, KEY is also a type, and images after a type are those of the type.
Pods that wait for capacity are planned again within three minutes; where EC2 refuses still, it is marked anew. Plans
use what was learned for up to ten minutes more, and a cluster what its own Nodes report as long as they are there.

Examples:
  tenon clear unavailable 'offering#spot#use1-az1#m5.large' --local
  tenon clear unavailable --all --region eu-west-1
  tenon clear learned m5.large ami-0abc --local")]
pub(crate) struct ClearArgs {
    /// What to clear
    #[arg(value_enum)]
    pub(crate) kind: Clearable,
    /// The marks, or the types and images
    #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) keys: Vec<String>,
    /// All of the region
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `tenon clear` clears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Clearable {
    /// Marks of capacity that EC2 refused
    Unavailable,
    /// Memory that kubelets reported
    Learned,
}

/// `tenon why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 1 when no decision is recorded.

Examples:
  tenon why claim default-3k9x2 --local
  tenon why image ami-0abc --installation staging
  tenon why pod default/web-0 --local
  tenon why node ip-10-0-0-1.ec2.internal --local -o json")]
pub(crate) struct WhyArgs {
    /// What it is about
    #[arg(value_enum)]
    pub(crate) kind: StoryOf,
    /// Its name
    pub(crate) name: String,
    /// The cluster; without, the only one
    #[arg(long)]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon event`.
#[derive(Debug, Args)]
#[command(after_help = "\
Events about an AMI: ami-available, ami-failed, ami-deregistered, ami-disabled, pipeline.
Events about an INSTANCE: spot-interruption, rebalance, instance-shutting-down,
instance-stopped, instance-terminated. Ends with 1 when no rule takes the event.

In an account, events of our own sources go to the installation's bus. AWS takes no events of
its own sources from others, so those go to the queues that the rules would send them to, which
needs sqs:SendMessage on them.

Examples:
  tenon event spot-interruption i-0abc --local
  tenon event pipeline ami-0abc --region eu-west-1
  tenon event event.json --local")]
pub(crate) struct EventArgs {
    /// A word for an event, or a file with one as EventBridge delivers it; `-` is standard input
    #[arg(value_name = "EVENT")]
    pub(crate) what: String,
    /// The image or instance that it is about
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon local`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without -f it plays the built-in tour. Virtual time starts at 2026-01-01T00:00:00Z; one seed gives
the same lines on every machine. Stays up and answers `tenon get`, `clear`, `why` and `event` with
`--local`, unless `--until` says otherwise. Ends with 1 when the region has not settled.

Examples:
  tenon local
  tenon local -f nodepool.yaml -f deployment.yaml --until settled
  tenon local --scenario tour --speed max --until settled -o json
  tenon local --scenario idle-day --speed max --bill")]
pub(crate) struct LocalArgs {
    /// Manifests for the cluster, YAML or JSON; `-` is standard input
    #[arg(short, long = "filename", value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    /// What happens: `tour`, another built-in scenario, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) scenario: Option<String>,
    /// A real cluster on this machine instead of the simulated one, in real time; its pods' nodes are run by kwok
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filename", "scenario", "speed", "bill"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// What every choice of the region follows from; the scenario's own without
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How many virtual seconds go by in each real one, or `max`
    #[arg(long, value_name = "X|max", default_value = "20", value_parser = parse_speed)]
    pub(crate) speed: Speed,
    /// When to end: once everything has settled, or after a virtual time such as `10m` or `24h`
    #[arg(long, value_name = "settled|DURATION", value_parser = parse_until)]
    pub(crate) until: Option<Until>,
    /// Count instead of telling: what AWS would bill for in a day like the scenario's, and the month's USD
    #[arg(long, requires = "scenario", conflicts_with_all = ["filename", "port", "until"])]
    pub(crate) bill: bool,
    /// Where to answer on 127.0.0.1 [default: 7878; at full speed with `--until`, nowhere]; 0 is any free port
    #[arg(long)]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How fast virtual time goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    /// As fast as the machine can.
    Max,
    /// So many virtual seconds in a real one; positive.
    Times(f64),
}

impl Speed {
    /// The tour takes about a minute, and the first node is there within a second or two.
    pub(crate) const DEFAULT: Self = Self::Times(20.0);
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let times: Option<f64> = text.parse().ok().filter(|times: &f64| times.is_finite() && *times > 0.0);
    times.map(Speed::Times).ok_or_else(|| "expected a positive number such as `10`, or `max`".to_owned())
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Once the scenario is over and everything has settled.
    Settled,
    /// After so much virtual time.
    Elapsed(SignedDuration),
}

fn parse_until(text: &str) -> Result<Until, String> {
    if text == "settled" {
        return Ok(Until::Settled);
    }
    let duration = text.parse().ok().filter(|duration: &SignedDuration| duration.is_positive());
    duration
        .map(Until::Elapsed)
        .ok_or_else(|| "expected `settled`, or a duration such as `90s`, `10m` or `24h`".to_owned())
}
