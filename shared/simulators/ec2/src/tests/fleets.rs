//! A fleet's instances, refusals and repeated answers.

use super::*;

#[test]
fn the_cheapest_override_comes_first_and_others_fill_up() {
    let world = TwinWorld::plain();
    let overrides =
        [over("m5.xlarge", "us-east-1a"), over("m5.large", "us-east-1a"), over("m5.large", "us-east-1b")];
    assert_eq!(types_of(&world.launch(&fleet("a", 3, &overrides))), ["3xm5.large"]);
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1a"), Some(1));
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1b"), Some(0));
    let result = world.launch(&fleet("b", 3, &overrides));
    assert_eq!(types_of(&result), ["1xm5.large", "2xm5.xlarge"]);
    assert_eq!(codes_of(&result), ["InsufficientInstanceCapacity", "InsufficientInstanceCapacity"]);
    assert_eq!(result.errors[0].class(), ErrorClass::InsufficientCapacity);
}

#[test]
fn a_fleet_can_give_less_than_asked_and_a_pool_gets_back_what_ends() {
    let world = TwinWorld::plain();
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1a"), Some(1));
    let only = [over("m5.large", "us-east-1a")];
    let first = world.launch(&fleet("a", 2, &only));
    assert_eq!((types_of(&first), codes_of(&first).len()), (vec!["1xm5.large".to_owned()], 1));
    assert!(world.launch(&fleet("b", 1, &only)).instances.is_empty());
    now(world.twin.terminate_instances(&first.instance_ids())).unwrap();
    assert!(world.launch(&fleet("c", 1, &only)).instances.is_empty());
    world.pass(MINUTE);
    assert_eq!(types_of(&world.launch(&fleet("d", 1, &only))), ["1xm5.large"]);
}

#[test]
fn priorities_and_spare_capacity_order_overrides() {
    let world = TwinWorld::plain();
    let first = FleetOverride { priority: Some(1), ..over("m5.xlarge", "us-east-1a") };
    let overrides = [over("m5.large", "us-east-1a"), first.clone()];
    let mut request = fleet("a", 1, &overrides);
    request.on_demand_allocation = OnDemandAllocation::Prioritized;
    assert_eq!(types_of(&world.launch(&request)), ["1xm5.xlarge"]);
    let mut request = spot(fleet("b", 2, &overrides));
    assert_eq!(types_of(&world.launch(&request)), ["2xm5.large"]);
    world.twin.set_capacity(pool(TargetCapacityType::Spot, "m5.large", "us-east-1a"), Some(1));
    request.client_token = ClientToken::parse("c").unwrap();
    assert_eq!(types_of(&world.launch(&request)), ["2xm5.xlarge"]);
    request.client_token = ClientToken::parse("d").unwrap();
    request.spot_allocation = SpotAllocation::LowestPrice;
    assert_eq!(types_of(&world.launch(&request)), ["1xm5.large", "1xm5.xlarge"]);
}

#[test]
fn overrides_that_cannot_be_launched_say_why() {
    let world = TwinWorld::plain();
    let pending = world.twin.create_image(NewImage::named("al2023-2", ImageArchitecture::X86_64));
    let with =
        |image: &str, o: FleetOverride| FleetOverride { image: Some(ImageId::parse(image).unwrap()), ..o };
    let m5 = || over("m5.large", "us-east-1a");
    for (token, from, code, class) in [
        ("1", with("ami-none", m5()), "InvalidAMIID.NotFound", ErrorClass::ImageUnavailable),
        ("2", with(pending.as_str(), m5()), "InvalidAMIID.Unavailable", ErrorClass::ImageUnavailable),
        ("3", over("m6g.large", "us-east-1a"), "InvalidParameterValue", ErrorClass::Invalid),
        ("4", over("m5.large", "us-east-1z"), "InvalidSubnetID.NotFound", ErrorClass::NotFound),
        ("5", over("g5.xlarge", "us-east-1e"), "InvalidFleetConfiguration", ErrorClass::Unsupported),
        (
            "6",
            FleetOverride { zone: Some(zone("us-east-1b")), ..m5() },
            "InvalidParameterCombination",
            ErrorClass::Invalid,
        ),
        ("7", over("m9.large", "us-east-1a"), "InvalidParameterValue", ErrorClass::Invalid),
    ] {
        let result = world.launch(&fleet(token, 1, &[from]));
        assert_eq!(codes_of(&result), [code], "{token}");
        assert_eq!(result.errors[0].class(), class, "{token}");
        assert!(result.instances.is_empty());
    }
    assert!(world.twin.launches().is_empty());
    let named = &world.twin.requests()[1].images;
    assert!(named.contains(&(pending, Some(ImageState::Pending))));
}

#[test]
fn quotas_addresses_and_failing_pools_are_item_errors() {
    let world = TwinWorld::plain();
    let only = [over("m5.large", "us-east-1a")];
    let quota = |capacity_type| Quota { capacity_type, family: QuotaFamily::Standard };
    world.twin.set_quota(quota(TargetCapacityType::OnDemand), Some(3));
    world.twin.set_quota(quota(TargetCapacityType::Spot), Some(0));
    let result = world.launch(&fleet("a", 2, &only));
    assert_eq!(
        (types_of(&result), codes_of(&result)),
        (vec!["1xm5.large".to_owned()], vec!["VcpuLimitExceeded"])
    );
    assert_eq!(codes_of(&world.launch(&spot(fleet("b", 1, &only)))), ["MaxSpotInstanceCountExceeded"]);
    world.twin.set_quota(quota(TargetCapacityType::OnDemand), None);
    world.twin.set_free_addresses(&subnet("us-east-1a"), 1).unwrap();
    let result = world.launch(&fleet("c", 2, &only));
    assert_eq!(codes_of(&result), ["InsufficientFreeAddressesInSubnet"]);
    assert_eq!(types_of(&result), ["1xm5.large"]);
    let seen = now(world.twin.describe_subnets(&ResourceFilter::default())).unwrap();
    assert_eq!((seen[0].available_addresses, seen[1].available_addresses), (0, 8187));
    let other = pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1b");
    world.twin.fail_pool(other, Some(("UnfulfillableCapacity".to_owned(), "no".to_owned())));
    assert_eq!(
        codes_of(&world.launch(&fleet("d", 1, &[over("m5.large", "us-east-1b")]))),
        ["UnfulfillableCapacity"]
    );
}

