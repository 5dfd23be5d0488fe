//! Checks of the installation: its stacks, its registry, the agent, and what is left undelivered.

use tenon_domain::evidence::{CLOCK_SKEW_MOST, SNAPSHOT_STALE_AFTER};
use tenon_domain::karpenter::stop_command;

use super::cluster::named;
use super::{Judged, of};
use crate::doctor::facts::{
    ClusterAnswers, DoctorFacts, DoctorScope, EksFacts, RegistrationFacts, ReportFacts, StackFacts,
};

/// The parameter by which a stack of `template.yaml` is known among those of an installation.
const OF_REGION: &str = "LogRetentionDays";
/// The parameter by which a stack of `infra/cluster.yaml` is known.
const OF_CLUSTER: &str = "MaxNodes";

/// The region's stack, whatever its name.
fn of_region(stacks: &[StackFacts]) -> Option<&StackFacts> {
    stacks.iter().find(|stack| stack.parameters.contains_key(OF_REGION))
}

/// The cluster's stack, whatever its name.
fn of_cluster<'a>(stacks: &'a [StackFacts], cluster: &str) -> Option<&'a StackFacts> {
    let is_of = |stack: &StackFacts| stack.parameters.get("Cluster").is_some_and(|name| name == cluster);
    stacks.iter().find(|stack| stack.parameters.contains_key(OF_CLUSTER) && is_of(stack))
}

/// The issuer whose tokens the cluster's stack trusts.
pub(in crate::doctor) fn issuer<'a>(facts: &'a DoctorFacts, cluster: &str) -> Option<&'a str> {
    let stack = of_cluster(facts.stacks.as_ref().ok()?, cluster)?;
    stack.parameters.get("OidcProvider").map(String::as_str).filter(|issuer| !issuer.is_empty())
}

/// The table of the region's stack.
pub(in crate::doctor) fn table_of_region(stacks: &[StackFacts]) -> Option<String> {
    let parameters = &of_region(stacks)?.parameters;
    let suffix = parameters.get("TableSuffix").map_or("", String::as_str);
    Some(format!("{}{suffix}", parameters.get("Installation")?))
}

/// Whether the region's stack is known to be absent.
fn no_region(facts: &DoctorFacts) -> bool {
    facts.stacks.as_ref().is_ok_and(|stacks| of_region(stacks).is_none())
}

pub(super) fn region_stack(facts: &DoctorFacts) -> Judged {
    let (installation, region) = (&facts.scope.installation, &facts.scope.region);
    of(&facts.stacks, |stacks| match of_region(stacks) {
        Some(stack) => match table_of_region(stacks).filter(|table| *table != facts.scope.table) {
            Some(table) => Judged::warning(
                format!(
                    "stack `{}` has the table `{table}`, and `{}` was asked",
                    stack.name, facts.scope.table
                ),
                "leave `--table` out, unless you are restoring that table: docs/restore.md",
            ),
            None => deployed(stack, region),
        },
        None => Judged::failed(
            format!("no stack of installation `{installation}` is in `{region}`"),
            format!(
                "infra/build arm64 && sam deploy --stack-name {installation} --resolve-s3 --region {region} \
                 --capabilities CAPABILITY_IAM CAPABILITY_AUTO_EXPAND --parameter-overrides Installation={installation}"
            ),
        ),
    })
}

pub(super) fn cluster_stack(facts: &DoctorFacts) -> Judged {
    let (installation, region) = (&facts.scope.installation, &facts.scope.region);
    named(facts, |name, _| {
        of(&facts.stacks, |stacks| match of_cluster(stacks, name) {
            Some(stack) => deployed(stack, region),
            None => Judged::failed(
                format!("no stack of cluster `{name}` is in `{region}`"),
                format!(
                    "deploy infra/cluster.yaml as `{installation}-{name}`: docs/install.md has the command and its \
                     parameters"
                ),
            ),
        })
    })
}

