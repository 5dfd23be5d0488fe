//! Checks of the account and the region, which no installation needs to exist for.

use super::{Judged, of};
use crate::doctor::facts::{Answer, CallerFacts, DoctorFacts};

/// The vCPUs that docs/install.md asks for: 4 of the system nodes, 4 of a first node.
const VCPUS_ENOUGH: f64 = 8.0;
/// What a request for more asks for: some more nodes.
const VCPUS_ASKED: u32 = 64;

/// A quota of running instances. Source: the Service Quotas console, Amazon EC2, read 2026-11.
pub(super) struct VcpuQuota {
    code: &'static str,
    what: &'static str,
    answer: fn(&DoctorFacts) -> &Answer<Option<f64>>,
}

/// Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances.
pub(super) const ON_DEMAND: VcpuQuota = VcpuQuota {
    code: "L-1216C47A",
    what: "standard on-demand instances",
    answer: |facts| &facts.on_demand_vcpus,
};
/// All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests.
pub(super) const SPOT: VcpuQuota =
    VcpuQuota { code: "L-34B43A08", what: "standard spot instances", answer: |facts| &facts.spot_vcpus };

pub(super) fn credentials(facts: &DoctorFacts) -> Judged {
    of(&facts.caller, |caller| match caller {
        CallerFacts::Nobody { why } => {
            Judged::failed(why, "sign in with `aws sso login`, or name a profile by `AWS_PROFILE`")
        }
        CallerFacts::Refused => {
            let region = &facts.scope.region;
            let message = format!(
                "STS in `{region}` refuses the credentials: they are expired or unknown, or the region isn't enabled"
            );
            Judged::failed(message, format!("aws sts get-caller-identity --region {region}"))
        }
        CallerFacts::Known { account, arn } => Judged::passed(format!("account {account} as `{arn}`")),
    })
}

pub(super) fn region(facts: &DoctorFacts) -> Judged {
    let region = &facts.scope.region;
    of(&facts.region, |status| match status.as_deref() {
        Some(status @ ("opted-in" | "opt-in-not-required")) => {
            Judged::passed(format!("`{region}` is enabled ({status})"))
        }
        Some(status) => Judged::failed(
            format!("`{region}` isn't enabled in this account ({status})"),
            format!("aws account enable-region --region-name {region}"),
        ),
        None => Judged::failed(
            format!("EC2 knows no region `{region}`"),
            "give another region with `--region` or `AWS_REGION`",
        ),
    })
}

pub(super) fn quota(facts: &DoctorFacts, quota: &VcpuQuota) -> Judged {
    let VcpuQuota { code, what, answer } = quota;
    of(answer(facts), |vcpus| match vcpus {
        Some(vcpus) if *vcpus >= VCPUS_ENOUGH => Judged::passed(format!("{vcpus} vCPUs of {what}")),
        Some(vcpus) => Judged::warning(
            format!("only {vcpus} vCPUs of {what}: the system nodes and a first node need {VCPUS_ENOUGH}"),
            format!(
                "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code} \
                 --desired-value {VCPUS_ASKED} --region {}",
                facts.scope.region
            ),
        ),
        None => Judged::unknown(
            format!("Service Quotas tells no value of {what}"),
            format!("look for `{code}` in the console of Service Quotas"),
        ),
    })
}

pub(super) fn spot_role(facts: &DoctorFacts) -> Judged {
    const REMEDY: &str = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com";
    let report = facts.cluster.as_ref().and_then(|cluster| cluster.report.as_ref().ok()?.as_ref());
    of(&facts.spot_role, |role| match (role, report) {
        (Some(arn), _) => Judged::passed(format!("`{arn}`")),
        (None, Some(report)) if report.node_pools > 0 && report.spot_pools.is_empty() => {
            Judged::not_applicable("no NodePool allows spot")
        }
        (None, Some(report)) if !report.spot_pools.is_empty() => Judged::failed(
            format!(
                "the account has no role `AWSServiceRoleForEC2Spot`, which launches of NodePool `{}` need",
                report.spot_pools.join("`, `")
            ),
            REMEDY,
        ),
        (None, Some(_) | None) => Judged::warning(
            "the account has no role `AWSServiceRoleForEC2Spot`: NodePools with spot need it",
            REMEDY,
        ),
    })
}
