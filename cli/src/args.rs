//! The command line.
//!
//! Decides flags, their defaults and the help with its examples. The commands decide what flags do.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tenon_domain::SignedDuration;
use tenon_domain::default_spread::DefaultConstraint;
use tenon_domain::id::{ClusterName, InstallationId, InstanceType, ParseIdError, Region};
use tenon_domain::instance_family::{FamilyPattern, FamilyPatternError};
use tenon_domain::registry::{FeatureGate, MinValuesPolicy, PlanPolicies, PreferencePolicy};

use crate::errors::{Failure, Problem};
use crate::output::OutputFormat;
use crate::state::{GetKind, StoryOf};

/// The command line of Tenon, which autoscales the EC2 nodes of Kubernetes clusters
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
    /// Runs a simulated region and cluster on this machine; needs no AWS account
    Local(LocalArgs),
    /// Shows the nodes that Tenon would launch for manifests, and why; changes nothing
    Simulate(SimulateArgs),
    /// Lists instance types: resources, offerings and prices
    Types(TypesArgs),
    /// Runs scenario files and compares the results with their golden transcripts
    Scenario(ScenarioArgs),
    /// Lists objects in the state table
    Get(GetArgs),
    /// Makes Tenon ask EC2 again for refused capacity, or forget learned memory
    Clear(ClearArgs),
    /// Lists the decisions about an object, newest last
    Why(WhyArgs),
    /// Sends an event in AWS's form
    Event(EventArgs),
    /// Checks an AWS account and a cluster, before and after an installation; changes nothing
    Doctor(DoctorArgs),
}

/// `-o`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// The output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t = OutputFormat::Table, value_name = "FORMAT")]
    pub(crate) format: OutputFormat,
}

/// `--region`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RegionArgs {
    /// The AWS region [default: `AWS_REGION`, else us-east-1]
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
Reads Pods, controllers, DaemonSets, Nodes, volumes, NodePools and EC2NodeClasses from the files.
Exits with 0 if every pod gets a node, with 1 if pods remain pending or the plan waits for something.

Examples:
  tenon simulate -f deployment.yaml -f nodepool.yaml
  kubectl get pods,nodes,nodepools,ec2nodeclasses -A -o yaml | tenon simulate -f - -o json
  tenon simulate -f before.yaml --compare after.yaml
  tenon simulate -f deployment.yaml -f nodepool.yaml --explain web-0")]
pub(crate) struct SimulateArgs {
    /// Manifests, YAML or JSON; `-` is standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE", num_args = 1..)]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// A JSON file of instance types, offerings and prices, plain or gzip'd; its parts replace the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Also print the duration and the memory of the plan
    #[arg(long)]
    pub(crate) timing: bool,
    /// Also plan these manifests, and print the differences
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) compare: Vec<PathBuf>,
    /// Also print the instance types that fit one pod, with their prices, and why the others don't; POD is
    /// `namespace/name`, or a name that only one pod has
    #[arg(long, value_name = "POD")]
    pub(crate) explain: Option<String>,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// A default topology spread constraint, for pods that have none of their own; as the cluster's setting
    /// `DefaultTopologySpread` lists them
    #[arg(long, value_name = "LABEL=SKEW:ACTION", value_parser = parse_default_constraint)]
    pub(crate) default_spread: Vec<DefaultConstraint>,
    /// The families of instance types that the cluster's stack allows in `AllowedFamilies` [default: all]
    #[arg(long, value_name = "FAMILY", value_delimiter = ',', value_parser = parse_family)]
    pub(crate) allowed_families: Vec<FamilyPattern>,
    /// Whether capacity reservations in the status of EC2NodeClasses are used, as the gate `ReservedCapacity` of the
    /// cluster's stack says
    #[arg(long, value_name = "Enabled|Disabled", default_value = "Disabled", value_parser = parse_gate)]
    pub(crate) reserved_capacity: FeatureGate,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How far a plan follows wishes.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Whether pods' preferences shape nodes, as the cluster's setting `PreferencePolicy` says
    #[arg(long, value_name = "Respect|Ignore", default_value = "Respect", value_parser = parse_preference_policy)]
    preference_policy: PreferencePolicy,
    /// Whether pods wait where `minValues` can't be met, as the cluster's setting `MinValuesPolicy` says
    #[arg(long, value_name = "Strict|BestEffort", default_value = "Strict", value_parser = parse_min_values_policy)]
    min_values_policy: MinValuesPolicy,
}