fn deployed(stack: &StackFacts, region: &str) -> Judged {
    let StackFacts { name, status, .. } = stack;
    let message = format!("stack `{name}` is {status}");
    let events = format!("aws cloudformation describe-stack-events --stack-name {name} --region {region}");
    match status.as_str() {
        "CREATE_COMPLETE"
        | "UPDATE_COMPLETE"
        | "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
        | "IMPORT_COMPLETE"
        | "IMPORT_ROLLBACK_COMPLETE" => Judged::passed(message),
        "UPDATE_ROLLBACK_COMPLETE" | "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS" => {
            Judged::warning(format!("{message}: the last update failed, the one before it runs"), events)
        }
        "UPDATE_IN_PROGRESS" => Judged::warning(
            message,
            format!("aws cloudformation wait stack-update-complete --stack-name {name} --region {region}"),
        ),
        "CREATE_IN_PROGRESS" => Judged::failed(
            message,
            format!("aws cloudformation wait stack-create-complete --stack-name {name} --region {region}"),
        ),
        _ => Judged::failed(message, events),
    }
}

pub(super) fn registration(facts: &DoctorFacts) -> Judged {
    let installation = &facts.scope.installation;
    named(facts, |name, cluster| {
        if no_region(facts) {
            return Judged::not_applicable("the region's stack makes the registry, and isn't deployed");
        }
        of(&facts.registered, |registered| {
            if registered.is_none() {
                return without_table(facts);
            }
            of(&cluster.registration, |entry| match entry {
                Some(entry) => agrees(name, entry, cluster.eks.as_ref().ok().and_then(Option::as_ref)),
                None if facts.stacks.as_ref().is_ok_and(|stacks| of_cluster(stacks, name).is_none()) => {
                    Judged::not_applicable("the cluster's stack registers it, and isn't deployed")
                }
                None => Judged::failed(
                    format!("the registry has no entry of cluster `{name}`"),
                    format!("aws logs tail /aws/lambda/{installation}-registry --since 1h"),
                ),
            })
        })
    })
}

/// The region's stack names the table's suffix, so a table of another name is a slip of the call or a restore that
/// isn't done.
fn without_table(facts: &DoctorFacts) -> Judged {
    let DoctorScope { region, installation, table, .. } = &facts.scope;
    let message = format!("there is no table `{table}` in `{region}`");
    if table == installation {
        let remedy = "deploy the region's stack, or name the restored table with `--table`: docs/restore.md";
        return Judged::failed(message, remedy);
    }
    Judged::failed(
        message,
        format!(
            "name a table of `aws dynamodb list-tables --region {region}` with `--table`, or leave `--table` out for \
             `{installation}`; to make `{table}` by a restore: docs/restore.md"
        ),
    )
}

/// Compares an entry with EKS's description, where there is one.
fn agrees(name: &str, entry: &RegistrationFacts, eks: Option<&EksFacts>) -> Judged {
    let Some(eks) = eks else { return Judged::passed(format!("`{name}` is registered")) };
    if entry.endpoint != eks.endpoint {
        return Judged::failed(
            format!(
                "the cluster's stack has the endpoint `{}`, and EKS `{}`: nodes won't join",
                entry.endpoint, eks.endpoint
            ),
            "deploy the cluster's stack with the `Endpoint` and `CertificateAuthority` of EKS",
        );
    }
    if entry.kubernetes_version != eks.version {
        return Judged::warning(
            format!(
                "the cluster's stack has Kubernetes {}, and EKS {}",
                entry.kubernetes_version, eks.version
            ),
            format!("deploy the cluster's stack with `KubernetesVersion={}`", eks.version),
        );
    }
    Judged::passed(format!("`{name}` is registered with EKS's endpoint and version"))
}