#[test]
fn a_fleet_that_names_nothing_launchable_is_refused_whole() {
    let world = TwinWorld::plain();
    let class = |request: &CreateFleetRequest| now(world.twin.create_fleet(request)).unwrap_err().class();
    let only = [over("m5.large", "us-east-1a")];
    assert_eq!(class(&fleet("a", 0, &only)), ErrorClass::Invalid);
    assert_eq!(class(&fleet("b", 1, &[])), ErrorClass::Invalid);
    let mut request = fleet("c", 1, &only);
    request.launch_templates[0].name = "gone".to_owned();
    assert_eq!(class(&request), ErrorClass::TemplateMissing);
    request.launch_templates[0] =
        FleetLaunchTemplate { version: "7".to_owned(), ..fleet("x", 1, &only).launch_templates[0].clone() };
    assert_eq!(class(&request), ErrorClass::TemplateMissing);
    assert!(matches!(world.twin.requests()[0].outcome, RequestOutcome::Refused(_)));
}

#[test]
fn a_token_answers_the_same_until_it_expires() {
    let world = TwinWorld::plain();
    let request = fleet("a", 2, &[over("m5.large", "us-east-1a")]);
    let first = world.launch(&request);
    world.pass(SignedDuration::from_hours(23));
    assert_eq!(world.launch(&request), first);
    let other = fleet("a", 3, &[over("m5.large", "us-east-1a")]);
    assert_eq!(now(world.twin.create_fleet(&other)).unwrap_err().class(), ErrorClass::TokenMismatch);
    assert_eq!(world.twin.launches().len(), 2);
    assert_eq!(world.twin.requests()[1].outcome, RequestOutcome::Replayed);
    world.pass(SignedDuration::from_hours(1));
    assert_ne!(world.launch(&request), first);
    assert_eq!(world.twin.launches().len(), 4);
}

#[test]
fn a_lost_answer_leaves_its_effect_and_a_replay_finds_it() {
    let world = TwinWorld::plain();
    let lost = |effect| Fault { call: Call::CreateFleet, when: FaultWhen::Nth(1), effect };
    let request = fleet("a", 1, &[over("m5.large", "us-east-1a")]);
    world.twin.inject(lost(FaultEffect::RequestLost));
    assert!(matches!(now(world.twin.create_fleet(&request)), Err(Ec2Error::NoAnswer { .. })));
    assert!(world.twin.launches().is_empty());
    world.twin.inject(lost(FaultEffect::AnswerLost));
    assert!(matches!(now(world.twin.create_fleet(&request)), Err(Ec2Error::NoAnswer { .. })));
    assert_eq!(world.twin.launches().len(), 1);
    assert_eq!(world.launch(&request).instance_ids(), [world.twin.launches()[0].instance.clone()]);
    let refused = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    world.twin.inject(lost(FaultEffect::Refused(refused.clone())));
    assert_eq!(now(world.twin.create_fleet(&request)), Err(refused));
    assert_eq!(world.twin.calls()[&Call::CreateFleet].made, 4);
}

#[test]
fn dry_runs_launch_nothing_and_tell_rights_as_their_outcome() {
    let world = TwinWorld::plain();
    let request = fleet("a", 1, &[over("m5.large", "us-east-1a")]);
    let probe = RunInstancesProbe {
        launch_template: "nodes".to_owned(),
        version: "$Default".to_owned(),
        with: over("m5.large", "us-east-1a"),
        capacity_type: tenon_ec2::port::TargetCapacityType::OnDemand,
        tags: FleetTags::default(),
        network_interface_tags: Tags::new(),
        spot_request_tags: Tags::new(),
        metadata_options: None,
        network_interfaces: Vec::new(),
        security_groups: Vec::new(),
    };
    assert_eq!(now(world.twin.dry_run_create_fleet(&request)), Ok(DryRunOutcome::WouldSucceed));
    assert_eq!(now(world.twin.dry_run_run_instances(&probe)), Ok(DryRunOutcome::WouldSucceed));
    world.twin.deny(Call::RunInstances, "an explicit deny in a service control policy");
    let outcome = now(world.twin.dry_run_run_instances(&probe)).unwrap();
    let DryRunOutcome::Unauthorized { action, decoded, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(action, "RunInstances");
    assert_eq!(decoded.as_deref(), Some("an explicit deny in a service control policy"));
    // The real launch still works: the policy lets fleets through.
    world.launch(&request);
    world.twin.deny(Call::CreateFleet, "no");
    assert_eq!(now(world.twin.create_fleet(&request)).unwrap_err().class(), ErrorClass::Unauthorized);
    world.twin.allow(Call::CreateFleet);
    assert_eq!(world.twin.launches().len(), 1);
    let wrong = RunInstancesProbe { with: over("m6g.large", "us-east-1a"), ..probe };
    world.twin.allow(Call::RunInstances);
    assert_eq!(now(world.twin.dry_run_run_instances(&wrong)).unwrap_err().class(), ErrorClass::Invalid);
}
