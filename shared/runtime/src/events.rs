//! Events of EventBridge and of our own functions, read into wakes.
//!
//! Decides the wakes of an event. A well-formed event of an unknown kind gives no wake and no error, because rules
//! may match more than the functions know. A body that isn't an event is an error, and ends in the dead-letter queue.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::Value;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{ClusterName, ImageId, InstanceId, ParseIdError};
use tenon_domain::wake::{InterruptionKind, NOTICE, Wake, WakeCause};

/// Why a message isn't an event of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// A field is missing or of another type.
    #[error("`{detail_type}`: `{field}` is missing or isn't {expected}")]
    Field {
        /// The event's `detail-type`, if it has one.
        detail_type: String,
        /// The field, dotted.
        field: &'static str,
        /// The expected form.
        expected: &'static str,
    },
    /// An identifier is malformed.
    #[error("`{field}` is malformed")]
    Id {
        /// The field, dotted.
        field: &'static str,
        /// The cause.
        #[source]
        source: ParseIdError,
    },
}

/// Reads an event's wakes; none for an event of an unknown kind.
///
/// # Errors [`EventError`] names the field.
pub fn parse(body: &str) -> Result<Vec<Wake>, EventError> {
    let event: Value = serde_json::from_str(body).map_err(|error| EventError::Json(error.to_string()))?;
    let source = text(&event, "source")?;
    // AWS's own samples of one event spell it `detail_type`.
    let detail_type = event
        .get("detail-type")
        .or_else(|| event.get("detail_type"))
        .and_then(Value::as_str)
        .ok_or_else(|| field(&event, "detail-type", "a string"))?;
    let detail =
        event.get("detail").filter(|d| d.is_object()).ok_or_else(|| field(&event, "detail", "an object"))?;
    match source {
        "aws.ec2" => parse_ec2(&event, detail_type, detail),
        "aws.health" => parse_health(&event, detail),
        // The event doesn't matter in detail: the function asks ARC for shifted zones.
        "aws.arc-zonal-shift" => Ok(vec![region(WakeCause::ZonalShift)]),
        "aws.imagebuilder" => Ok(parse_image_builder(detail)),
        "ami.pipeline" => parse_pipeline(detail),
        "tenon" | "tenon.schedule" => parse_ours(&event, detail_type, detail),
        agent if agent.starts_with("tenon.agent.") => parse_agent(agent),
        _ => Ok(Vec::new()),
    }
}

fn parse_ec2(event: &Value, detail_type: &str, detail: &Value) -> Result<Vec<Wake>, EventError> {
    match detail_type {
        "EC2 AMI State Change" => {
            Ok(vec![region(WakeCause::ImageChanged(Some(image(event, detail, "ImageId")?)))])
        }
        "EC2 Instance State-change Notification" => {
            let state = detail
                .get("state")
                .and_then(Value::as_str)
                .ok_or_else(|| field(event, "detail.state", "a string"))?
                .to_ascii_lowercase();
            let instance = instance(event, detail)?;
            Ok(vec![region(WakeCause::InstanceState { instance, state })])
        }
        "EC2 Spot Instance Interruption Warning" => interruption(event, detail, InterruptionKind::Spot),
        "EC2 Instance Rebalance Recommendation" => interruption(event, detail, InterruptionKind::Rebalance),
        "EC2 Capacity Reservation Instance Interruption Warning" => {
            interruption(event, detail, InterruptionKind::CapacityReservation)
        }
        _ => Ok(Vec::new()),
    }
}

fn interruption(event: &Value, detail: &Value, kind: InterruptionKind) -> Result<Vec<Wake>, EventError> {
    let deadline = match kind {
        InterruptionKind::Spot | InterruptionKind::CapacityReservation => deadline(event, detail),
        InterruptionKind::Rebalance | InterruptionKind::ScheduledChange => None,
    };
    Ok(vec![region(WakeCause::Interruption { instances: vec![instance(event, detail)?], kind, deadline })])
}

