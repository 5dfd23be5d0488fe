//! Asks AWS and the table for the facts.
//!
//! Decides the calls, their order and their time. Calls that need nothing of each other go side by side: first the stacks,
//! which name the table, then in three rounds the account with the registry, the cluster, and what its entry names. Nothing
//! is written anywhere.

mod account;
mod cluster;
mod installation;
mod table;

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use aws_sdk_sts::error::{ProvideErrorMetadata, SdkError};
use aws_types::SdkConfig;
use tenon_domain::Timestamp;
use tenon_domain::id::{ClusterName, InstallationId, Region};
use tenon_dynamodb::DynamoTable;
use tokio::{join, time};

use super::facts::{Answer, ClusterAnswers, DoctorFacts, DoctorScope, Unanswered};
use super::judge::table_of_region;
use crate::account::{check_credentials, config};
use crate::errors::chain;

/// The longest that one question may take, its pages and the SDK's retries included. The credentials, the stacks and three
/// rounds bound the whole.
const QUESTION_TIME: Duration = Duration::from_secs(20);
/// Codes of a call that the credentials don't allow.
const DENIED: [&str; 4] = ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"];

/// What is asked about.
pub(super) struct DoctorQuestion<'a> {
    pub(super) region: &'a Region,
    pub(super) installation: &'a InstallationId,
    /// The table's name, if one is named.
    pub(super) table: Option<&'a str>,
    /// The cluster, if one is named.
    pub(super) cluster: Option<&'a ClusterName>,
}

impl DoctorQuestion<'_> {
    fn scope(&self, table: &str, cluster: Option<&ClusterName>) -> DoctorScope {
        DoctorScope {
            region: self.region.to_string(),
            installation: self.installation.to_string(),
            table: table.to_owned(),
            cluster: cluster.map(ToString::to_string),
        }
    }
}

/// Asks everything.
pub(super) async fn facts(question: &DoctorQuestion<'_>, now: Timestamp) -> DoctorFacts {
    let config = config(question.region).await;
    let id = question.installation.as_str();
    if let Err(why) = credentials(&config).await {
        let scope = question.scope(question.table.unwrap_or(id), question.cluster);
        return DoctorFacts::without_credentials(scope, why);
    }
    // The functions' table is that of the region's stack: after a restore it has another name.
    let stacks = within("cloudformation:DescribeStacks", installation::stacks(&config, id)).await;
    let of_stack = || table_of_region(stacks.as_ref().ok()?);
    let table_name = question.table.map(str::to_owned).or_else(of_stack).unwrap_or_else(|| id.to_owned());
    let ec2 = aws_sdk_ec2::Client::new(&config);
    let quotas = aws_sdk_servicequotas::Client::new(&config);
    let iam = aws_sdk_iam::Client::new(&config);
    let dynamodb = aws_sdk_dynamodb::Client::new(&config);
    let table = DynamoTable::with_call_timeout(&dynamodb, &table_name, QUESTION_TIME);
    let (caller, region, on_demand_vcpus, spot_vcpus, spot_role, registered, dead_letters) = join!(
        within("sts:GetCallerIdentity", account::caller(&config)),
        within("ec2:DescribeRegions", account::region(&ec2, question.region)),
        within("servicequotas:GetServiceQuota", account::vcpus(&quotas, account::ON_DEMAND)),
        within("servicequotas:GetServiceQuota", account::vcpus(&quotas, account::SPOT)),
        within("iam:GetRole", account::spot_role(&iam)),
        within("dynamodb:Query", table::registered((&dynamodb, &table_name), &table, question)),
        within("sqs:GetQueueAttributes", installation::dead_letters(&config, id)),
    );
    let only = registered.as_ref().ok().and_then(|known| match known.as_deref() {
        Some([only]) => Some(only.clone()),
        Some(_) | None => None,
    });
    let named = question.cluster.cloned().or(only);
    let mut facts = DoctorFacts {
        scope: question.scope(&table_name, named.as_ref()),
        caller,
        region,
        on_demand_vcpus,
        spot_vcpus,
        spot_role,
        stacks,
        registered: registered
            .map(|known| known.map(|names| names.iter().map(ToString::to_string).collect())),
        dead_letters,
        cluster: None,
    };
    if let Some(name) = &named {
        let asked = ClusterQuestion {
            config: &config,
            ec2: &ec2,
            iam: &iam,
            table: &table,
            region: question.region,
            name,
        };
        facts.cluster = Some(asked.answers(&facts, now).await);
    }
    facts
}

