//! Lists and filters: the catalogue, templates and networks, page by page.

use super::*;

#[test]
fn the_whole_catalogue_comes_in_pages() {
    let world = TwinWorld::new(|c| c.types = TypeSelection::All);
    let mut types = Vec::new();
    let mut page = None;
    loop {
        let next = now(world.twin.describe_instance_types(page)).unwrap();
        assert!(next.items.len() <= 100);
        types.extend(next.items);
        page = next.next;
        if page.is_none() {
            break;
        }
    }
    assert_eq!(types.len(), 1375);
    assert!(types.windows(2).all(|w| w[0].instance_type < w[1].instance_type));
    let prices = now(world.twin.on_demand_prices(Some(PageToken("page-1200".to_owned())))).unwrap();
    assert!(!prices.items.is_empty());
    let wrong = now(world.twin.describe_instance_types(Some(PageToken("x".to_owned())))).unwrap_err();
    assert_eq!(wrong.class(), ErrorClass::Invalid);
}

#[test]
fn offerings_zones_and_prices_agree() {
    let world = TwinWorld::plain();
    let by = |location| now(world.twin.describe_instance_type_offerings(location, None)).unwrap().items;
    let (names, ids) = (by(LocationType::AvailabilityZone), by(LocationType::AvailabilityZoneId));
    assert_eq!(names.len(), ids.len());
    assert!(ids.iter().all(|o| o.location.starts_with("use1-az")));
    assert_eq!(now(world.twin.describe_availability_zones()).unwrap().len(), 6);
    let spot = now(world.twin.describe_spot_price_history(None)).unwrap().items;
    assert_eq!(spot.len(), names.len());
    let on_demand = now(world.twin.on_demand_prices(None)).unwrap().items;
    let price = |t: &InstanceType| on_demand.iter().find(|p| p.instance_type == *t).unwrap().price;
    assert!(spot.iter().all(|p| p.price < price(&p.instance_type)));
}

#[test]
fn templates_are_made_found_and_deleted_by_name() {
    let world = TwinWorld::plain();
    let again = CreateLaunchTemplate {
        name: "nodes".to_owned(),
        data: LaunchTemplateData::default(),
        tags: Tags::new(),
    };
    assert_eq!(
        now(world.twin.create_launch_template(&again)).unwrap_err().class(),
        ErrorClass::AlreadyExists
    );
    let by_name = |name: &str| LaunchTemplateFilter { names: vec![name.to_owned()], tags: Vec::new() };
    assert_eq!(
        now(world.twin.describe_launch_templates(&by_name("nodes"), None)).unwrap().items[0].version,
        1
    );
    let missing = now(world.twin.describe_launch_templates(&by_name("none"), None)).unwrap_err();
    assert_eq!(missing.class(), ErrorClass::TemplateMissing);
    let data = LaunchTemplateData { user_data: Some("A".repeat(21_848)), ..LaunchTemplateData::default() };
    let large = CreateLaunchTemplate { name: "large".to_owned(), data, tags: Tags::new() };
    assert_eq!(now(world.twin.create_launch_template(&large)).unwrap_err().class(), ErrorClass::Invalid);
    now(world.twin.delete_launch_template("nodes")).unwrap();
    assert!(now(world.twin.delete_launch_template("nodes")).is_err());
}

#[test]
fn groups_and_subnets_are_found_by_id_name_and_tag() {
    let world = TwinWorld::plain();
    let tag = TagFilter::equals("kubernetes.io/cluster/c", "owned");
    let by_tag = ResourceFilter { tags: vec![tag], ..ResourceFilter::default() };
    assert_eq!(now(world.twin.describe_subnets(&by_tag)).unwrap().len(), 6);
    let by_name = ResourceFilter { names: vec!["node*".to_owned()], ..ResourceFilter::default() };
    assert_eq!(now(world.twin.describe_security_groups(&by_name)).unwrap().len(), 1);
    let by_id = ResourceFilter { ids: vec!["sg-9".to_owned()], ..ResourceFilter::default() };
    assert_eq!(now(world.twin.describe_security_groups(&by_id)).unwrap_err().class(), ErrorClass::NotFound);
}

#[test]
fn small_pages_and_shared_handles_work_through_the_port() {
    async fn count(ec2: impl Ec2) -> usize {
        let (mut seen, mut page) = (0, None);
        loop {
            let next = ec2.describe_instances(&InstanceFilter::default(), page).await.unwrap();
            seen += next.items.len();
            page = next.next;
            if page.is_none() {
                return seen;
            }
        }
    }
    let world = TwinWorld::new(|c| c.page_size_max = 2);
    world.launch(&fleet("a", 5, &[over("m5.large", "us-east-1a")]));
    assert_eq!(now(count(&world.twin)), 5);
    assert_eq!(now(count(Arc::new(world.twin.clone()))), 5);
}
