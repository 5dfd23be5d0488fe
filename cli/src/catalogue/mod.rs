//! The catalogue of commands: the built-in one, or a user's file.
//!
//! Decides the data of a region. On-demand prices are built in for us-east-1 only, spot prices for no region. Unknown
//! values are shown as unknown; only a simulation assumes spot prices, and says so.

mod file;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tenon_domain::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::catalog::{Catalog, InstanceTypeFacts, LearnedOf, SpotPrices, ZoneOfferings};
use tenon_domain::class_status::ClassSubnet;
use tenon_domain::evidence::{CatalogPart, Ready, require};
use tenon_domain::id::{InstanceType, Region, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;
use tenon_ec2::data::{DataError, Ec2Data};

use crate::errors::{Failure, Problem};

/// The region of the built-in on-demand prices.
const PRICED_REGION: &str = "us-east-1";

/// Which instance types are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypesScope {
    /// All known types, including those that the region doesn't offer.
    Known,
    /// The types that nodes can have.
    ForNodes,
}

/// Where on-demand prices come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PriceOrigin {
    /// They are the region's own.
    Own,
    /// They are another region's: good for an order of types, not for a sum.
    Borrowed,
}

/// Where it comes from which zone offers which types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferedOrigin {
    /// The build: its names of zones are another account's.
    BuiltIn,
    /// A file, with the user's own names.
    Given,
}

/// Where spot prices come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpotOrigin {
    /// A file gives them.
    Given,
    /// They are [`ASSUMED_SPOT_PERCENT`] of on-demand prices.
    Assumed,
}

/// The share of the on-demand price that a simulation assumes as the spot price where none are given. It is the mean of
/// the synthetic spot prices of `tenon local`, which are between 20 % and 72 %: a round guess, no measurement. EC2's
/// own spot prices differ by type and zone.
pub(crate) const ASSUMED_SPOT_PERCENT: u64 = 46;

/// A region's catalogue.
#[derive(Debug, Clone)]
pub(crate) struct RegionCatalog {
    /// The region.
    pub(crate) region: Region,
    /// The facts about each type.
    pub(crate) types: BTreeMap<InstanceType, Arc<InstanceTypeFacts>>,
    /// Where they are offered.
    pub(crate) offerings: ZoneOfferings,
    /// The origin of what they offer.
    pub(crate) offered_origin: OfferedOrigin,
    /// On-demand prices.
    pub(crate) on_demand: BTreeMap<InstanceType, UsdPerHour>,
    /// Their origin.
    pub(crate) origin: PriceOrigin,
    /// Spot prices, where any are known.
    pub(crate) spot: Option<SpotPrices>,
    /// Their origin.
    pub(crate) spot_origin: SpotOrigin,
}

impl RegionCatalog {
    /// The built-in catalogue.
    ///
    /// # Errors [`Failure`] for an unknown region.
    pub(crate) fn built_in(region: &Region, scope: TypesScope) -> Result<Self, Failure> {
        let data = Ec2Data::get().map_err(|error| unusable(&error))?;
        let known = data.region(region).map_err(|error| unusable(&error))?;
        let infos = data.types.values().map(AsRef::as_ref);
        let types = read_facts(infos, &data.limits, scope)?;
        let mut offered = known.types.clone();
        offered.retain(|name, _| types.contains_key(name));
        if scope == TypesScope::Known {
            for name in types.keys() {
                offered.entry(name.clone()).or_default();
            }
        }
        let zones = known.zones.iter().map(|zone| (zone.name.clone(), zone.id.clone())).collect();
        let own = region.as_str() == PRICED_REGION;
        Ok(Self {
            region: region.clone(),
            types,
            offerings: ZoneOfferings { zones, offered },
            offered_origin: OfferedOrigin::BuiltIn,
            on_demand: data.on_demand.clone(),
            origin: if own { PriceOrigin::Own } else { PriceOrigin::Borrowed },
            spot: None,
            spot_origin: SpotOrigin::Given,
        })
    }

