//! ARC of the twin: its managed resources, and their shifted zones.
//!
//! Decides when a shift ends by itself. Not modelled: practice runs, the weights that ARC applies.

use std::collections::BTreeMap;

use tenon_domain::id::ZoneId;
use tenon_domain::zonal_shift::{ShiftEnd, ShiftedZone};

use super::call::Call;
use super::state::{TwinState, error};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;

/// Resources that ARC manages, by ARN, each with its shifts.
pub(super) type Managed = BTreeMap<String, BTreeMap<ZoneId, ShiftEnd>>;

impl TwinState {
    pub(super) fn shifted_zones(&self, resource_arn: &str) -> Result<Vec<ShiftedZone>, Ec2Error> {
        let Some(shifts) = self.managed.get(resource_arn) else {
            let message = format!("The resource '{resource_arn}' was not found.");
            return Err(error(Call::GetManagedResource, "ResourceNotFoundException", &message));
        };
        let active = shifts.iter().filter(|(_, end)| end.holds(self.now));
        Ok(active.map(|(zone_id, end)| ShiftedZone { zone_id: zone_id.clone(), end: *end }).collect())
    }

    pub(super) fn shift_zone(
        &mut self,
        resource_arn: &str,
        zone_id: &ZoneId,
        end: ShiftEnd,
    ) -> Result<(), NotPossible> {
        if !self.zones.iter().any(|zone| zone.id == *zone_id) {
            return refuse(format!("the region has no zone `{zone_id}`"));
        }
        let Some(shifts) = self.managed.get_mut(resource_arn) else {
            return refuse(format!("ARC doesn't manage `{resource_arn}`"));
        };
        shifts.insert(zone_id.clone(), end);
        if end == ShiftEnd::Open {
            let zone = zone_id.to_string();
            self.emit(|source| source.autoshift(&zone, "Autoshift In Progress"));
        }
        Ok(())
    }

    pub(super) fn end_shift(&mut self, resource_arn: &str, zone_id: &ZoneId) -> Result<(), NotPossible> {
        let shifts = self.managed.get_mut(resource_arn);
        let Some(end) = shifts.and_then(|shifts| shifts.remove(zone_id)) else {
            return refuse(format!("`{resource_arn}` isn't shifted away from `{zone_id}`"));
        };
        if end == ShiftEnd::Open {
            let zone = zone_id.to_string();
            self.emit(|source| source.autoshift(&zone, "Autoshift Completed"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenon_domain::Timestamp;
    use tenon_domain::id::Region;

    use super::*;
    use crate::TwinConfig;

    fn zone() -> ZoneId {
        ZoneId::parse("use1-az1").unwrap()
    }

    fn state() -> TwinState {
        let clock = std::sync::Arc::new(|| Timestamp::UNIX_EPOCH);
        let mut state =
            TwinState::new(TwinConfig::new(Region::parse("us-east-1").unwrap(), 1, clock)).unwrap();
        state.managed.insert("arn".to_owned(), BTreeMap::new());
        state
    }

    #[test]
    fn a_shift_ends_at_its_time_and_a_resource_that_isnt_managed_has_none() {
        let mut state = state();
        let end = ShiftEnd::At(Timestamp::from_second(60).unwrap());
        state.shift_zone("arn", &zone(), end).unwrap();
        assert_eq!(state.shifted_zones("arn").unwrap(), [ShiftedZone { zone_id: zone(), end }]);
        assert!(state.events.is_empty());
        state.settle(Timestamp::from_second(60).unwrap());
        assert_eq!(state.shifted_zones("arn").unwrap(), []);
        assert!(matches!(state.shifted_zones("other"), Err(Ec2Error::NotFound { .. })));
        assert!(state.shift_zone("other", &zone(), end).is_err());
        assert!(state.shift_zone("arn", &ZoneId::parse("use1-az99").unwrap(), end).is_err());
    }

    #[test]
    fn an_autoshift_is_announced_and_ends_when_aws_says_so() {
        let mut state = state();
        state.shift_zone("arn", &zone(), ShiftEnd::Open).unwrap();
        state.settle(Timestamp::from_second(86_400).unwrap());
        assert_eq!(state.shifted_zones("arn").unwrap().len(), 1);
        state.end_shift("arn", &zone()).unwrap();
        assert!(state.end_shift("arn", &zone()).is_err());
        let said: Vec<_> = state.events.iter().map(|event| event.json["detail-type"].clone()).collect();
        assert_eq!(said, ["Autoshift In Progress", "Autoshift Completed"]);
        assert_eq!(state.events[0].json["source"], "aws.arc-zonal-shift");
    }
}
