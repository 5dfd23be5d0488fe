//! AWS's partitions: the one that a region is of, and the names that differ between them.
//!
//! Decides them from the region's prefix. A partition that isn't listed here is taken for the commercial one.

use crate::id::Region;

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwsPartition {
    /// Its name in ARNs.
    pub name: &'static str,
    /// The end of its services' host names: `AWS::URLSuffix` in CloudFormation.
    pub url_suffix: &'static str,
}

/// Of regions without another prefix.
const COMMERCIAL: AwsPartition = AwsPartition { name: "aws", url_suffix: "amazonaws.com" };
/// Partitions by the prefix of their regions. Sources: "Amazon Resource Names" (IAM User Guide) and the partitions of
/// the AWS SDKs' endpoint rules, read 2026-11.
const PARTITIONS: [(&str, AwsPartition); 7] = [
    ("cn-", AwsPartition { name: "aws-cn", url_suffix: "amazonaws.com.cn" }),
    ("us-gov-", AwsPartition { name: "aws-us-gov", url_suffix: "amazonaws.com" }),
    ("us-iso-", AwsPartition { name: "aws-iso", url_suffix: "c2s.ic.gov" }),
    ("us-isob-", AwsPartition { name: "aws-iso-b", url_suffix: "sc2s.sgov.gov" }),
    ("eu-isoe-", AwsPartition { name: "aws-iso-e", url_suffix: "cloud.adc-e.uk" }),
    ("us-isof-", AwsPartition { name: "aws-iso-f", url_suffix: "csp.hci.ic.gov" }),
    ("eusc-", AwsPartition { name: "aws-eusc", url_suffix: "amazonaws.eu" }),
];

impl AwsPartition {
    /// The partition of a region.
    #[must_use]
    pub fn of(region: &Region) -> Self {
        let of = PARTITIONS.into_iter().find(|(prefix, _)| region.as_str().starts_with(prefix));
        of.map_or(COMMERCIAL, |(_, partition)| partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(region: &str, name: &str, url_suffix: &str) {
        let found = AwsPartition::of(&Region::parse(region).unwrap());
        let found = (found.name, found.url_suffix);
        assert_eq!(found, (name, url_suffix), "{region}");
    }

    #[test]
    fn a_region_is_of_one_partition() {
        check("us-east-1", "aws", "amazonaws.com");
        check("eu-central-1", "aws", "amazonaws.com");
        check("cn-north-1", "aws-cn", "amazonaws.com.cn");
        check("cn-northwest-1", "aws-cn", "amazonaws.com.cn");
        check("us-gov-west-1", "aws-us-gov", "amazonaws.com");
        check("us-iso-east-1", "aws-iso", "c2s.ic.gov");
        check("us-isob-east-1", "aws-iso-b", "sc2s.sgov.gov");
        check("eusc-de-east-1", "aws-eusc", "amazonaws.eu");
    }
}
