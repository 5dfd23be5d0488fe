//! A cluster's identifier in ARC.

use tenon_domain::id::{ClusterName, Region};

/// The ARN of an EKS cluster, by which ARC manages it.
#[must_use]
pub fn cluster_arn(region: &Region, account: &str, cluster: &ClusterName) -> String {
    format!("arn:{}:eks:{region}:{account}:cluster/{cluster}", partition(region))
}

/// The partition of a region ("Amazon Resource Names", read November 2026).
#[must_use]
pub fn partition(region: &Region) -> &'static str {
    let partitions = [
        ("cn-", "aws-cn"),
        ("us-gov-", "aws-us-gov"),
        ("us-iso-", "aws-iso"),
        ("us-isob-", "aws-iso-b"),
        ("eu-isoe-", "aws-iso-e"),
        ("us-isof-", "aws-iso-f"),
        ("eusc-", "aws-eusc"),
    ];
    let of = partitions.into_iter().find(|(prefix, _)| region.as_str().starts_with(prefix));
    of.map_or("aws", |(_, partition)| partition)
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
