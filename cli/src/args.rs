//! What the command line takes.
//!
//! Decides flags, their defaults and the help with its examples. What commands do with them is theirs.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tenon_domain::id::{InstanceType, ParseIdError, Region};

use crate::errors::{Failure, Problem};
use crate::output::Format;

/// Gives Kubernetes clusters on EC2 their nodes, and says why.
#[derive(Debug, Parser)]
#[command(name = "tenon", version, disable_help_subcommand = true, subcommand_required = true)]
#[command(after_help = "Example:\n  tenon simulate -f pods.yaml -f nodepool.yaml -o json")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What would be launched for these manifests, and why; changes nothing
    Simulate(SimulateArgs),
    /// Instance types as Tenon sees them
    Types(TypesArgs),
}

/// `-o`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// How the result is written
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) format: Format,
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
Pods, controllers, DaemonSets, Nodes, volumes, NodePools and EC2NodeClasses are read from the files; `-f -` reads
standard input. Ends with 0 when every pod has a place, with 1 when pods are left over or something is waited for.

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
Without TYPE all instance types that are known are printed; one that the region doesn't offer has no offerings.

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
