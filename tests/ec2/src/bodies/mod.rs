//! The tests' bodies: EC2's behaviour, as the port shows it.

mod beside;
mod catalog;
mod dry_runs;
mod fleets;
mod images;
mod instances;
mod line;
mod network;
mod templates;

pub use beside::{an_instance_profile_is_told_with_its_role, parameters_are_found_by_name_version_and_arn};
pub use catalog::{
    offerings_are_in_zones_that_the_account_may_use, spot_prices_are_of_known_types_and_zones,
    types_are_described_whole,
};
pub use dry_runs::{a_dry_run_launches_nothing, a_dry_run_says_what_is_denied, run_instances_probe};
pub use fleets::{
    a_client_token_launches_once, a_dry_pool_is_an_error_of_its_override,
    a_fleet_launches_what_it_was_asked_for, a_fleet_takes_the_cheapest_override_first,
    a_fleet_without_its_template_is_refused, a_spot_fleet_launches_spot,
    an_image_of_another_architecture_is_not_launched, an_image_that_is_not_available_is_not_launched,
};
pub use images::{
    an_unknown_image_is_named, images_are_found_by_what_is_asked_for, images_are_told_in_every_state,
};
pub use instances::{
    an_instance_lives_and_is_terminated, one_unknown_instance_refuses_the_whole_call,
    tags_are_set_on_instances,
};
pub use line::{
    a_second_refresh_of_the_catalogue_writes_only_when_it_was,
    the_line_launches_for_pods_and_takes_back_what_never_joins,
};
pub use network::{security_groups_are_found_by_tag_name_and_id, subnets_are_found_by_tag_and_id};
pub use templates::templates_are_made_found_and_deleted;

use tenon_ec2::port::{CreateFleetRequest, FleetResult, Instance, InstanceFilter, Page, PageToken};
use tenon_ec2::{Ec2, Ec2Error};

use crate::server::Server;

/// All items of a list, by page.
async fn pages<T, F>(ask: impl Fn(Option<PageToken>) -> F) -> Vec<Vec<T>>
where
    F: Future<Output = Result<Page<T>, Ec2Error>>,
{
    let (mut pages, mut next) = (Vec::new(), None);
    loop {
        let page = ask(next).await.unwrap();
        pages.push(page.items);
        next = page.next;
        if next.is_none() {
            return pages;
        }
        assert!(pages.len() < 100, "the list never ends");
    }
}

/// Creates the world's template, and requests a fleet of it.
async fn launch<S: Server>(server: &S, request: &CreateFleetRequest) -> Result<FleetResult, Ec2Error> {
    server.ec2().create_launch_template(&server.world().template()).await.unwrap();
    server.ec2().create_fleet(request).await
}

/// The world's instances, by id.
pub(crate) async fn instances<S: Server>(server: &S) -> Vec<Instance> {
    let filter = InstanceFilter { tags: vec![server.world().filter()], ..InstanceFilter::default() };
    let mut found: Vec<Instance> =
        pages(|page| server.ec2().describe_instances(&filter, page)).await.into_iter().flatten().collect();
    found.sort();
    found
}
