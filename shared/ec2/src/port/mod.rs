//! The ports to EC2 and to the services beside it: Tenon's requests, in AWS's words and plain types.
//!
//! Decides the form of requests and answers. Implementations of the ports ([`Ec2Ports`]) are the region's twin and the
//! adapters to AWS. Unbounded lists are paged; a page's token is opaque.

mod fleet;
mod image;
mod instance;
mod instance_profile;
mod instance_status;
mod launch_role;
mod network;
mod offering;
mod parameter;
mod reservation;
mod stored;
mod template;
mod zonal_shift;

use std::future::Future;
use std::sync::Arc;

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::id::InstanceId;
use tenon_domain::zonal_shift::ShiftedZone;

pub use fleet::{
    CreateFleetRequest, DryRunOutcome, FleetInstances, FleetItemError, FleetLaunchTemplate, FleetOverride,
    FleetResult, FleetTags, OnDemandAllocation, RunInstancesProbe, SpotAllocation, TargetCapacityType,
};
pub use image::{
    BootMode, DisabledImages, EnaSupport, Image, ImageArchitecture, ImageFacts, ImageFilter, ImagePlatform,
    ImageState, ImageVolume, RootDeviceType, SnapshotState, VolumeSnapshot,
};
pub use instance::{Instance, InstanceFilter, InstanceState, InstanceStateChange, StateReason};
pub use instance_profile::InstanceProfileFacts;
pub use instance_status::{
    InstanceStatus, InstanceStatusFilter, ScheduledEvent, ScheduledEventCode, StatusCheck,
};
pub use launch_role::{ASSUME_ROLE, LaunchRights, LaunchRole};
pub use network::{PlacementGroup, ResourceFilter, SecurityGroup, Subnet};
pub use offering::{
    AvailabilityZone, LocationType, MALFORMED_ANSWER, NO_PRICING_API, OnDemandPrice, SpotPrice, TypeOffering,
};
pub use parameter::{PARAMETERS_PER_CALL, Parameter, without_selector};
pub use reservation::{CapacityReservation, CapacityReservationFilter, ReservationPreference};
pub use stored::StoredRequestError;
pub use template::{
    BlockDeviceMapping, CreateLaunchTemplate, InstanceMetadataOptions, InstanceProfileSpec, InterfaceKind,
    LaunchTemplate, LaunchTemplateData, LaunchTemplateFilter, MetadataTags, MetadataTokens, Monitoring,
    NetworkInterfaceSpec, PrimaryIpv6,
};
pub use tenon_domain::catalog::describe::InstanceTypeInfo;
pub use zonal_shift::cluster_arn;

use crate::denial::DecodedMessage;
use crate::error::Ec2Error;

/// Tags by key.
pub type Tags = std::collections::BTreeMap<String, String>;

/// The position of the next page; opaque.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageToken(pub String);

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The page's items.
    pub items: Vec<T>,
    /// The position of the next page; `None` on the last page.
    pub next: Option<PageToken>,
}

/// Items by tag: the key must exist, and its value match one of `values` (`*` and `?` are wildcards) if there are
/// any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagFilter {
    /// The tag's key.
    pub key: String,
    /// Patterns for the value; empty matches any value.
    pub values: Vec<String>,
}

impl TagFilter {
    /// Items with this key and value.
    #[must_use]
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), values: vec![value.into()] }
    }

    /// Items with this key.
    #[must_use]
    pub fn exists(key: impl Into<String>) -> Self {
        Self { key: key.into(), values: Vec::new() }
    }

    /// Whether an item with these tags matches.
    #[must_use]
    pub fn matches(&self, tags: &Tags) -> bool {
        tags.get(&self.key).is_some_and(|value| {
            self.values.is_empty() || self.values.iter().any(|v| wildcard_matches(v, value))
        })
    }
}

/// Whether a text matches a pattern of EC2's filters: `*` any text, `?` any character.
#[must_use]
pub fn wildcard_matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    // `reach[i]`: the first i characters of the pattern match the text so far.
    let mut reach = vec![false; pattern.len() + 1];
    let through_stars = |reach: &mut Vec<bool>| {
        for (i, c) in pattern.iter().enumerate() {
            if *c == '*' && reach.get(i).copied().unwrap_or(false) {
                set(reach, i + 1);
            }
        }
    };
    set(&mut reach, 0);
    through_stars(&mut reach);
    for c in text.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for (i, p) in pattern.iter().enumerate() {
            if reach.get(i).copied().unwrap_or(false) {
                if *p == '*' {
                    set(&mut next, i);
                } else if *p == '?' || *p == c {
                    set(&mut next, i + 1);
                }
            }
        }
        through_stars(&mut next);
        reach = next;
    }
    reach.last().copied().unwrap_or(false)
}