impl PolicyArgs {
    /// For the planner.
    pub(crate) const fn policies(&self) -> PlanPolicies {
        PlanPolicies { preferences: self.preference_policy, min_values: self.min_values_policy }
    }
}

fn parse_preference_policy(text: &str) -> Result<PreferencePolicy, String> {
    PreferencePolicy::parse(text).ok_or_else(|| "expected `Respect` or `Ignore`".to_owned())
}

fn parse_min_values_policy(text: &str) -> Result<MinValuesPolicy, String> {
    MinValuesPolicy::parse(text).ok_or_else(|| "expected `Strict` or `BestEffort`".to_owned())
}

fn parse_gate(text: &str) -> Result<FeatureGate, String> {
    FeatureGate::parse(text).ok_or_else(|| "expected `Enabled` or `Disabled`".to_owned())
}

fn parse_default_constraint(text: &str) -> Result<DefaultConstraint, String> {
    DefaultConstraint::parse(text).ok_or_else(|| format!("expected {}", DefaultConstraint::FORM))
}

fn parse_family(text: &str) -> Result<FamilyPattern, String> {
    text.parse().map_err(|error: FamilyPatternError| error.to_string())
}

/// `tenon types`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without TYPE it prints all known types. A type that the region doesn't offer has no offerings.

Examples:
  tenon types m5.large c7g.xlarge
  tenon types --region eu-west-1 -f nodeclass.yaml -o json")]