    /// The same with the parts that a file gives instead.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub(crate) fn with_file(mut self, path: &Path, scope: TypesScope) -> Result<Self, Failure> {
        let limits = &Ec2Data::get().map_err(|error| unusable(&error))?.limits;
        file::read(path)?.apply(&mut self, limits, scope)?;
        Ok(self)
    }

    /// The same, with assumed spot prices if none are given.
    pub(crate) fn with_spot(mut self) -> Self {
        if self.spot.is_some() {
            return self;
        }
        let assumed = |(name, zones): (&InstanceType, &BTreeSet<Zone>)| {
            let on_demand = self.on_demand.get(name)?.nanos();
            let price = UsdPerHour::from_nanos(on_demand.saturating_mul(ASSUMED_SPOT_PERCENT) / 100);
            Some((name.clone(), zones.iter().map(|zone| (zone.clone(), price)).collect()))
        };
        self.spot = Some(self.offerings.offered.iter().filter_map(assumed).collect());
        self.spot_origin = SpotOrigin::Assumed;
        self
    }

    /// The planners' view. A user's data and built-in data count as refreshed now.
    ///
    /// # Errors None in practice: data of this moment is fresh.
    pub(crate) fn view(&self) -> Result<Catalog<'_>, Failure> {
        let spot = self.spot.as_ref().map(|spot| given(CatalogPart::SpotPrices, spot)).transpose()?;
        Ok(Catalog {
            region: &self.region,
            types: given(CatalogPart::InstanceTypes, &self.types)?,
            offerings: given(CatalogPart::Offerings, &self.offerings)?,
            on_demand: Some(given(CatalogPart::OnDemandPrices, &self.on_demand)?),
            spot,
            learned: LearnedOf::NOTHING,
        })
    }

    /// The same with the zone ids that classes state: each account has its own. Zones without one keep theirs, or get
    /// one that is left. What the build says of a zone goes with its id; a file's word is about names.
    pub(crate) fn of_account(&self, classes: &[Ec2NodeClass]) -> Cow<'_, Self> {
        let subnets = classes.iter().flat_map(|class| &class.status_subnets);
        let stated: BTreeMap<&Zone, &ZoneId> = subnets
            .filter(|subnet| self.offerings.zones.contains_key(&subnet.zone))
            .filter_map(|subnet| Some((&subnet.zone, subnet.zone_id.as_ref()?)))
            .collect();
        if stated.is_empty() {
            return Cow::Borrowed(self);
        }
        let taken: BTreeSet<&ZoneId> = stated.values().copied().collect();
        let keeps = |(zone, id): &(&Zone, &ZoneId)| !stated.contains_key(*zone) && !taken.contains(*id);
        let kept: BTreeMap<&Zone, &ZoneId> = self.offerings.zones.iter().filter(keeps).collect();
        let used: BTreeSet<&ZoneId> = kept.values().chain(stated.values()).copied().collect();
        let mut left = self.offerings.zones.values().filter(|id| !used.contains(*id));
        let mut own = self.clone();
        for (zone, id) in &mut own.offerings.zones {
            let found = stated.get(zone).or_else(|| kept.get(zone)).copied().or_else(|| left.next());
            if let Some(found) = found {
                *id = found.clone();
            }
        }
        own.rename(&self.offerings.zones);
        Cow::Owned(own)
    }

    /// Gives built-in offerings, and the spot prices assumed for them, the names that zones have now instead of those that
    /// they had `before`.
    fn rename(&mut self, before: &BTreeMap<Zone, ZoneId>) {
        if self.offered_origin == OfferedOrigin::Given {
            return;
        }
        let now = &self.offerings.zones;
        let by_id: BTreeMap<&ZoneId, &Zone> = now.iter().map(|(zone, id)| (id, zone)).collect();
        let known: BTreeSet<&ZoneId> = before.values().collect();
        // An id that the build doesn't know is one of those that the account lacks.
        let mut others = now.iter().filter(|(_, id)| !known.contains(*id)).map(|(zone, _)| zone);
        let names: BTreeMap<&Zone, Zone> = before
            .iter()
            .map(|(zone, id)| {
                let name = by_id.get(id).copied().or_else(|| others.next());
                (zone, name.unwrap_or(zone).clone())
            })
            .collect();
        let name = |zone: &Zone| names.get(zone).unwrap_or(zone).clone();
        for zones in self.offerings.offered.values_mut() {
            *zones = zones.iter().map(name).collect();
        }
        if self.spot_origin == SpotOrigin::Assumed {
            for prices in self.spot.iter_mut().flat_map(BTreeMap::values_mut) {
                *prices = prices.iter().map(|(zone, price)| (name(zone), *price)).collect();
            }
        }
    }

    /// The subnets of a class's status; `None` without any, and then its nodes can be in every zone.
    ///
    /// # Errors [`Failure`] for a subnet in an unknown zone.
    pub(crate) fn subnets_of(&self, class: &Ec2NodeClass) -> Result<Option<Vec<ClassSubnet>>, Failure> {
        if class.status_subnets.is_empty() {
            return Ok(None);
        }
        let known = |subnet: &tenon_domain::api::node_class::ResolvedSubnet| {
            let known = self.offerings.zones.get(&subnet.zone).ok_or_else(|| {
                let zones: Vec<&str> = self.offerings.zones.keys().map(Zone::as_str).collect();
                let message = format!("subnet `{}` is in zone `{}`", subnet.id, subnet.zone);
                let message = format!("{message}, which isn't one of region `{}`", self.region);
                let remedy =
                    format!("give the class's region with `--region`; here: `{}`", zones.join("`, `"));
                Problem::new(message, remedy).at(format!("EC2NodeClass `{}`: status.subnets", class.name))
            })?;
            let zone_id = subnet.zone_id.as_ref().unwrap_or(known).clone();
            // The number of free addresses only decides the order of subnets.
            let free_addresses = u32::MAX;
            let (id, zone) = (subnet.id.clone(), subnet.zone.clone());
            Ok(ClassSubnet { id, zone, zone_id, free_addresses, shifted: None })
        };
        class.status_subnets.iter().map(known).collect::<Result<_, Failure>>().map(Some)
    }
}