/// When EC2 ends the instance: the event's time, or two minutes after the event. An unreadable time must not stop the
/// drain.
///
/// Source: <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html>, read 2026-11-23:
/// "a warning that is issued two minutes before Amazon EC2 stops or terminates your Spot Instance".
fn deadline(event: &Value, detail: &Value) -> Option<Timestamp> {
    let time =
        |value: Option<&Value>| value.and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    let told = time(detail.get("instance-termination-time"));
    told.or_else(|| time(event.get("time"))?.checked_add(NOTICE).ok())
}

fn parse_health(event: &Value, detail: &Value) -> Result<Vec<Wake>, EventError> {
    let is = |name: &str, wanted: &str| detail.get(name).and_then(Value::as_str) == Some(wanted);
    if !is("service", "EC2") || !is("eventTypeCategory", "scheduledChange") {
        return Ok(Vec::new());
    }
    let entities = detail
        .get("affectedEntities")
        .and_then(Value::as_array)
        .ok_or_else(|| field(event, "detail.affectedEntities", "a list"))?;
    let mut instances = Vec::new();
    for entity in entities {
        let value = entity
            .get("entityValue")
            .and_then(Value::as_str)
            .ok_or_else(|| field(event, "detail.affectedEntities[].entityValue", "a string"))?;
        // Health names volumes and hosts in the same list.
        if value.starts_with("i-") {
            instances.push(parse_instance(value, "detail.affectedEntities[].entityValue")?);
        }
    }
    if instances.is_empty() {
        return Ok(Vec::new());
    }
    let kind = InterruptionKind::ScheduledChange;
    // Without a readable time the change may be near.
    let starts_at = detail.get("startTime").and_then(Value::as_str).and_then(health_time);
    Ok(vec![region(WakeCause::Interruption { instances, kind, deadline: starts_at })])
}

/// A time as AWS Health writes it: `Fri, 27 Jan 2023 06:02:51 GMT`.
///
/// Source: <https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html>.
fn health_time(text: &str) -> Option<Timestamp> {
    rfc2822::parse(text).ok().map(|zoned| zoned.timestamp()).or_else(|| text.parse().ok())
}

/// The event names Image Builder's resource, not an AMI: the function describes images to find new ones.
fn parse_image_builder(detail: &Value) -> Vec<Wake> {
    match detail.pointer("/state/status").and_then(Value::as_str) {
        Some("AVAILABLE" | "FAILED" | "CANCELLED") => vec![region(WakeCause::ImageChanged(None))],
        Some(_) | None => Vec::new(),
    }
}

/// A pipeline's payload only wakes; the verdict comes from EC2.
fn parse_pipeline(detail: &Value) -> Result<Vec<Wake>, EventError> {
    let named = ["ImageId", "imageId", "image-id", "ami"].iter().find_map(|name| detail.get(*name)?.as_str());
    let image = named
        .map(|id| ImageId::parse(id).map_err(|source| EventError::Id { field: "detail.ImageId", source }))
        .transpose()?;
    Ok(vec![region(WakeCause::ImageChanged(image))])
}

fn parse_agent(source: &str) -> Result<Vec<Wake>, EventError> {
    // The cluster is the source's, which IAM pins, and not the detail's, which the agent could choose.
    let cluster = source.strip_prefix("tenon.agent.").unwrap_or_default();
    let cluster = parse_cluster(cluster, "source")?;
    Ok(vec![Wake { cluster: Some(cluster), cause: WakeCause::SnapshotChanged }])
}

fn parse_ours(event: &Value, detail_type: &str, detail: &Value) -> Result<Vec<Wake>, EventError> {
    let cluster = detail
        .get("cluster")
        .and_then(Value::as_str)
        .map(|name| parse_cluster(name, "detail.cluster"))
        .transpose()?;
    let cause = match detail_type {
        "Sweep" | "Sweep Classes" | "Sweep Shifts" => WakeCause::Sweep,
        "Refresh" => {
            let part = detail.get("part").and_then(Value::as_str).and_then(CatalogPart::parse);
            WakeCause::Refresh(part.ok_or_else(|| field(event, "detail.part", "a part of the catalogue"))?)
        }
        "Image Available" | "Image Rejected" => WakeCause::ImageChanged(
            detail.get("image").and_then(Value::as_str).and_then(|id| ImageId::parse(id).ok()),
        ),
        _ => WakeCause::StateChanged,
    };
    Ok(vec![Wake { cluster, cause }])
}

