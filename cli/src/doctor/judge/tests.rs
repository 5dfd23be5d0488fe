//! Each check with each of its results: what differs from an account where all is well, the status, and a part of what is
//! printed.

mod cluster;

use std::collections::BTreeMap;

use super::*;
use crate::doctor::facts::{
    AutoMode, CallerFacts, ClassFacts, ClusterAnswers, DoctorScope, EksFacts, EntryFacts, RegistrationFacts,
    ReportFacts, StackFacts, TaggedFacts,
};

/// A change of the facts.
type Change = fn(&mut DoctorFacts);

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([("karpenter.sh/discovery".to_owned(), "prod".to_owned())])
}

fn stack(name: &str, parameters: &[(&str, &str)]) -> StackFacts {
    let parameters = [("Installation", "tenon")].iter().chain(parameters);
    StackFacts {
        name: name.to_owned(),
        status: "CREATE_COMPLETE".to_owned(),
        parameters: parameters.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

fn entry(principal: &str) -> EntryFacts {
    EntryFacts { principal: principal.to_owned(), entry_type: Ok("EC2_LINUX".to_owned()) }
}

fn cluster() -> ClusterAnswers {
    let found = |id: &str| TaggedFacts { tags: tags(), ids: vec![id.to_owned()] };
    ClusterAnswers {
        eks: Ok(Some(EksFacts {
            version: "1.35".to_owned(),
            status: "ACTIVE".to_owned(),
            endpoint: "https://a.eks".to_owned(),
            authentication_mode: Some("API".to_owned()),
            auto_mode: AutoMode::Off,
        })),
        addon: Ok(Some("ACTIVE".to_owned())),
        oidc_provider: Ok(None),
        entries: Ok(vec![
            entry("arn:aws:iam::111122223333:role/admin"),
            entry("arn:aws:iam::111122223333:role/team/prod-node"),
        ]),
        registration: Ok(Some(RegistrationFacts {
            endpoint: "https://a.eks".to_owned(),
            kubernetes_version: "1.35".to_owned(),
            node_roles: vec!["gpu-node".to_owned(), "prod-node".to_owned()],
            subnet_tags: tags(),
            security_group_tags: tags(),
        })),
        report: Ok(Some(ReportFacts {
            age_seconds: 12,
            roles: vec!["prod-node".to_owned()],
            node_pools: 1,
            spot_pools: vec!["default".to_owned()],
            karpenter_pods: Vec::new(),
        })),
        halt: Ok(None),
        classes: Ok(vec![ClassFacts { name: "default".to_owned(), subnets: 1, security_groups: 1 }]),
        subnets: Ok(found("subnet-1")),
        security_groups: Ok(found("sg-1")),
    }
}

fn well() -> DoctorFacts {
    DoctorFacts {
        scope: DoctorScope {
            region: "us-east-1".to_owned(),
            installation: "tenon".to_owned(),
            table: "tenon".to_owned(),
            cluster: Some("prod".to_owned()),
        },
        caller: Ok(CallerFacts::Known {
            account: "111122223333".to_owned(),
            arn: "arn:aws:iam::111122223333:user/a".to_owned(),
        }),
        region: Ok(Some("opt-in-not-required".to_owned())),
        on_demand_vcpus: Ok(Some(256.0)),
        spot_vcpus: Ok(Some(256.0)),
        spot_role: Ok(Some("arn:aws:iam::111122223333:role/spot".to_owned())),
        stacks: Ok(vec![
            stack("tenon", &[("LogRetentionDays", "30")]),
            stack("other", &[("MaxNodes", "9"), ("Cluster", "other")]),
            stack("tenon-prod", &[("MaxNodes", "9"), ("Cluster", "prod"), ("OidcProvider", "")]),
        ]),
        registered: Ok(Some(vec!["prod".to_owned()])),
        dead_letters: Ok(BTreeMap::from([("tenon-execution-dead-letters".to_owned(), 0)])),
        cluster: Some(cluster()),
    }
}

fn of_check(facts: &DoctorFacts, check: DoctorCheck) -> Judged {
    judge(facts).into_iter().find(|(one, _)| *one == check).unwrap().1
}

#[track_caller]
fn check(check: DoctorCheck, rows: &[(Change, &str, &str)]) {
    for (n, (change, status, part)) in rows.iter().enumerate() {
        let mut facts = well();
        change(&mut facts);
        let judged = of_check(&facts, check);
        assert_eq!(judged.status(), *status, "row {n}: {judged:?}");
        let text = format!("{} {}", judged.message(), judged.remedy().unwrap_or_default());
        assert!(text.contains(part), "row {n}: `{part}` isn't in `{text}`");
    }
}

fn prod(facts: &mut DoctorFacts) -> &mut ClusterAnswers {
    facts.cluster.as_mut().unwrap()
}

fn eks(facts: &mut DoctorFacts) -> &mut EksFacts {
    prod(facts).eks.as_mut().unwrap().as_mut().unwrap()
}

fn report(facts: &mut DoctorFacts) -> &mut ReportFacts {
    prod(facts).report.as_mut().unwrap().as_mut().unwrap()
}

fn status_of(facts: &mut DoctorFacts, n: usize, status: &str) {
    facts.stacks.as_mut().unwrap()[n].status = status.to_owned();
}

fn without_stacks(facts: &mut DoctorFacts) {
    facts.stacks = Ok(Vec::new());
    facts.registered = Ok(None);
    prod(facts).registration = Ok(None);
    prod(facts).report = Ok(None);
}

/// `--table` names the table from before the restore.
fn with_restored_table(facts: &mut DoctorFacts) {
    let parameters = &mut facts.stacks.as_mut().unwrap()[0].parameters;
    parameters.insert("TableSuffix".to_owned(), "-restored".to_owned());
}

fn restored_away(facts: &mut DoctorFacts) {
    facts.scope.table = "tenon-restored".to_owned();
    facts.registered = Ok(None);
}

const DENIED: Unanswered = Unanswered::Denied { right: "a:B" };

#[test]
fn all_is_well() {
    let found = judge(&well());
    let other: Vec<_> = found.iter().filter(|(_, judged)| judged.status() != "passed").collect();
    assert!(other.is_empty(), "{other:?}");
    assert_eq!(found.len(), 18);
}

#[test]
fn without_credentials_one_check_fails_and_the_others_are_unknown() {
    let facts = DoctorFacts::without_credentials(well().scope, "no AWS credentials: none".to_owned());
    for (check, judged) in judge(&facts) {
        let expected = if check == DoctorCheck::Credentials { "failed" } else { "unknown" };
        assert_eq!(judged.status(), expected, "{}: {judged:?}", check.as_str());
    }
}

#[test]
fn without_a_cluster_its_checks_are_not_applicable() {
    let mut facts = well();
    (facts.scope.cluster, facts.cluster) = (None, None);
    facts.registered = Ok(Some(vec!["a".to_owned(), "b".to_owned()]));
    let found = judge(&facts);
    let of_cluster: Vec<_> = found.iter().filter(|(_, judged)| judged.status() == "notApplicable").collect();
    assert_eq!(of_cluster.len(), 11, "{of_cluster:?}");
    assert!(of_cluster.iter().all(|(_, judged)| judged.message().ends_with("`--cluster`: `a`, `b`")));
}

#[test]
fn why_there_is_no_answer_is_told() {
    check(
        DoctorCheck::DeadLetters,
        &[
            (|facts| facts.dead_letters = Err(DENIED), "unknown", "allow `a:B`"),
            (|facts| facts.dead_letters = Err(Unanswered::Late { right: "a:B" }), "unknown", "in time"),
            (
                |facts| {
                    facts.dead_letters = Err(Unanswered::Failed { right: "a:B", why: "no route".to_owned() })
                },
                "unknown",
                "`a:B` failed: no route",
            ),
        ],
    );
}

#[test]
fn of_the_account() {
    check(
        DoctorCheck::Credentials,
        &[
            (|_| {}, "passed", "account 111122223333"),
            (|facts| facts.caller = Ok(CallerFacts::Refused), "failed", "aws sts get-caller-identity"),
            (|facts| facts.caller = Err(DENIED), "unknown", "a:B"),
        ],
    );
    check(
        DoctorCheck::Region,
        &[
            (|facts| facts.region = Ok(Some("opted-in".to_owned())), "passed", "`us-east-1`"),
            (
                |facts| facts.region = Ok(Some("not-opted-in".to_owned())),
                "failed",
                "aws account enable-region --region-name us-east-1",
            ),
            (|facts| facts.region = Ok(None), "failed", "--region"),
            (|facts| facts.region = Err(DENIED), "unknown", "a:B"),
        ],
    );
    check(
        DoctorCheck::OnDemandQuota,
        &[
            (|_| {}, "passed", "256 vCPUs of standard on-demand"),
            (|facts| facts.on_demand_vcpus = Ok(Some(5.0)), "warning", "--quota-code L-1216C47A"),
            (|facts| facts.on_demand_vcpus = Ok(None), "unknown", "L-1216C47A"),
            (|facts| facts.on_demand_vcpus = Err(DENIED), "unknown", "a:B"),
        ],
    );
    check(
        DoctorCheck::SpotQuota,
        &[
            (|_| {}, "passed", "256 vCPUs of standard spot"),
            (|facts| facts.spot_vcpus = Ok(Some(5.0)), "warning", "--quota-code L-34B43A08"),
            (|facts| facts.spot_vcpus = Ok(None), "unknown", "L-34B43A08"),
        ],
    );
}

#[test]
fn of_the_role_of_spot() {
    check(
        DoctorCheck::SpotRole,
        &[
            (|_| {}, "passed", "role/spot"),
            (|facts| facts.spot_role = Ok(None), "failed", "aws iam create-service-linked-role"),
            (
                |facts| {
                    facts.spot_role = Ok(None);
                    report(facts).spot_pools.clear();
                },
                "notApplicable",
                "no NodePool allows spot",
            ),
            (
                |facts| {
                    facts.spot_role = Ok(None);
                    prod(facts).report = Ok(None);
                },
                "warning",
                "aws iam create-service-linked-role",
            ),
            (|facts| facts.spot_role = Err(DENIED), "unknown", "a:B"),
        ],
    );
}

#[test]
fn of_the_stacks() {
    check(
        DoctorCheck::RegionStack,
        &[
            (|_| {}, "passed", "stack `tenon` is CREATE_COMPLETE"),
            (without_stacks, "failed", "sam deploy --stack-name tenon"),
            (|facts| status_of(facts, 0, "ROLLBACK_COMPLETE"), "failed", "describe-stack-events"),
            (|facts| status_of(facts, 0, "CREATE_IN_PROGRESS"), "failed", "stack-create-complete"),
            (|facts| status_of(facts, 0, "UPDATE_IN_PROGRESS"), "warning", "stack-update-complete"),
            (|facts| status_of(facts, 0, "UPDATE_ROLLBACK_COMPLETE"), "warning", "the last update failed"),
            (|facts| facts.stacks = Err(DENIED), "unknown", "a:B"),
            (with_restored_table, "warning", "has the table `tenon-restored`, and `tenon` was asked"),
        ],
    );
    check(
        DoctorCheck::ClusterStack,
        &[
            (|_| {}, "passed", "stack `tenon-prod`"),
            (without_stacks, "failed", "infra/cluster.yaml as `tenon-prod`"),
            (|facts| status_of(facts, 2, "DELETE_FAILED"), "failed", "--stack-name tenon-prod"),
            (|facts| facts.stacks = Err(DENIED), "unknown", "a:B"),
        ],
    );
}

#[test]
fn of_the_registration() {
    check(
        DoctorCheck::Registration,
        &[
            (|_| {}, "passed", "`prod` is registered"),
            (|facts| prod(facts).eks = Err(DENIED), "passed", "`prod` is registered"),
            (|facts| eks(facts).endpoint = "https://b.eks".to_owned(), "failed", "nodes won't join"),
            (|facts| eks(facts).version = "1.36".to_owned(), "warning", "KubernetesVersion=1.36"),
            (|facts| prod(facts).registration = Ok(None), "failed", "/aws/lambda/tenon-registry"),
            (|facts| facts.registered = Ok(None), "failed", "no table `tenon` in `us-east-1`"),
            (|facts| facts.registered = Ok(None), "failed", "deploy the region's stack"),
            (restored_away, "failed", "no table `tenon-restored` in `us-east-1`"),
            (restored_away, "failed", "leave `--table` out for `tenon`"),
            (|facts| prod(facts).registration = Err(DENIED), "unknown", "a:B"),
            (without_stacks, "notApplicable", "isn't deployed"),
            (
                |facts| {
                    facts.stacks.as_mut().unwrap().truncate(1);
                    prod(facts).registration = Ok(None);
                },
                "notApplicable",
                "the cluster's stack registers it",
            ),
        ],
    );
}

#[test]
fn of_the_agent_and_karpenter() {
    check(
        DoctorCheck::Agent,
        &[
            (|_| {}, "passed", "12 s ago"),
            (|facts| report(facts).age_seconds = 91, "failed", "kubectl logs --namespace tenon-system"),
            (|facts| report(facts).age_seconds = -15, "passed", "0 s ago"),
            (|facts| report(facts).age_seconds = -16, "failed", "16 s ahead of this machine"),
            (|facts| prod(facts).report = Ok(None), "failed", "never reported"),
            (|facts| prod(facts).report = Err(DENIED), "unknown", "a:B"),
            (without_stacks, "notApplicable", "isn't registered"),
        ],
    );
    check(
        DoctorCheck::Karpenter,
        &[
            (|_| {}, "passed", "no pod of Karpenter"),
            (
                |facts| {
                    report(facts).karpenter_pods = vec![("kube-system".to_owned(), "karpenter-1".to_owned())]
                },
                "failed",
                "--namespace kube-system --replicas 0",
            ),
            (|facts| report(facts).age_seconds = 91, "unknown", "kubectl get deployments -A"),
            (|facts| report(facts).age_seconds = -16, "unknown", "kubectl get deployments -A"),
            (|facts| prod(facts).report = Ok(None), "unknown", "kubectl get deployments -A"),
            (|facts| prod(facts).report = Err(DENIED), "unknown", "a:B"),
        ],
    );
}

#[test]
fn of_a_halt() {
    check(
        DoctorCheck::Halt,
        &[
            (|_| {}, "passed", "`prod` isn't halted"),
            (
                |facts| prod(facts).halt = Ok(Some("3 instances have no NodeClaim".to_owned())),
                "failed",
                "3 instances have no NodeClaim docs/deploy.md, After a halt",
            ),
            (|facts| prod(facts).halt = Err(DENIED), "unknown", "a:B"),
            (without_stacks, "notApplicable", "isn't registered"),
        ],
    );
}

#[test]
fn of_dead_letters() {
    check(
        DoctorCheck::DeadLetters,
        &[
            (|_| {}, "passed", "1 dead-letter queues are empty"),
            (
                |facts| {
                    let queues = facts.dead_letters.as_mut().unwrap();
                    queues.insert("tenon-x-dead-letters".to_owned(), 2);
                },
                "failed",
                "`tenon-x-dead-letters` (2)",
            ),
            (|facts| facts.dead_letters = Ok(BTreeMap::new()), "unknown", "--installation"),
            (without_stacks, "notApplicable", "isn't deployed"),
        ],
    );
}