fn given<T>(part: CatalogPart, value: T) -> Result<Ready<T>, Failure> {
    let moment = Timestamp::UNIX_EPOCH;
    require(part, Some((value, moment)), moment)
        .map_err(|waiting| Problem::new(waiting.to_string(), "give the part with `--catalog`").into())
}

fn unusable(error: &DataError) -> Failure {
    let remedy = match error {
        DataError::Unreadable { .. } => "rebuild it",
        DataError::UnknownRegion { .. } => "give another `--region`",
    };
    Problem::new(error.to_string(), remedy).into()
}

/// Facts by type; a problem's field is the type's name.
fn read_facts<'a>(
    infos: impl Iterator<Item = &'a InstanceTypeInfo>,
    limits: &Limits,
    scope: TypesScope,
) -> Result<BTreeMap<InstanceType, Arc<InstanceTypeFacts>>, Failure> {
    let wanted = |info: &&InstanceTypeInfo| match scope {
        TypesScope::Known => true,
        TypesScope::ForNodes => info.is_for_nodes(),
    };
    infos
        .filter(wanted)
        .map(|info| {
            let facts = facts(info, limits).map_err(|error| {
                let name = info.instance_type.clone().unwrap_or_default();
                Problem::new(error.to_string(), "give it as DescribeInstanceTypes does").at(name)
            })?;
            Ok((facts.name.clone(), Arc::new(facts)))
        })
        .collect()
}

/// Names of a set of types.
pub(crate) fn names<'a>(types: impl Iterator<Item = &'a InstanceType>) -> BTreeSet<&'a str> {
    types.map(InstanceType::as_str).collect()
}

#[cfg(test)]
mod tests {
    use tenon_domain::manifest;

    use super::*;

    /// A class whose account has the ids of the first two zones the other way round.
    fn swapped(catalog: &RegionCatalog) -> Vec<Ec2NodeClass> {
        let zones: Vec<(&Zone, &ZoneId)> = catalog.offerings.zones.iter().take(2).collect();
        let [(first, first_id), (second, second_id)] = zones[..] else { unreachable!() };
        let text = format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: a}}\nspec: {{role: nodes, \
             amiSelectorTerms: [{{alias: al2023@latest}}], subnetSelectorTerms: [{{id: subnet-0a}}], \
             securityGroupSelectorTerms: [{{id: sg-1}}]}}\nstatus: {{subnets: [{{id: subnet-0a, zone: {first}, zoneID: \
             {second_id}}}, {{id: subnet-0b, zone: {second}, zoneID: {first_id}}}]}}\n"
        );
        manifest::read_files(&[("a.yaml", text.as_str())]).unwrap().manifests.node_classes
    }

    /// The ids of the zones that offer a type, and those with a spot price.
    fn by_id(catalog: &RegionCatalog) -> BTreeMap<&InstanceType, [BTreeSet<&ZoneId>; 2]> {
        let id = |zone: &Zone| catalog.offerings.zones.get(zone).unwrap();
        let spot = catalog.spot.as_ref().unwrap();
        let of = |(name, zones)| {
            let (name, zones): (&InstanceType, &BTreeSet<Zone>) = (name, zones);
            let priced = spot.get(name).into_iter().flatten().map(|(zone, _)| id(zone));
            (name, [zones.iter().map(id).collect(), priced.collect()])
        };
        catalog.offerings.offered.iter().map(of).collect()
    }

    #[test]
    fn what_a_zone_offers_goes_with_its_id_unless_a_file_says_it() {
        let region = PRICED_REGION.parse().unwrap();
        let mut catalog = RegionCatalog::built_in(&region, TypesScope::ForNodes).unwrap().with_spot();
        let classes = swapped(&catalog);
        let own = catalog.of_account(&classes);
        assert_ne!(own.offerings.zones, catalog.offerings.zones);
        assert_ne!(own.offerings.offered, catalog.offerings.offered);
        assert_eq!(by_id(&own), by_id(&catalog));
        catalog.offered_origin = OfferedOrigin::Given;
        let own = catalog.of_account(&classes);
        assert_ne!(own.offerings.zones, catalog.offerings.zones);
        assert_eq!(own.offerings.offered, catalog.offerings.offered);
        assert_eq!(own.spot, catalog.spot);
    }
}