const fn region(cause: WakeCause) -> Wake {
    Wake { cluster: None, cause }
}

fn text<'a>(event: &'a Value, name: &'static str) -> Result<&'a str, EventError> {
    event.get(name).and_then(Value::as_str).ok_or_else(|| field(event, name, "a string"))
}

fn instance(event: &Value, detail: &Value) -> Result<InstanceId, EventError> {
    // Key on the detail, never on the ARN: its form differs between samples.
    let id = detail
        .get("instance-id")
        .and_then(Value::as_str)
        .ok_or_else(|| field(event, "detail.instance-id", "a string"))?;
    parse_instance(id, "detail.instance-id")
}

fn parse_instance(id: &str, field: &'static str) -> Result<InstanceId, EventError> {
    InstanceId::parse(id).map_err(|source| EventError::Id { field, source })
}

fn parse_cluster(name: &str, field: &'static str) -> Result<ClusterName, EventError> {
    ClusterName::parse(name).map_err(|source| EventError::Id { field, source })
}

fn image(event: &Value, detail: &Value, name: &'static str) -> Result<ImageId, EventError> {
    let id =
        detail.get(name).and_then(Value::as_str).ok_or_else(|| field(event, "detail.ImageId", "a string"))?;
    ImageId::parse(id).map_err(|source| EventError::Id { field: "detail.ImageId", source })
}

