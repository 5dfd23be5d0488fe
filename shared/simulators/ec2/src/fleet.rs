//! Launches of the twin, by the rules of CreateFleet of type `instant`.
//!
//! Decides the order of overrides, the instances of each, and the reported errors; `resolve` decides whether an override
//! can be launched. As in EC2, an override that isn't reached isn't checked. Invariants: a launch never gives more
//! instances than requested; its image is available at that moment; while a token lives, its request has one answer.

mod resolve;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tenon_domain::Timestamp;
use tenon_domain::id::{ClientToken, ClusterName, FleetId, ImageId, InstanceId, InstanceType, Zone};
use tenon_domain::money::UsdPerHour;

use super::call::Call;
use super::capacity::{CapacityPool, PoolShortage};
use super::events::uuid;
use super::instances::TwinInstance;
use super::network::{TwinSubnet, private_dns_name};
use super::records::{InstanceRecord, LaunchRecord, RequestOutcome, RequestRecord};
use super::reservations::CapacitySource;
use super::state::{TwinState, error, later};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    CreateFleetRequest, FleetInstances, FleetItemError, FleetLaunchTemplate, FleetOverride, FleetResult,
    ImageState, Instance, InstanceState, OnDemandAllocation, SpotAllocation, Tags, TargetCapacityType,
};

use resolve::{FleetCandidate, Resolved};

/// EC2's limit on overrides of an instant fleet ("EC2 Fleet quotas": 300 launch specifications).
const OVERRIDES_MAX: usize = 300;

/// A used client token.
#[derive(Debug)]
pub(super) struct UsedToken {
    stored: String,
    result: FleetResult,
    until: Timestamp,
}

/// The parts of the launch request that an instance inherits.
#[derive(Clone, Copy)]
struct LaunchOrigin<'a> {
    token: &'a ClientToken,
    fleet: &'a FleetId,
    tags: &'a Tags,
}

/// An item's error: code and message.
pub(super) type OverrideError = (String, String);

pub(super) fn item<T>(code: &str, message: String) -> Result<T, OverrideError> {
    Err((code.to_owned(), message))
}

impl TwinState {
    pub(super) fn create_fleet(
        &mut self,
        by: Option<&ClusterName>,
        request: &CreateFleetRequest,
    ) -> Result<FleetResult, Ec2Error> {
        let now = self.now;
        let answer = self.may_create_fleet(by, request).and_then(|()| self.answer_fleet(request));
        let outcome = match &answer {
            Ok((_, outcome)) => outcome.clone(),
            Err(error) => RequestOutcome::Refused(error.to_string()),
        };
        let record = RequestRecord {
            at: now,
            by: by.cloned(),
            client_token: request.client_token.clone(),
            target_capacity: request.target_capacity,
            tags: request.tags.instance.clone(),
            images: self.images_named(request),
            outcome,
            item_errors: answer.as_ref().map_or(0, |(result, _)| result.errors.len()),
        };
        self.requests.push(Arc::new(record));
        answer.map(|(result, _)| result)
    }

    /// The answer to an allowed request, and whether it is a new one.
    fn answer_fleet(
        &mut self,
        request: &CreateFleetRequest,
    ) -> Result<(FleetResult, RequestOutcome), Ec2Error> {
        let stored = request.to_stored();
        let now = self.now;
        self.tokens.retain(|_, token| token.until > now);
        match self.tokens.get(&request.client_token) {
            Some(token) if token.stored == stored => Ok((token.result.clone(), RequestOutcome::Replayed)),
            Some(_) => Err(error(
                Call::CreateFleet,
                "IdempotentParameterMismatch",
                "The client token was used before with other parameters.",
            )),
            None => self.check_fleet(request).and_then(|()| self.launch_fleet(request)).map(|result| {
                let until = later(now, self.config.token_life);
                self.tokens.insert(
                    request.client_token.clone(),
                    UsedToken { stored, result: result.clone(), until },
                );
                let ids = result.instance_ids();
                (result, RequestOutcome::New(ids))
            }),
        }
    }

