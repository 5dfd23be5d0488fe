//! The twin's state, and its changes over time.
//!
//! Decides the order of due changes: by time, then by scheduling. Invariants: time never goes back; a caller sees all
//! changes due by its time; all collections are ordered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::id::{
    ClientToken, ClusterName, ImageId, InstanceId, InstanceType, PlacementGroupId, ReservationId,
    SecurityGroupId, SubnetId, Zone,
};
use tenon_domain::money::UsdPerHour;
use tenon_domain::{SignedDuration, Timestamp};

use super::buckets::{CallBuckets, Cost, Throttling};
use super::call::Call;
use super::capacity::{Capacity, CapacityPool};
use super::denials::DeniedCall;
use super::events::{EventSource, TwinEvent};
use super::faults::{FaultEffect, Faults};
use super::fleet::UsedToken;
use super::images::TwinImage;
use super::instance_profiles::Profiles;
use super::instances::TwinInstance;
use super::network::TwinSubnet;
use super::parameters::OwnParameters;
use super::prices::HeldPrices;
use super::published::PublishedReleases;
use super::records::{CallCount, LaunchRecord, RequestRecord};
use super::templates::TwinTemplate;
use super::zonal_shift::Managed;
use super::{TwinConfig, TypeSelection};
use tenon_ec2::Ec2Error;
use tenon_ec2::data::{DataError, Ec2Data};
use tenon_ec2::port::{
    AvailabilityZone, CapacityReservation, InstanceState, InstanceTypeInfo, Page, PageToken, PlacementGroup,
    SecurityGroup, VolumeSnapshot,
};

/// Something that will happen by itself.
#[derive(Debug, Clone)]
pub(super) enum DueEvent {
    Image(ImageId),
    Instance(InstanceId, InstanceState),
    /// EC2 takes a spot instance back.
    SpotReclaim(InstanceId),
}

pub(super) struct TwinState {
    pub(super) config: TwinConfig,
    pub(super) now: Timestamp,
    /// How spot prices stay as they are, if they do.
    pub(super) prices_held: Option<HeldPrices>,
    /// When the world began.
    pub(super) started_at: Timestamp,
    pub(super) types: BTreeMap<InstanceType, Arc<InstanceTypeInfo>>,
    pub(super) offered: BTreeMap<InstanceType, BTreeSet<Zone>>,
    pub(super) zones: Vec<AvailabilityZone>,
    pub(super) on_demand: &'static BTreeMap<InstanceType, UsdPerHour>,
    pub(super) images: BTreeMap<ImageId, TwinImage>,
    /// Images that the account may not launch, though they are described.
    pub(super) unshared: BTreeSet<ImageId>,
    /// Snapshots of volumes, those of images among them, by id.
    pub(super) snapshots: BTreeMap<String, VolumeSnapshot>,
    pub(super) subnets: BTreeMap<SubnetId, TwinSubnet>,
    pub(super) groups: BTreeMap<SecurityGroupId, SecurityGroup>,
    /// Capacity reservations, each with how many instances it is for.
    pub(super) reservations: BTreeMap<ReservationId, CapacityReservation>,
    pub(super) placement_groups: BTreeMap<PlacementGroupId, PlacementGroup>,
    pub(super) templates: BTreeMap<String, TwinTemplate>,
    pub(super) managed: Managed,
    pub(super) own_parameters: OwnParameters,
    pub(super) published: PublishedReleases,
    pub(super) profiles: Profiles,
    /// Clusters' launch roles, by ARN.
    pub(super) launch_roles: BTreeMap<String, ClusterName>,
    /// How long launches don't find a new template.
    pub(super) templates_unseen_for: SignedDuration,
    pub(super) instances: BTreeMap<InstanceId, TwinInstance>,
    pub(super) capacity: Capacity,
    /// Errors that a test gives to a pool: code and message.
    pub(super) failing: BTreeMap<CapacityPool, (String, String)>,
    pub(super) tokens: BTreeMap<ClientToken, UsedToken>,
    pub(super) faults: Faults,
    /// Calls that the caller may not make.
    pub(super) denied: BTreeMap<Call, DeniedCall>,
    /// Images that the caller may not launch, with the words of EC2's message.
    pub(super) denied_images: BTreeMap<ImageId, String>,
    pub(super) calls: BTreeMap<Call, CallCount>,
    pub(super) launches: Vec<Arc<LaunchRecord>>,
    pub(super) requests: Vec<Arc<RequestRecord>>,
    pub(super) events: Vec<TwinEvent>,
    due: BTreeMap<(Timestamp, u64), DueEvent>,
    buckets: CallBuckets,
    numbers: u64,
}

