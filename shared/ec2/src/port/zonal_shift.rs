//! A cluster's identifier in ARC.

use tenon_domain::id::{ClusterName, Region};
use tenon_domain::partition::AwsPartition;

/// The ARN of an EKS cluster, by which ARC manages it.
#[must_use]
pub fn cluster_arn(region: &Region, account: &str, cluster: &ClusterName) -> String {
    format!("arn:{}:eks:{region}:{account}:cluster/{cluster}", AwsPartition::of(region).name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(region: &str, expected: &str) {
        let cluster = ClusterName::parse("prod").unwrap();
        assert_eq!(cluster_arn(&Region::parse(region).unwrap(), "111122223333", &cluster), expected);
    }

    #[test]
    fn a_clusters_arn_is_of_its_regions_partition() {
        check("us-east-1", "arn:aws:eks:us-east-1:111122223333:cluster/prod");
        check("cn-north-1", "arn:aws-cn:eks:cn-north-1:111122223333:cluster/prod");
        check("us-gov-west-1", "arn:aws-us-gov:eks:us-gov-west-1:111122223333:cluster/prod");
    }
}