    /// Problems for which EC2 refuses a fleet as a whole.
    pub(super) fn check_fleet(&self, request: &CreateFleetRequest) -> Result<(), Ec2Error> {
        let refused = |code, message: &str| Err(error(Call::CreateFleet, code, message));
        if request.target_capacity == 0 {
            return refused(
                "InvalidTargetCapacitySpecification",
                "The target capacity must be greater than zero.",
            );
        }
        let overrides: usize = request.launch_templates.iter().map(|t| t.overrides.len()).sum();
        if overrides == 0 {
            return refused("MissingParameter", "The request must contain an instance type.");
        }
        if overrides > OVERRIDES_MAX {
            return refused("InvalidParameterValue", "The fleet has more than 300 launch specifications.");
        }
        for template in &request.launch_templates {
            self.template_version(Call::CreateFleet, &template.name, &template.version)?;
        }
        Ok(())
    }

    fn images_named(&self, request: &CreateFleetRequest) -> Vec<(ImageId, Option<ImageState>)> {
        let of_template =
            |t: &FleetLaunchTemplate| self.templates.get(&t.name).and_then(|t| t.data.image.clone());
        let mut images: Vec<_> = request
            .launch_templates
            .iter()
            .flat_map(|t| t.overrides.iter().filter_map(|o| o.image.clone()).chain(of_template(t)))
            .collect();
        images.sort();
        images.dedup();
        images.into_iter().map(|id| (id.clone(), self.image_state(&id))).collect()
    }

    fn launch_fleet(&mut self, request: &CreateFleetRequest) -> Result<FleetResult, Ec2Error> {
        let number = self.number();
        let text = format!("fleet-{}", uuid(self.config.seed, "fleet", number));
        let fleet_id =
            FleetId::parse(text).map_err(|e| error(Call::CreateFleet, "InternalError", &e.to_string()))?;
        let mut result = FleetResult { fleet_id, instances: Vec::new(), errors: Vec::new() };
        let mut wanted = request.target_capacity;
        for candidate in self.in_order(request) {
            if wanted == 0 {
                break;
            }
            let mut ids = Vec::new();
            let shortage = match self.resolve(&candidate, request.capacity_type) {
                Err(error) => Some(error),
                Ok(resolved) => {
                    let (fit, shortage) = self.fit(&resolved, wanted);
                    for _ in 0..fit {
                        ids.extend(self.launch(&resolved, request, &result.fleet_id));
                    }
                    shortage
                }
            };
            wanted = wanted.saturating_sub(u32::try_from(ids.len()).unwrap_or(u32::MAX));
            if !ids.is_empty() {
                ids.sort();
                result.instances.push(FleetInstances {
                    ids,
                    instance_type: candidate.from.instance_type.clone(),
                    capacity_type: request.capacity_type,
                    from: candidate.from.clone(),
                    launch_template: candidate.template.name.clone(),
                });
            }
            if let Some((code, message)) = shortage {
                let (from, capacity_type) = (Some(candidate.from.clone()), request.capacity_type);
                result.errors.push(FleetItemError { code, message, from, capacity_type });
            }
        }
        Ok(result)
    }