impl TwinState {
    pub(super) fn new(config: TwinConfig) -> Result<Self, DataError> {
        let data = Ec2Data::get()?;
        let region = data.region(&config.region)?;
        let zones: Vec<_> = region
            .zones
            .iter()
            .filter(|z| config.zones.is_empty() || config.zones.contains(&z.name))
            .cloned()
            .collect();
        let mut offered = BTreeMap::new();
        let mut types = BTreeMap::new();
        for (name, info) in &data.types {
            let selected = match &config.types {
                TypeSelection::All => true,
                TypeSelection::Only(list) => list.contains(name),
            };
            let Some(in_zones) = region.types.get(name).filter(|_| selected) else { continue };
            let in_zones: BTreeSet<_> =
                in_zones.iter().filter(|z| zones.iter().any(|known| known.name == **z)).cloned().collect();
            if !in_zones.is_empty() {
                offered.insert(name.clone(), in_zones);
                types.insert(name.clone(), Arc::clone(info));
            }
        }
        let now = (config.clock)();
        Ok(Self {
            config,
            now,
            prices_held: None,
            started_at: now,
            types,
            offered,
            zones,
            on_demand: &data.on_demand,
            images: BTreeMap::new(),
            unshared: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            subnets: BTreeMap::new(),
            groups: BTreeMap::new(),
            reservations: BTreeMap::new(),
            placement_groups: BTreeMap::new(),
            templates: BTreeMap::new(),
            managed: Managed::new(),
            own_parameters: OwnParameters::new(),
            published: PublishedReleases::default(),
            profiles: Profiles::new(),
            launch_roles: BTreeMap::new(),
            templates_unseen_for: SignedDuration::ZERO,
            instances: BTreeMap::new(),
            capacity: Capacity::default(),
            failing: BTreeMap::new(),
            tokens: BTreeMap::new(),
            faults: Faults::default(),
            denied: BTreeMap::new(),
            denied_images: BTreeMap::new(),
            calls: BTreeMap::new(),
            launches: Vec::new(),
            requests: Vec::new(),
            events: Vec::new(),
            due: BTreeMap::new(),
            buckets: CallBuckets::default(),
            numbers: 0,
        })
    }

    /// A new number.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers = self.numbers.saturating_add(1);
        self.numbers
    }

    pub(super) fn schedule(&mut self, after: SignedDuration, due: DueEvent) {
        let at = later(self.now, after);
        let number = self.number();
        self.due.insert((at, number), due);
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due until `now`.
    pub(super) fn settle(&mut self, now: Timestamp) {
        while let Some(((at, _), due)) = self.due.first_key_value().map(|(k, d)| (*k, d.clone())) {
            if at > now {
                break;
            }
            self.due.pop_first();
            self.now = self.now.max(at);
            match due {
                DueEvent::Image(id) => self.finish_image(&id),
                DueEvent::Instance(id, to) => self.continue_instance(&id, to),
                DueEvent::SpotReclaim(id) => self.reclaim_spot(&id),
            }
        }
        self.now = self.now.max(now);
    }

    pub(super) fn emit(&mut self, make: impl FnOnce(EventSource<'_>) -> TwinEvent) {
        let number = self.number();
        let source = EventSource {
            seed: self.config.seed,
            region: self.config.region.as_str(),
            account: &self.config.account,
            number,
            at: self.now,
        };
        let event = make(source);
        self.events.push(event);
    }

    /// Counts a call, and checks throttling, then rights. Returns the fault that hits it, if any.
    pub(super) fn admit(&mut self, call: Call, cost: Cost) -> Result<Option<FaultEffect>, Ec2Error> {
        let count = self.calls.entry(call).or_default();
        count.made = count.made.saturating_add(1);
        if self.config.throttling == Throttling::Enforced && self.buckets.take(call, cost, self.now).is_err()
        {
            count.throttled = count.throttled.saturating_add(1);
            return Err(error(call, "RequestLimitExceeded", "Request limit exceeded."));
        }
        Ok(self.faults.next(self.config.seed, call))
    }

    /// Whether the caller may make the call.
    pub(super) fn authorise(&self, call: Call) -> Result<(), Ec2Error> {
        match self.denied.get(&call) {
            None => Ok(()),
            Some(denied) => {
                let (action, decoded, message) =
                    (call.as_str().to_owned(), denied.decoded(), denied.words(call));
                Err(Ec2Error::Unauthorized { action, decoded, message })
            }
        }
    }

    /// A page of a list.
    pub(super) fn page<T>(
        &self,
        call: Call,
        size: usize,
        token: Option<&PageToken>,
        all: Vec<T>,
    ) -> Result<Page<T>, Ec2Error> {
        let size = size.min(self.config.page_size_max).max(1);
        let from = match token {
            None => 0,
            Some(PageToken(text)) => text
                .strip_prefix("page-")
                .and_then(|n| n.parse::<usize>().ok())
                .ok_or_else(|| error(call, "InvalidNextToken", "The token is not valid."))?,
        };
        let more = all.len() > from.saturating_add(size);
        let items = all.into_iter().skip(from).take(size).collect();
        Ok(Page { items, next: more.then(|| PageToken(format!("page-{}", from.saturating_add(size)))) })
    }
}

/// The error of a call with EC2's code and words.
pub(super) fn error(call: Call, code: &str, message: &str) -> Ec2Error {
    Ec2Error::from_code(call.as_str(), code, message)
}

/// The moment so much later; the end of time where there is none.
pub(super) fn later(at: Timestamp, after: SignedDuration) -> Timestamp {
    at.checked_add(after).unwrap_or(Timestamp::MAX)
}
