//! The role by which a cluster's nodes are launched.
//!
//! Decides which roles can be one: those of this account under the path that the provisioner's role may take. IAM
//! decides whose launches a role allows.

use tenon_domain::partition::AwsPartition;
use tenon_runtime::Installation;

use super::node_roles::{LONGEST_ROLE, is_iam_name};
use super::reader::PropertyReader;

impl PropertyReader<'_> {
    /// The launch role's ARN; a stack of an earlier release has none.
    pub(super) fn launch_role(&mut self, installation: &Installation) -> Option<String> {
        let Installation { id, region, account, .. } = installation;
        let partition = AwsPartition::of(region).name;
        let path = format!("arn:{partition}:iam::{account}:role/tenon/{id}/{region}/");
        let is_one = |arn: &str| arn.strip_prefix(&path).is_some_and(|name| is_iam_name(name, LONGEST_ROLE));
        let expected = format!("a role's ARN, `{path}…`");
        self.parsed_if("LaunchRole", &expected, |arn| is_one(arn).then(|| arn.to_owned()))
    }
}