    /// Overrides as the strategy takes them; ties as they stand in the request.
    fn in_order<'a>(&self, request: &'a CreateFleetRequest) -> Vec<FleetCandidate<'a>> {
        let mut candidates: Vec<_> = request
            .launch_templates
            .iter()
            .flat_map(|template| template.overrides.iter().map(move |from| FleetCandidate { template, from }))
            .collect();
        // Most significant first: pools that can't give everything go last, then price, then priority.
        candidates.sort_by_key(|c| {
            let zone = self.zone_of(c.from);
            let price = zone.and_then(|z| self.price(request.capacity_type, &c.from.instance_type, &z));
            let price = (price.is_none(), price);
            let priority = (c.from.priority.is_none(), c.from.priority);
            let scarce = self.is_scarce(c.from, request);
            match (request.capacity_type, request.on_demand_allocation, request.spot_allocation) {
                (TargetCapacityType::OnDemand, OnDemandAllocation::LowestPrice, _)
                | (TargetCapacityType::Spot, _, SpotAllocation::LowestPrice) => (false, price, (false, None)),
                (TargetCapacityType::OnDemand, OnDemandAllocation::Prioritized, _) => {
                    (false, (false, None), priority)
                }
                (TargetCapacityType::Spot, _, SpotAllocation::PriceCapacityOptimized) => {
                    (scarce, price, (false, None))
                }
                (TargetCapacityType::Spot, _, SpotAllocation::CapacityOptimizedPrioritized) => {
                    (scarce, (false, None), priority)
                }
            }
        });
        candidates
    }

    fn zone_of(&self, from: &FleetOverride) -> Option<Zone> {
        from.zone
            .clone()
            .or_else(|| from.subnet.as_ref().and_then(|s| self.subnets.get(s)).map(|s| s.view().zone))
    }

    fn is_scarce(&self, from: &FleetOverride, request: &CreateFleetRequest) -> bool {
        self.zone_of(from).is_none_or(|zone| {
            let instance_type = from.instance_type.clone();
            let pool = CapacityPool { capacity_type: request.capacity_type, instance_type, zone };
            self.capacity.left(&pool).is_some_and(|left| left < request.target_capacity)
        })
    }

    /// The current price of a type in a zone; `None` if it is unknown.
    pub(super) fn price(
        &self,
        capacity_type: TargetCapacityType,
        of: &InstanceType,
        zone: &Zone,
    ) -> Option<UsdPerHour> {
        let on_demand = *self.on_demand.get(of)?;
        match capacity_type {
            TargetCapacityType::OnDemand => Some(on_demand),
            TargetCapacityType::Spot => Some(self.spot_price(on_demand, of, zone)),
        }
    }

    /// How many of an override can be launched, and the error when that is too few.
    fn fit(&self, resolved: &Resolved, wanted: u32) -> (u32, Option<OverrideError>) {
        match self.placement_room(resolved.placement.as_ref(), &resolved.pool.zone) {
            Some((room, full)) if room < wanted => {
                let (fit, error) = self.fit_capacity(resolved, room);
                (fit, error.or(Some(full)))
            }
            Some(_) | None => self.fit_capacity(resolved, wanted),
        }
    }

    fn fit_capacity(&self, resolved: &Resolved, wanted: u32) -> (u32, Option<OverrideError>) {
        let pool = &resolved.pool;
        if let Some(failing) = self.failing.get(pool) {
            return (0, Some(failing.clone()));
        }
        let addresses = self.subnets.get(&resolved.subnet.id).map_or(0, TwinSubnet::free);
        let open = match &resolved.source {
            CapacitySource::Reservation(id) => return self.fit_reservation(id, wanted.min(addresses)),
            CapacitySource::Pool { open } => self.open_room(open).min(wanted),
        };
        let (of_pool, shortage) = self.capacity.fit(pool, resolved.vcpus, wanted.saturating_sub(open));
        let fit = of_pool.saturating_add(open);
        if addresses < fit {
            let message = format!("There are not enough free addresses in subnet '{}'.", resolved.subnet.id);
            return (addresses, Some(("InsufficientFreeAddressesInSubnet".to_owned(), message)));
        }
        let error = shortage.map(|shortage| match (shortage, pool.capacity_type) {
            (PoolShortage::Pool, TargetCapacityType::OnDemand | TargetCapacityType::Spot) => (
                "InsufficientInstanceCapacity".to_owned(),
                format!(
                    "There is no {} capacity for {} in {}.",
                    pool.capacity_type.as_str(),
                    pool.instance_type,
                    pool.zone
                ),
            ),
            (PoolShortage::Quota, TargetCapacityType::OnDemand) => (
                "VcpuLimitExceeded".to_owned(),
                "You have requested more vCPU capacity than your current vCPU limit allows.".to_owned(),
            ),
            (PoolShortage::Quota, TargetCapacityType::Spot) => {
                ("MaxSpotInstanceCountExceeded".to_owned(), "Max spot instance count exceeded".to_owned())
            }
        });
        (fit, error)
    }

    fn launch(
        &mut self,
        resolved: &Resolved,
        request: &CreateFleetRequest,
        fleet: &FleetId,
    ) -> Option<InstanceId> {
        let image_state = self.image_state(&resolved.image)?;
        let address = self.subnets.get_mut(&resolved.subnet.id)?.take()?;
        let reservation = self.next_reservation(&resolved.source);
        if reservation.is_none() {
            self.capacity.take(&resolved.pool, resolved.vcpus);
        }
        let id = self.new_instance_id();
        let mut tags = request.tags.instance.clone();
        tags.insert("aws:ec2:fleet-id".to_owned(), fleet.to_string());
        self.launches.push(Arc::new(LaunchRecord {
            at: self.now,
            instance: id.clone(),
            fleet: fleet.clone(),
            client_token: request.client_token.clone(),
            instance_type: resolved.pool.instance_type.clone(),
            zone: resolved.pool.zone.clone(),
            capacity_type: resolved.pool.capacity_type,
            image: resolved.image.clone(),
            image_state,
            tags: tags.clone(),
        }));
        let visible_at = later(self.now, self.consistency_delay(&id, "instance"));
        // The tags of a launch can be seen later than the instance itself.
        let tags_at = later(visible_at, self.consistency_delay(&id, "tags"))
            .min(later(self.now, self.config.consistency_delay_max));
        let instance = Instance {
            reservation,
            ..self.new_instance(
                resolved,
                &id,
                address,
                LaunchOrigin { token: &request.client_token, fleet, tags: &tags },
            )
        };
        let twin = TwinInstance {
            record: Arc::new(InstanceRecord {
                instance,
                image_state_at_launch: image_state,
                defect: self.defect(&resolved.image),
                user_data: resolved.user_data.clone(),
                block_devices: resolved.block_devices.clone(),
                instance_profile: resolved.instance_profile.clone(),
                placement: resolved.placement.clone(),
                visible_at,
                terminated_at: None,
                impaired: BTreeMap::new(),
                events: Vec::new(),
            }),
            vcpus: resolved.vcpus,
            tags: vec![(tags_at, tags)],
            interrupted: None,
        };
        self.instances.insert(id.clone(), twin);
        self.emit(|source| source.instance_state(&id, InstanceState::Pending));
        self.schedule_next(&id, InstanceState::Pending);
        Some(id)
    }

    fn new_instance(
        &self,
        resolved: &Resolved,
        id: &InstanceId,
        address: Ipv4Addr,
        origin: LaunchOrigin<'_>,
    ) -> Instance {
        let LaunchOrigin { token, fleet, tags } = origin;
        Instance {
            id: id.clone(),
            instance_type: resolved.pool.instance_type.clone(),
            image: resolved.image.clone(),
            architecture: resolved.architecture,
            capacity_type: resolved.pool.capacity_type,
            reservation: None,
            zone: resolved.pool.zone.clone(),
            zone_id: Some(resolved.subnet.zone_id.clone()),
            partition: self.partition(resolved.placement.as_ref(), id),
            subnet: Some(resolved.subnet.id.clone()),
            security_groups: resolved.security_groups.clone(),
            state: InstanceState::Pending,
            state_reason: None,
            launched_at: self.now,
            private_ip: address.to_string(),
            private_dns_name: private_dns_name(address, &self.config.region),
            client_token: Some(token.clone()),
            fleet: Some(fleet.clone()),
            tags: tags.clone(),
        }
    }
}