pub(super) fn agent(facts: &DoctorFacts) -> Judged {
    const LOGS: &str = "kubectl logs --namespace tenon-system deployment/tenon-agent";
    reported(facts, |report| {
        let Some(report) = report else {
            return Judged::failed(
                "the agent never reported",
                format!("install its chart, as docs/install.md says; if it is installed: {LOGS}"),
            );
        };
        let age = report.age_seconds;
        if of_the_future(report) {
            Judged::failed(
                format!("the agent dates its report {} s ahead of this machine", age.saturating_neg()),
                "set the clocks of this machine and of the agent's node: functions ignore a report from the future",
            )
        } else if stale(report) {
            Judged::failed(format!("the agent is silent: it reported {age} s ago"), LOGS)
        } else {
            Judged::passed(format!("the agent reported {} s ago", age.max(0)))
        }
    })
}

/// Whether terminations and disruption wait for a person.
pub(super) fn halt(facts: &DoctorFacts) -> Judged {
    registered(facts, |name, cluster| {
        of(&cluster.halt, |halt| match halt {
            Some(reason) => Judged::failed(
                format!("nothing of `{name}` is terminated or disrupted: {reason}"),
                "docs/deploy.md, After a halt, says what to look at before you delete the item `HALT`",
            ),
            None => Judged::passed(format!("`{name}` isn't halted")),
        })
    })
}

fn stale(report: &ReportFacts) -> bool {
    of_the_future(report) || report.age_seconds > SNAPSHOT_STALE_AFTER.as_secs()
}

fn of_the_future(report: &ReportFacts) -> bool {
    report.age_seconds.saturating_neg() > CLOCK_SKEW_MOST.as_secs()
}

/// Judges the report of a registered cluster's agent.
fn reported(facts: &DoctorFacts, judge: impl FnOnce(Option<&ReportFacts>) -> Judged) -> Judged {
    registered(facts, |_, cluster| of(&cluster.report, |report| judge(report.as_ref())))
}

/// Judges a registered cluster, by its name and its facts.
fn registered(facts: &DoctorFacts, judge: impl FnOnce(&str, &ClusterAnswers) -> Judged) -> Judged {
    named(facts, |name, cluster| {
        if no_region(facts) || matches!(cluster.registration, Ok(None)) {
            return Judged::not_applicable(format!("`{name}` isn't registered: see `registration`"));
        }
        judge(name, cluster)
    })
}

/// Two controllers must not have the same NodePools. Only the agent's report tells of pods.
pub(super) fn karpenter(facts: &DoctorFacts) -> Judged {
    const LIST: &str = "kubectl get deployments -A -l app.kubernetes.io/name=karpenter";
    named(facts, |_, cluster| {
        of(&cluster.report, |report| {
            let live = report.as_ref().and_then(|report| Some((report.karpenter_pods.first()?, report)));
            if let Some(((namespace, pod), report)) = live {
                return Judged::failed(
                    format!(
                        "Karpenter runs (pod `{namespace}/{pod}`): it and Tenon both launch nodes for the cluster's \
                         {} NodePools",
                        report.node_pools
                    ),
                    stop_command(namespace),
                );
            }
            if report.as_ref().is_some_and(|report| !stale(report)) {
                return Judged::passed("the agent reports no pod of Karpenter");
            }
            Judged::unknown(
                "no fresh report of the agent tells whether Karpenter runs",
                format!("`{LIST}` must list none with replicas"),
            )
        })
    })
}

pub(super) fn dead_letters(facts: &DoctorFacts) -> Judged {
    if no_region(facts) {
        return Judged::not_applicable("the region's stack makes the queues, and isn't deployed");
    }
    of(&facts.dead_letters, |queues| {
        let full: Vec<String> = queues
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, n)| format!("`{name}` ({n})"))
            .collect();
        match (full.is_empty(), queues.len()) {
            (false, _) => Judged::failed(
                format!("messages in {}", full.join(", ")),
                "docs/deploy.md, Dead letters, says what each queue holds and what to do then",
            ),
            (true, 0) => Judged::unknown(
                format!("no dead-letter queue of `{}` is listed", facts.scope.installation),
                "check `--installation`, and the resources of the region's stack",
            ),
            (true, count) => Judged::passed(format!("{count} dead-letter queues are empty")),
        }
    })
}