fn set(flags: &mut [bool], at: usize) {
    if let Some(flag) = flags.get_mut(at) {
        *flag = true;
    }
}

macro_rules! port {
    ($(#[$doc:meta])* $port:ident of $part:ident: $kind:ident { $($(#[$call_doc:meta])* fn $call:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* }) => {
        $(#[$doc])*
        pub trait $port: Send + Sync {
            $(
                $(#[$call_doc])*
                fn $call(&self, $($arg: $type),*) -> impl Future<Output = Result<$answer, Ec2Error>> + Send;
            )*
        }

        impl<T: $port> $port for &T {
            $(async fn $call(&self, $($arg: $type),*) -> Result<$answer, Ec2Error> { (**self).$call($($arg),*).await })*
        }

        impl<T: $port> $port for Arc<T> {
            $(async fn $call(&self, $($arg: $type),*) -> Result<$answer, Ec2Error> { (**self).$call($($arg),*).await })*
        }

        impl<E, P, Z, S, I, A> $port for Ec2Account<E, P, Z, S, I, A>
        where
            Self: Send + Sync,
            $kind: $port,
        {
            $(async fn $call(&self, $($arg: $type),*) -> Result<$answer, Ec2Error> { self.$part.$call($($arg),*).await })*
        }
    };
}

/// All ports to an account and region, as handlers take them. A new port is added here, in [`Ec2Account`] and in its
/// implementations; handlers' bounds stay.
pub trait Ec2Ports:
    Ec2 + LaunchRights + Pricing + ZonalShift + Parameters + InstanceProfiles + AuthorizationMessages
{
}

impl<T> Ec2Ports for T where
    T: Ec2 + LaunchRights + Pricing + ZonalShift + Parameters + InstanceProfiles + AuthorizationMessages
{
}

/// An account and region, of one implementation for each port. A port that isn't given another implementation has the
/// one of the port before it.
#[derive(Debug, Clone)]
pub struct Ec2Account<E, P = E, Z = P, S = Z, I = S, A = I> {
    /// EC2 of an account and region.
    pub ec2: E,
    /// The region's prices.
    pub pricing: P,
    /// Zonal shifts of its clusters.
    pub zonal_shift: Z,
    /// Parameters of Systems Manager.
    pub parameters: S,
    /// Instance profiles.
    pub instance_profiles: I,
    /// Encoded messages of denials.
    pub authorization_messages: A,
}

impl<E, O: Clone> Ec2Account<E, O> {
    /// EC2 from one implementation, and every other port from another.
    #[must_use]
    pub fn beside(ec2: E, others: O) -> Self {
        Self {
            ec2,
            pricing: others.clone(),
            zonal_shift: others.clone(),
            parameters: others.clone(),
            instance_profiles: others.clone(),
            authorization_messages: others,
        }
    }
}

port! {
    /// The calls to EC2. An implementation makes exactly one request for each call, and doesn't retry.
    ///
    /// A call takes effect when its future is polled; dropping it before that does nothing.
    Ec2 of ec2: E {
        /// Instance types of the region, by name; pages of 100.
        fn describe_instance_types(page: Option<PageToken>) -> Page<InstanceTypeInfo>;
        /// Which type is offered where; pages of 1,000.
        fn describe_instance_type_offerings(location: LocationType, page: Option<PageToken>) -> Page<TypeOffering>;
        /// The region's zones that this account may use, by name.
        fn describe_availability_zones() -> Vec<AvailabilityZone>;
        /// The current spot price of each type and zone (Linux); pages of 1,000.
        fn describe_spot_price_history(page: Option<PageToken>) -> Page<SpotPrice>;
        /// Images by filter, *in every state* unless the filter says otherwise; pages of 1,000.
        fn describe_images(filter: &ImageFilter, page: Option<PageToken>) -> Page<Image>;
        /// Subnets by filter, by id; an unknown id is `NotFound`.
        fn describe_subnets(filter: &ResourceFilter) -> Vec<Subnet>;
        /// Security groups by filter, by id; an unknown id is `NotFound`.
        fn describe_security_groups(filter: &ResourceFilter) -> Vec<SecurityGroup>;
        /// Snapshots of volumes by filter, by id; an unknown id is `NotFound`.
        fn describe_snapshots(filter: &ResourceFilter) -> Vec<VolumeSnapshot>;
        /// Active capacity reservations by filter, by id; an unknown id is `NotFound`.
        fn describe_capacity_reservations(filter: &CapacityReservationFilter) -> Vec<CapacityReservation>;
        /// The available placement groups of that id or name, at most one; an unknown one is `NotFound`.
        fn describe_placement_groups(of: &PlacementGroupSelector) -> Vec<PlacementGroup>;
        /// Makes a launch template; a name in use is `AlreadyExists`.
        fn create_launch_template(template: &CreateLaunchTemplate) -> LaunchTemplate;
        /// Launch templates by name or tag; an unknown name is `NotFound`; pages of 200.
        fn describe_launch_templates(filter: &LaunchTemplateFilter, page: Option<PageToken>) -> Page<LaunchTemplate>;
        /// Deletes a launch template; an unknown name is `NotFound`.
        fn delete_launch_template(name: &str) -> ();
        /// Launches an instant fleet. `Ok` may hold fewer instances than requested, even none: see its errors.
        fn create_fleet(request: &CreateFleetRequest) -> FleetResult;
        /// Whether the caller may make this request; nothing is launched.
        fn dry_run_create_fleet(request: &CreateFleetRequest) -> DryRunOutcome;
        /// Whether the caller may launch from this template directly; nothing is launched.
        fn dry_run_run_instances(probe: &RunInstancesProbe) -> DryRunOutcome;
        /// Instances by filter; a new instance, or its tags, may be missing for a while; pages of 1,000.
        fn describe_instances(filter: &InstanceFilter, page: Option<PageToken>) -> Page<Instance>;
        /// Running instances of the account by status; pages of 1,000.
        fn describe_instance_status(filter: InstanceStatusFilter, page: Option<PageToken>) -> Page<InstanceStatus>;
        /// The text on an instance's console, as EC2 kept it last; `None` before it kept any. An unknown id is `NotFound`.
        fn console_output(id: &InstanceId) -> Option<String>;
        /// Terminates instances; one unknown id refuses the whole call.
        fn terminate_instances(ids: &[InstanceId]) -> Vec<InstanceStateChange>;
        /// Sets tags on instances; one unknown id refuses the whole call.
        fn create_tags(ids: &[InstanceId], tags: &Tags) -> ();
    }
}

port! {
    /// The Pricing API.
    Pricing of pricing: P {
        /// On-demand prices of the region (Linux, shared tenancy), by type; pages of 100. A type can be missing.
        fn on_demand_prices(page: Option<PageToken>) -> Page<OnDemandPrice>;
    }
}

port! {
    /// Zonal shift in Amazon Application Recovery Controller (ARC).
    ZonalShift of zonal_shift: Z {
        /// Zones that a resource is shifted away from now, by an operator, a practice run or AWS; `NotFound` for a
        /// resource that ARC doesn't manage.
        fn shifted_zones(resource_arn: &str) -> Vec<ShiftedZone>;
    }
}

port! {
    /// Parameters of AWS Systems Manager, the public ones of AWS among them.
    Parameters of parameters: S {
        /// Parameters by name or ARN, each with or without a selector, in the order of the request. Those that don't
        /// exist are left out. A call takes 1 to [`PARAMETERS_PER_CALL`] different names; the caller divides longer
        /// lists.
        fn parameters(names: &[String]) -> Vec<Parameter>;
    }
}

port! {
    /// Instance profiles of IAM, which is global: a network without a way to the internet doesn't reach it, and the
    /// call ends in [`Ec2Error::NoAnswer`].
    InstanceProfiles of instance_profiles: I {
        /// An instance profile by its name, without its path; one that doesn't exist is `NotFound`.
        fn instance_profile(name: &str) -> InstanceProfileFacts;
    }
}

port! {
    /// AWS STS, which decodes what EC2 says of a denial.
    AuthorizationMessages of authorization_messages: A {
        /// The content of an encoded message of this account; another text is `Invalid`.
        fn decoded_message(encoded: &str) -> DecodedMessage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expected: bool) {
        assert_eq!(wildcard_matches(pattern, text), expected, "{pattern} {text}");
    }

    #[test]
    fn wildcards_match_as_in_ec2_filters() {
        check("*", "", true);
        check("amazon-eks-*", "amazon-eks-node-1.33", true);
        check("a?c", "abc", true);
        check("a?c", "ac", false);
        check("a*b*c", "a-b-b-c", true);
        check("a*b", "a-b-c", false);
        check("", "", true);
        check("", "a", false);
    }

    #[test]
    fn a_tag_filter_without_values_asks_for_the_key_alone() {
        let tags = Tags::from([("team".to_owned(), "web".to_owned())]);
        assert!(TagFilter::exists("team").matches(&tags));
        assert!(TagFilter::equals("team", "w*").matches(&tags));
        assert!(!TagFilter::equals("team", "db").matches(&tags));
        assert!(!TagFilter::exists("owner").matches(&tags));
    }
}
