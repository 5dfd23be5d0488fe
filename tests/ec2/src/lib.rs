//! The same tests of EC2's port, and of the ports beside it that every server has: on the region twin in this process,
//! on the twin on the wire and on moto, both through the adapters of `tenon-aws`.
//!
//! Decides the tests ([`bodies`]), and where servers may differ ([`Difference`]), not how a server is started
//! (`tests/servers/moto`). Invariant: a difference is asserted, so a server that loses one fails its test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of integration tests fail as tests do"
)]

pub mod bodies;
mod difference;
mod line;
mod remote;
mod server;
mod twin;

pub use bodies::run_instances_probe;
pub use difference::Difference;
pub use remote::{MotoServer, WireServer};
pub use server::{Server, ServerWorld};
pub use twin::TwinServer;

/// Runs a test's body to its end.
pub fn run<F: Future>(body: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(body)
}

/// One test for each body, on a server of its own world.
#[macro_export]
macro_rules! edges {
    ($server:expr $(, $attribute:meta)?) => {
        $crate::each! { [$($attribute)?] $server;
            types_are_described_whole,
            offerings_are_in_zones_that_the_account_may_use,
            spot_prices_are_of_known_types_and_zones,
            images_are_told_in_every_state,
            images_are_found_by_what_is_asked_for,
            an_unknown_image_is_named,
            subnets_are_found_by_tag_and_id,
            security_groups_are_found_by_tag_name_and_id,
            templates_are_made_found_and_deleted,
            a_fleet_launches_what_it_was_asked_for,
            a_spot_fleet_launches_spot,
            a_fleet_takes_the_cheapest_override_first,
            a_dry_pool_is_an_error_of_its_override,
            a_client_token_launches_once,
            an_image_that_is_not_available_is_not_launched,
            an_image_of_another_architecture_is_not_launched,
            a_fleet_without_its_template_is_refused,
            an_instance_lives_and_is_terminated,
            one_unknown_instance_refuses_the_whole_call,
            tags_are_set_on_instances,
            a_dry_run_launches_nothing,
            a_dry_run_says_what_is_denied,
            parameters_are_found_by_name_version_and_arn,
            an_instance_profile_is_told_with_its_role,
            a_second_refresh_of_the_catalogue_writes_only_when_it_was,
            the_line_launches_for_pods_and_takes_back_what_never_joins,
        }
    };
}

/// One test for each named body.
#[doc(hidden)]
#[macro_export]
macro_rules! each {
    ($attributes:tt $server:expr; $($body:ident,)*) => { $($crate::one! { $attributes $server; $body })* };
}

/// One test.
#[doc(hidden)]
#[macro_export]
macro_rules! one {
    ([$($attribute:meta)?] $server:expr; $body:ident) => {
        #[test]
        $(#[$attribute])?
        fn $body() {
            $crate::run(async { $crate::bodies::$body(&$server).await });
        }
    };
}