/// What is asked about a cluster, and whom.
struct ClusterQuestion<'a> {
    config: &'a SdkConfig,
    ec2: &'a aws_sdk_ec2::Client,
    iam: &'a aws_sdk_iam::Client,
    table: &'a DynamoTable,
    region: &'a Region,
    name: &'a ClusterName,
}

impl ClusterQuestion<'_> {
    async fn answers(&self, facts: &DoctorFacts, now: Timestamp) -> ClusterAnswers {
        let Self { config, ec2, iam, table, region, name } = self;
        let eks = aws_sdk_eks::Client::new(config);
        let cluster = name.as_str();
        let there = !matches!(facts.registered, Ok(None));
        let (described, addon, registration, report, halt, classes) = join!(
            within("eks:DescribeCluster", cluster::described(&eks, cluster)),
            within("eks:DescribeAddon", cluster::addon(&eks, cluster)),
            within("dynamodb:GetItem", async {
                if there { table::registration(table, region, name).await } else { Ok(None) }
            }),
            within("dynamodb:BatchGetItem", async {
                if there { table::report(table, name, now).await } else { Ok(None) }
            }),
            within("dynamodb:GetItem", async {
                if there { table::halt(table, name).await } else { Ok(None) }
            }),
            within("dynamodb:Query", async {
                if there { table::classes(table, name).await } else { Ok(Vec::new()) }
            }),
        );
        let entry = registration.as_ref().ok().and_then(Option::as_ref);
        let discovery = || BTreeMap::from([("karpenter.sh/discovery".to_owned(), cluster.to_owned())]);
        let subnet_tags = entry.map_or_else(discovery, |entry| entry.subnet_tags.clone());
        let group_tags = entry.map_or_else(discovery, |entry| entry.security_group_tags.clone());
        let mut roles = entry.map(|entry| entry.node_roles.clone()).unwrap_or_default();
        roles.extend(report.iter().flatten().flat_map(|report| report.roles.clone()));
        let provider = cluster::provider_arn(facts, cluster);
        let (oidc_provider, entries, subnets, security_groups) = join!(
            within("iam:GetOpenIDConnectProvider", account::oidc_provider(iam, provider)),
            within("eks:ListAccessEntries", cluster::entries(&eks, cluster, &roles)),
            within("ec2:DescribeSubnets", cluster::subnets(ec2, subnet_tags)),
            within("ec2:DescribeSecurityGroups", cluster::security_groups(ec2, group_tags)),
        );
        ClusterAnswers {
            eks: described,
            addon,
            oidc_provider,
            entries,
            registration,
            report,
            halt,
            classes,
            subnets,
            security_groups,
        }
    }
}

/// The reason why there are no credentials.
async fn credentials(config: &SdkConfig) -> Result<(), String> {
    match time::timeout(QUESTION_TIME, check_credentials(config)).await {
        Ok(found) => found.map_err(|problem| problem.message),
        Err(_) => Err("no AWS credentials: their provider doesn't answer".to_owned()),
    }
}

/// The answer, if it comes in time. The future is large, and goes to the heap.
async fn within<T>(right: &'static str, asked: impl Future<Output = Answer<T>>) -> Answer<T> {
    time::timeout(QUESTION_TIME, Box::pin(asked)).await.unwrap_or(Err(Unanswered::Late { right }))
}

/// The answer of a call; `None` with one of these codes.
fn found<T, E>(right: &'static str, absent: &[&str], sent: Result<T, SdkError<E>>) -> Answer<Option<T>>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match sent {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code().is_some_and(|code| absent.contains(&code)) => Ok(None),
        Err(error) => Err(failed(right, &error)),
    }
}

/// The answer of a call to which no code means absence.
fn answered<T, E>(right: &'static str, sent: Result<T, SdkError<E>>) -> Answer<T>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    sent.map_err(|error| failed(right, &error))
}

fn failed<E>(right: &'static str, error: &SdkError<E>) -> Unanswered
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match (error.code(), error.message()) {
        (Some(code), _) if DENIED.contains(&code) => Unanswered::Denied { right },
        (Some(code), Some(message)) => Unanswered::Failed { right, why: format!("{code}: {message}") },
        (Some(code), None) => Unanswered::Failed { right, why: code.to_owned() },
        (None, _) => Unanswered::Failed { right, why: chain(error) },
    }
}