pub(crate) struct TypesArgs {
    /// Instance types [default: all]
    #[arg(value_name = "TYPE", value_parser = parse_instance_type)]
    pub(crate) types: Vec<InstanceType>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// The EC2NodeClass of the nodes [default: a built-in class]
    #[arg(short, long = "filename", value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon scenario`.
#[derive(Debug, Args)]
#[command(after_help = "\
The golden transcript of NAME.yaml is NAME.golden beside it. Exits with 0 if all are equal, with 1 if
one differs (and prints the difference), with 2 if a file isn't a scenario or asks for something
impossible.

Examples:
  tenon scenario tests/scenarios/*.yaml
  tenon scenario mine.yaml --bless")]
pub(crate) struct ScenarioArgs {
    /// Scenario files, or directories of them; see docs/scenarios.md
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the golden transcripts instead of comparing with them
    #[arg(long)]
    pub(crate) bless: bool,
}

/// The default port of `tenon local`.
pub(crate) const DEFAULT_PORT: u16 = 7878;

/// The region of a command: `--local`, or an account's.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// Use the region of `tenon local` on this machine instead of an AWS account
    #[arg(
        long,
        value_name = "PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "7878",
        conflicts_with_all = ["region", "installation", "table"]
    )]
    pub(crate) local: Option<u16>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// The installation's id, which is also the name of its bus
    #[arg(long, value_name = "ID", default_value = "tenon", value_parser = parse_installation)]
    pub(crate) installation: InstallationId,
    /// The table's name, if the region's stack has a `TableSuffix` [default: the installation's id]
    #[arg(long, value_name = "NAME")]
    #[cfg_attr(not(feature = "aws"), allow(dead_code, reason = "this build reads no account's table"))]
    pub(crate) table: Option<String>,
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
    /// The kind of objects
    #[arg(value_enum)]
    pub(crate) kind: GetKind,
    /// The name of one object; exits with 1 if it doesn't exist
    pub(crate) name: Option<String>,
    /// The cluster [default: the only one]
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
KEY is the column WHAT of `tenon get unavailable` or `tenon get learned`. If one KEY doesn't exist, nothing is cleared.
For learned memory, KEY may also be a type; images after a type are images of that type.
Tenon plans pods that wait for capacity again within three minutes; if EC2 still refuses, it sets a new mark. Plans use
cleared memory for up to ten minutes more, and a cluster uses the memory of its own Nodes as long as they exist.

Examples:
  tenon clear unavailable 'offering#spot#use1-az1#m5.large' --local
  tenon clear unavailable --all --region eu-west-1
  tenon clear learned m5.large ami-0abc --local")]
pub(crate) struct ClearArgs {
    /// What to clear
    #[arg(value_enum)]
    pub(crate) kind: Clearable,
    /// Keys of marks, or types and images
    #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) keys: Vec<String>,
    /// Clear all in the region
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
Exits with 1 if the journal has no decision.

Examples:
  tenon why claim default-3k9x2 --local
  tenon why image ami-0abc --installation staging
  tenon why pod default/web-0 --local
  tenon why node ip-10-0-0-1.ec2.internal --local -o json")]
pub(crate) struct WhyArgs {
    /// The kind of object
    #[arg(value_enum)]
    pub(crate) kind: StoryOf,
    /// Its name
    pub(crate) name: String,
    /// The cluster [default: the only one]
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
instance-stopped, instance-terminated. Exits with 1 if no rule matches the event.

In an account, events of Tenon's own sources go to the installation's bus. EventBridge accepts
no events with AWS's sources from users, so the command sends those to the queues that the rules
target. That needs sqs:SendMessage on the queues.

Examples:
  tenon event spot-interruption i-0abc --local
  tenon event pipeline ami-0abc --region eu-west-1
  tenon event event.json --local")]
pub(crate) struct EventArgs {
    /// An event's name, or a file with an event as EventBridge delivers it; `-` is standard input
    #[arg(value_name = "EVENT")]
    pub(crate) what: String,
    /// The image or instance of the event
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenon doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each check is passed, warning, failed, unknown or notApplicable; failed ones name the remedy. Exits with 1 if one failed.
A missing right makes a check unknown. docs/doctor.md has the checks and their rights.

Examples:
  tenon doctor --cluster prod
  tenon doctor --region eu-west-1 --installation staging -o json")]
pub(crate) struct DoctorArgs {
    /// The cluster's name in EKS [default: the only registered cluster]
    #[arg(long, value_parser = parse_cluster)]
    pub(crate) cluster: Option<ClusterName>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    /// The installation's id, which is also the name of its bus
    #[arg(long, value_name = "ID", default_value = "tenon", value_parser = parse_installation)]
    pub(crate) installation: InstallationId,
    /// The table's name, if the region's stack has a `TableSuffix` [default: the installation's id]
    #[arg(long, value_name = "NAME")]
    #[cfg_attr(not(feature = "aws"), allow(dead_code, reason = "this build reads no account's table"))]
    pub(crate) table: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn parse_cluster(text: &str) -> Result<ClusterName, ParseIdError> {
    ClusterName::parse(text)
}

/// `tenon local`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without -f it plays the built-in tour. Virtual time starts at 2026-01-01T00:00:00Z; one seed gives
the same lines on every machine. Without `--until` it keeps running and answers `tenon get`, `clear`,
`why` and `event` with `--local`. Exits with 1 if the region has not settled.

Examples:
  tenon local
  tenon local -f nodepool.yaml -f deployment.yaml --until settled
  tenon local --scenario tour --speed max --until settled -o json
  tenon local --scenario idle-day --speed max --bill")]
pub(crate) struct LocalArgs {
    /// Manifests for the cluster, YAML or JSON; `-` is standard input
    #[arg(short, long = "filename", value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    /// The scenario to play: `tour`, another built-in scenario, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) scenario: Option<String>,
    /// Use a real cluster on this machine instead of the simulated one, in real time; kwok simulates its nodes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filename", "scenario", "speed", "bill"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The seed of all random choices [default: the scenario's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Virtual seconds per real second, or `max`
    #[arg(long, value_name = "X|max", default_value = "20", value_parser = parse_speed)]
    pub(crate) speed: Speed,
    /// When to stop: once the region has settled, or after a virtual time such as `10m` or `24h`
    #[arg(long, value_name = "settled|DURATION", value_parser = parse_until)]
    pub(crate) until: Option<Until>,
    /// Print only what AWS would bill for a day like the scenario's, and the month's USD
    #[arg(long, requires = "scenario", conflicts_with_all = ["filename", "port", "until"])]
    pub(crate) bill: bool,
    /// The port on 127.0.0.1; 0 picks a free one [default: 7878; none at full speed with `--until`]
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
    /// As fast as the machine allows.
    Max,
    /// Virtual seconds per real second; positive.
    Times(f64),
}

impl Speed {
    /// The tour takes about a minute, and its first node appears within a second or two.
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
    /// Once the scenario is over and the region has settled.
    Settled,
    /// After this virtual time.
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
