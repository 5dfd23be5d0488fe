//! Questions about the account: who asks, the region, quotas, roles.

use aws_types::SdkConfig;
use tenon_domain::id::Region;

use super::{Answer, found};
use crate::doctor::facts::CallerFacts;

/// The quota of standard on-demand instances, in vCPUs.
pub(super) const ON_DEMAND: &str = "L-1216C47A";
/// The quota of standard spot instances, in vCPUs.
pub(super) const SPOT: &str = "L-34B43A08";
/// Codes of credentials that STS doesn't accept. A region that isn't enabled doesn't know any.
const REFUSED: [&str; 6] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "AuthFailure",
];

pub(super) async fn caller(config: &SdkConfig) -> Answer<CallerFacts> {
    let sent = aws_sdk_sts::Client::new(config).get_caller_identity().send().await;
    Ok(match found("sts:GetCallerIdentity", &REFUSED, sent)? {
        None => CallerFacts::Refused,
        Some(caller) => CallerFacts::Known {
            account: caller.account().unwrap_or_default().to_owned(),
            arn: caller.arn().unwrap_or_default().to_owned(),
        },
    })
}

pub(super) async fn region(ec2: &aws_sdk_ec2::Client, region: &Region) -> Answer<Option<String>> {
    let sent = ec2.describe_regions().region_names(region.as_str()).all_regions(true).send().await;
    let answer = found("ec2:DescribeRegions", &["InvalidParameterValue"], sent)?;
    let regions = answer.map(|answer| answer.regions.unwrap_or_default()).unwrap_or_default();
    let ours = regions.into_iter().find(|one| one.region_name() == Some(region.as_str()));
    Ok(ours.map(|one| one.opt_in_status.unwrap_or_else(|| "opt-in-not-required".to_owned())))
}

/// The value of a quota of EC2.
pub(super) async fn vcpus(quotas: &aws_sdk_servicequotas::Client, code: &str) -> Answer<Option<f64>> {
    let sent = quotas.get_service_quota().service_code("ec2").quota_code(code).send().await;
    let answer = found("servicequotas:GetServiceQuota", &["NoSuchResourceException"], sent)?;
    Ok(answer.and_then(|answer| answer.quota?.value))
}

pub(super) async fn spot_role(iam: &aws_sdk_iam::Client) -> Answer<Option<String>> {
    let sent = iam.get_role().role_name("AWSServiceRoleForEC2Spot").send().await;
    let answer = found("iam:GetRole", &["NoSuchEntity", "NoSuchEntityException"], sent)?;
    Ok(answer.and_then(|answer| Some(answer.role?.arn)))
}

/// The provider, if IAM has it. Nothing is asked without an ARN.
pub(super) async fn oidc_provider(iam: &aws_sdk_iam::Client, arn: Option<String>) -> Answer<Option<String>> {
    let Some(arn) = arn else { return Ok(None) };
    let sent = iam.get_open_id_connect_provider().open_id_connect_provider_arn(&arn).send().await;
    let answer = found("iam:GetOpenIDConnectProvider", &["NoSuchEntity", "NoSuchEntityException"], sent)?;
    Ok(answer.map(|_| arn))
}
