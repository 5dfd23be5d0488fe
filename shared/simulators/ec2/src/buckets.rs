//! Request throttling: EC2's token buckets of an account and region.
//!
//! Decides whether a call gets a token. Sizes and refills are those of "Request throttling for the Amazon EC2 API"
//! (read November 2026). That table lists no bucket for CreateFleet, so it takes from the bucket of mutating calls,
//! without resource tokens. A dry run costs as much as its call.
//!
//! GetParameters has the 40 a second of "AWS Systems Manager endpoints and quotas", Parameter Store, "Max throughput"
//! (default throughput). IAM has token buckets without published numbers ("How to monitor and query IAM resources at
//! scale - Part 2", AWS Security Blog); 20 a second is the twin's own assumption.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;

use super::call::Call;

/// Whether EC2's throttling is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throttling {
    /// It is.
    Enforced,
    /// It isn't: for tests that aren't about it.
    Off,
}

/// Whether a describing call narrows its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Narrowing {
    /// By a filter or by pages.
    FilteredOrPaged,
    /// Not at all: for some calls a smaller bucket.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallBucket {
    Describe,
    DescribeUnfiltered,
    Mutating,
    RunInstances,
    RunInstancesResources,
    TerminateInstances,
    TerminateInstancesResources,
    CreateTags,
    Parameters,
    InstanceProfiles,
}

impl CallBucket {
    /// Its size, and its refill each second.
    const fn size_and_refill(self) -> (u64, u64) {
        match self {
            Self::Describe => (100, 20),
            Self::DescribeUnfiltered => (50, 10),
            Self::Mutating => (50, 5),
            Self::RunInstances => (5, 2),
            Self::RunInstancesResources => (1000, 2),
            Self::TerminateInstances => (100, 5),
            Self::TerminateInstancesResources => (1000, 20),
            Self::CreateTags => (100, 10),
            Self::Parameters => (40, 40),
            Self::InstanceProfiles => (20, 20),
        }
    }
}

/// The tokens of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) narrowing: Narrowing,
    /// Instances that it acts on, where those are counted.
    pub(super) resources: usize,
}

impl Cost {
    pub(super) const PLAIN: Self = Self { narrowing: Narrowing::FilteredOrPaged, resources: 0 };
}

/// The buckets, in thousandths of a token; an unused one is full.
#[derive(Debug, Default)]
pub(super) struct CallBuckets {
    levels: BTreeMap<CallBucket, (Timestamp, u64)>,
}

impl CallBuckets {
    /// Takes a call's tokens, all or none.
    pub(super) fn take(&mut self, call: Call, cost: Cost, now: Timestamp) -> Result<(), ()> {
        let wanted = tokens(call, cost);
        let mut left = Vec::new();
        for (bucket, count) in wanted {
            let level = self.level(bucket, now).checked_sub(count.saturating_mul(1000)).ok_or(())?;
            left.push((bucket, level));
        }
        for (bucket, level) in left {
            self.levels.insert(bucket, (now, level));
        }
        Ok(())
    }

    fn level(&self, bucket: CallBucket, now: Timestamp) -> u64 {
        let (size, refill) = bucket.size_and_refill();
        let Some((at, level)) = self.levels.get(&bucket) else { return size * 1000 };
        let elapsed = u64::try_from(now.duration_since(*at).as_millis()).unwrap_or(0);
        level.saturating_add(elapsed.saturating_mul(refill)).min(size * 1000)
    }
}

fn tokens(call: Call, cost: Cost) -> Vec<(CallBucket, u64)> {
    let resources = u64::try_from(cost.resources).unwrap_or(u64::MAX);
    match call {
        Call::DescribeInstances | Call::DescribeSecurityGroups if cost.narrowing == Narrowing::None => {
            vec![(CallBucket::DescribeUnfiltered, 1)]
        }
        Call::DescribeInstanceTypes
        | Call::DescribeInstanceTypeOfferings
        | Call::DescribeAvailabilityZones
        | Call::DescribeSpotPriceHistory
        | Call::DescribeImages
        | Call::DescribeSubnets
        | Call::DescribeSecurityGroups
        | Call::DescribeSnapshots
        | Call::DescribeCapacityReservations
        | Call::DescribePlacementGroups
        | Call::DescribeLaunchTemplates
        | Call::DescribeInstanceStatus
        | Call::GetConsoleOutput
        | Call::DescribeInstances => vec![(CallBucket::Describe, 1)],
        Call::CreateLaunchTemplate | Call::DeleteLaunchTemplate | Call::CreateFleet => {
            vec![(CallBucket::Mutating, 1)]
        }
        Call::RunInstances => {
            vec![(CallBucket::RunInstances, 1), (CallBucket::RunInstancesResources, resources)]
        }
        Call::TerminateInstances => {
            vec![(CallBucket::TerminateInstances, 1), (CallBucket::TerminateInstancesResources, resources)]
        }
        Call::CreateTags => vec![(CallBucket::CreateTags, 1)],
        Call::GetParameters => vec![(CallBucket::Parameters, 1)],
        Call::GetInstanceProfile => vec![(CallBucket::InstanceProfiles, 1)],
        // Other services, with limits of their own that the twin doesn't model.
        Call::GetProducts
        | Call::GetManagedResource
        | Call::DecodeAuthorizationMessage
        | Call::AssumeRole => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_767_225_600_000 + millis).unwrap()
    }

    #[test]
    fn a_bucket_empties_and_fills_again_at_its_rate() {
        let mut buckets = CallBuckets::default();
        for n in 0..50 {
            assert_eq!(buckets.take(Call::CreateFleet, Cost::PLAIN, at(0)), Ok(()), "{n}");
        }
        assert_eq!(buckets.take(Call::CreateFleet, Cost::PLAIN, at(199)), Err(()));
        assert_eq!(buckets.take(Call::CreateFleet, Cost::PLAIN, at(200)), Ok(()));
        assert_eq!(buckets.take(Call::CreateFleet, Cost::PLAIN, at(200)), Err(()));
        assert_eq!(buckets.take(Call::DescribeImages, Cost::PLAIN, at(200)), Ok(()));
    }

    #[test]
    fn instances_cost_resource_tokens_and_a_refusal_takes_nothing() {
        let mut buckets = CallBuckets::default();
        let of = |resources| Cost { resources, ..Cost::PLAIN };
        assert_eq!(buckets.take(Call::TerminateInstances, of(1000), at(0)), Ok(()));
        assert_eq!(buckets.take(Call::TerminateInstances, of(21), at(1000)), Err(()));
        assert_eq!(buckets.take(Call::TerminateInstances, of(20), at(1000)), Ok(()));
    }

    #[test]
    fn an_unfiltered_describe_has_the_smaller_bucket() {
        let mut buckets = CallBuckets::default();
        let bare = Cost { narrowing: Narrowing::None, resources: 0 };
        let mut taken = 0;
        while buckets.take(Call::DescribeInstances, bare, at(0)).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 50);
    }
}
