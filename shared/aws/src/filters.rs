//! The port's filters as EC2's.
//!
//! Decides the names of filters. Empty criteria are left out.

use aws_sdk_ec2::types::Filter;
use tenon_ec2::port::{
    CapacityReservationFilter, ImageFilter, ImageState, InstanceFilter, InstanceStatusFilter, ResourceFilter,
    ScheduledEventCode, TagFilter,
};

/// EC2's states that the port calls invalid: none of them can be launched.
pub(crate) const INVALID_IMAGE_STATES: [&str; 3] = ["invalid", "transient", "error"];

fn filter(name: impl Into<String>, values: Vec<String>) -> Option<Filter> {
    (!values.is_empty()).then(|| Filter::builder().name(name).set_values(Some(values)).build())
}

pub(crate) fn tags(tags: &[TagFilter]) -> Vec<Filter> {
    let of_tag = |tag: &TagFilter| {
        if tag.values.is_empty() {
            filter("tag-key", vec![tag.key.clone()])
        } else {
            filter(format!("tag:{}", tag.key), tag.values.clone())
        }
    };
    tags.iter().filter_map(of_tag).collect()
}

pub(crate) fn images(image: &ImageFilter) -> Vec<Filter> {
    let words = |state: &ImageState| match state {
        ImageState::Invalid => INVALID_IMAGE_STATES.map(str::to_owned).to_vec(),
        ImageState::Pending
        | ImageState::Available
        | ImageState::Failed
        | ImageState::Deregistered
        | ImageState::Disabled => vec![state.as_str().to_owned()],
    };
    let states = image.states.iter().flat_map(words).collect();
    let own = [filter("name", image.names.clone()), filter("state", states)];
    own.into_iter().flatten().chain(tags(&image.tags)).collect()
}

pub(crate) fn instances(instance: &InstanceFilter) -> Vec<Filter> {
    let states = instance.states.iter().map(|state| state.as_str().to_owned()).collect();
    filter("instance-state-name", states).into_iter().chain(tags(&instance.tags)).collect()
}

pub(crate) fn instance_status(of: InstanceStatusFilter) -> Vec<Filter> {
    let asked = match of {
        InstanceStatusFilter::Impaired(check) => {
            filter(format!("{}-status.status", check.as_str()), vec!["impaired".to_owned()])
        }
        InstanceStatusFilter::ScheduledEvents => {
            let codes = ScheduledEventCode::ALL.iter().map(|code| code.as_str().to_owned());
            filter("event.code", codes.collect())
        }
    };
    asked.into_iter().collect()
}

/// Only security groups are found by name; subnets have none.
pub(crate) fn groups(resource: &ResourceFilter) -> Vec<Filter> {
    filter("group-name", resource.names.clone()).into_iter().chain(tags(&resource.tags)).collect()
}

/// Active reservations only.
pub(crate) fn reservations(reservation: &CapacityReservationFilter) -> Vec<Filter> {
    let owner = reservation.owner.iter().cloned().collect();
    let criteria = reservation.match_criteria.iter().map(|criteria| criteria.as_str().to_owned()).collect();
    let own = [
        filter("state", vec!["active".to_owned()]),
        filter("owner-id", owner),
        filter("instance-match-criteria", criteria),
    ];
    own.into_iter().flatten().chain(tags(&reservation.tags)).collect()
}

/// Available placement groups only.
pub(crate) fn placement_groups() -> Vec<Filter> {
    filter("state", vec!["available".to_owned()]).into_iter().collect()
}

/// A list that EC2 takes as missing when it is empty.
pub(crate) fn list<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filters: &[Filter], expected: &[(&str, &[&str])]) {
        let found: Vec<(&str, &[String])> =
            filters.iter().map(|f| (f.name().unwrap_or_default(), f.values())).collect();
        let expected: Vec<(&str, Vec<String>)> = expected
            .iter()
            .map(|(name, values)| (*name, values.iter().map(ToString::to_string).collect()))
            .collect();
        assert_eq!(found, expected.iter().map(|(n, v)| (*n, v.as_slice())).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_asked_for_is_no_filter() {
        check(&images(&ImageFilter::default()), &[]);
        check(&instances(&InstanceFilter::default()), &[]);
        check(&groups(&ResourceFilter::default()), &[]);
    }

    #[test]
    fn tags_are_asked_for_by_key_or_by_value() {
        let both = [TagFilter::exists("team"), TagFilter::equals("name", "web*")];
        check(&tags(&both), &[("tag-key", &["team"]), ("tag:name", &["web*"])]);
    }

    #[test]
    fn an_invalid_image_is_in_any_of_three_states() {
        let filter = ImageFilter {
            names: vec!["al2023-*".to_owned()],
            states: vec![ImageState::Available, ImageState::Invalid],
            ..ImageFilter::default()
        };
        check(
            &images(&filter),
            &[("name", &["al2023-*"]), ("state", &["available", "invalid", "transient", "error"])],
        );
    }
}