fn field(event: &Value, field: &'static str, expected: &'static str) -> EventError {
    let detail_type = event.get("detail-type").and_then(Value::as_str).unwrap_or("event").to_owned();
    EventError::Field { detail_type, field, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(event: &Value, expected: &[WakeCause]) {
        let causes: Vec<WakeCause> =
            parse(&event.to_string()).unwrap().into_iter().map(|wake| wake.cause).collect();
        assert_eq!(causes, expected);
    }

    fn instance_id() -> InstanceId {
        InstanceId::parse("i-1234567890abcdef0").unwrap()
    }

    #[test]
    fn an_autoshift_is_a_hint_to_look() {
        let detail = json!({"version": "0.0.1", "data": "", "metadata": {"awayFrom": "use1-az1"}});
        check(
            &json!({"source": "aws.arc-zonal-shift", "detail-type": "Autoshift In Progress", "detail": detail}),
            &[WakeCause::ZonalShift],
        );
    }

    #[test]
    fn c074_interruption_bodies_are_hints() {
        let event = |source: &str, kind: &str, detail: Value| json!({"version": "0", "source": source, "detail-type": kind, "detail": detail});
        let interrupted =
            |kind| [WakeCause::Interruption { instances: vec![instance_id()], kind, deadline: None }];
        let id = "i-1234567890abcdef0";
        check(
            &event(
                "aws.ec2",
                "EC2 Spot Instance Interruption Warning",
                json!({"instance-id": id, "instance-action": "terminate"}),
            ),
            &interrupted(InterruptionKind::Spot),
        );
        check(
            &event("aws.ec2", "EC2 Instance Rebalance Recommendation", json!({"instance-id": id})),
            &interrupted(InterruptionKind::Rebalance),
        );
        check(
            &event(
                "aws.ec2",
                "EC2 Instance State-change Notification",
                json!({"instance-id": id, "state": "Stopping"}),
            ),
            &[WakeCause::InstanceState { instance: instance_id(), state: "stopping".to_owned() }],
        );
        check(
            &event(
                "aws.health",
                "AWS Health Event",
                json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": id}]}),
            ),
            &interrupted(InterruptionKind::ScheduledChange),
        );
        let starts = |time: &str| {
            let detail = json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": time,
                "affectedEntities": [{"entityValue": id}]});
            let wakes = parse(&event("aws.health", "AWS Health Event", detail).to_string()).unwrap();
            let WakeCause::Interruption { deadline, .. } = &wakes[0].cause else { unreachable!() };
            deadline.map(|at| at.to_string())
        };
        let told = Some("2026-02-06T06:02:51Z".to_owned());
        assert_eq!(starts("Fri, 06 Feb 2026 06:02:51 GMT"), told);
        assert_eq!(starts("2026-02-06T06:02:51Z"), told);
        assert_eq!(starts("soon"), None);
        check(
            &event(
                "aws.health",
                "AWS Health Event",
                json!({"service": "EC2", "eventTypeCategory": "issue", "affectedEntities": [{"entityValue": id}]}),
            ),
            &[],
        );
        check(
            &event(
                "aws.ec2",
                "EC2 Capacity Reservation Instance Interruption Warning",
                json!({"instance-id": id, "instance-action": "terminate"}),
            ),
            &interrupted(InterruptionKind::CapacityReservation),
        );
        check(&event("aws.ec2", "EBS Volume Notification", json!({})), &[]);
    }

    #[test]
    fn both_published_shapes_of_the_reservation_warning_are_read() {
        let capacity_block = json!({
            "version": "0", "detail_type": "EC2 Capacity Reservation Instance Interruption Warning",
            "source": "aws.ec2", "resources": ["arn"],
            "detail": {"instance-id": "i-1234567890abcdef0", "instance-lifecycle": "capacity-block"}
        });
        check(
            &capacity_block,
            &[WakeCause::Interruption {
                instances: vec![instance_id()],
                kind: InterruptionKind::CapacityReservation,
                deadline: None,
            }],
        );
    }

    #[test]
    fn a_warnings_deadline_is_ec2s_own() {
        let check = |kind: &str, time: Option<&str>, told: Option<&str>, expected: Option<&str>| {
            let mut event = json!({"source": "aws.ec2", "detail-type": kind, "detail": {"instance-id": "i-1234567890abcdef0"}});
            if let Some(time) = time {
                event["time"] = json!(time);
            }
            if let Some(told) = told {
                event["detail"]["instance-termination-time"] = json!(told);
            }
            let wakes = parse(&event.to_string()).unwrap();
            let WakeCause::Interruption { deadline, .. } = &wakes[0].cause else { unreachable!() };
            assert_eq!(*deadline, expected.map(|text| text.parse().unwrap()), "{kind} {time:?} {told:?}");
        };
        let (spot, reservation) = (
            "EC2 Spot Instance Interruption Warning",
            "EC2 Capacity Reservation Instance Interruption Warning",
        );
        let (noon, after) = (Some("2026-01-01T12:00:00Z"), Some("2026-01-01T12:02:00Z"));
        check(spot, noon, None, after);
        check(spot, None, None, None);
        check(spot, Some("noon"), None, None);
        check(reservation, noon, None, after);
        check(reservation, noon, Some("2026-01-01T12:01:30Z"), Some("2026-01-01T12:01:30Z"));
        check(reservation, noon, Some("soon"), after);
        check("EC2 Instance Rebalance Recommendation", noon, None, None);
    }

    #[test]
    fn an_image_event_has_pascal_case_details() {
        check(
            &json!({"source": "aws.ec2", "detail-type": "EC2 AMI State Change", "detail": {"ImageId": "ami-0123456789", "State": "available"}}),
            &[WakeCause::ImageChanged(Some(ImageId::parse("ami-0123456789").unwrap()))],
        );
    }

    #[test]
    fn an_agent_wakes_for_the_cluster_of_its_source() {
        let body = json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed", "detail": {"cluster": "other"}});
        let wakes = parse(&body.to_string()).unwrap();
        assert_eq!(
            wakes,
            [Wake { cluster: Some(ClusterName::parse("prod").unwrap()), cause: WakeCause::SnapshotChanged }]
        );
    }

    #[test]
    fn a_malformed_event_names_the_field() {
        let error = parse(r#"{"source": "aws.ec2", "detail-type": "EC2 AMI State Change", "detail": {}}"#)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "`EC2 AMI State Change`: `detail.ImageId` is missing or isn't a string"
        );
        assert!(matches!(parse("{").unwrap_err(), EventError::Json(_)));
    }
}
