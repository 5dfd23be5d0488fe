//! Instances that EC2 takes back, and those that somebody stops: deeds of a simulated world.

use jiff::SignedDuration;
use tenon_domain::id::InstanceId;
use tenon_ec2::port::{InstanceState, TargetCapacityType};
use tenon_region::engine::SimulatedRegion;
use tenon_twin::HealthEvent;

use crate::random::Dice;

/// EC2 takes a third of the spot instances at once.
pub(crate) fn interrupt_many(region: &SimulatedRegion, dice: &mut Dice) {
    for id in spot(region).iter().filter(|_| dice.permille(300)) {
        let _ = region.twin().interrupt_spot(id);
    }
}

pub(crate) fn interrupt(region: &mut SimulatedRegion, dice: &mut Dice) {
    let spot = spot(region);
    if let Some(id) = dice.pick(&spot) {
        let _ = if dice.permille(800) {
            region.twin().interrupt_spot(id)
        } else {
            region.twin().recommend_rebalance(id)
        };
    }
}

pub(crate) fn announce(region: &mut SimulatedRegion, dice: &mut Dice) {
    let ids: Vec<InstanceId> = running(region).into_iter().map(|instance| instance.id).collect();
    if let Some(id) = dice.pick(&ids) {
        let _ = region.twin().announce(&HealthEvent {
            event_type_code: "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED".to_owned(),
            event_type_category: "scheduledChange".to_owned(),
            starts_at: region.now() + SignedDuration::from_hours(if dice.permille(500) { 0 } else { 72 }),
            instances: vec![id.clone()],
        });
    }
}

pub(crate) fn stop_instance(region: &mut SimulatedRegion, dice: &mut Dice) {
    let ids: Vec<InstanceId> = running(region).into_iter().map(|instance| instance.id).collect();
    if let Some(id) = dice.pick(&ids) {
        let to = if dice.permille(500) { InstanceState::Stopping } else { InstanceState::ShuttingDown };
        let _ = region.twin().push_instance(id, to);
    }
}

fn running(region: &SimulatedRegion) -> Vec<tenon_ec2::port::Instance> {
    let records = region.twin().instances().into_iter();
    let running = records.filter(|record| record.instance.state == InstanceState::Running);
    running.map(|record| record.instance.clone()).collect()
}

fn spot(region: &SimulatedRegion) -> Vec<InstanceId> {
    let spot = |instance: &tenon_ec2::port::Instance| instance.capacity_type == TargetCapacityType::Spot;
    running(region).into_iter().filter(spot).map(|instance| instance.id).collect()
}
