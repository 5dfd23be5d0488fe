//! Events of EC2, AWS Health and ARC on the default bus, in AWS's form.
//!
//! Decides the form of an event. Loss, duplication and order are the bus's. Invariant: an event's id and time follow
//! from the seed and the history.

use serde_json::{Value, json};
use tenon_domain::Timestamp;
use tenon_domain::id::{ImageId, InstanceId};

use super::random::draw;
use tenon_ec2::port::{ImageState, InstanceState};

/// An event, and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct TwinEvent {
    /// When.
    pub at: Timestamp,
    /// The event as EventBridge delivers it.
    pub json: Value,
}

/// An AWS Health event about instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEvent {
    /// Such as `AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED`.
    pub event_type_code: String,
    /// `scheduledChange`, `issue`, `accountNotification` or `investigation`.
    pub event_type_category: String,
    /// When it begins.
    pub starts_at: Timestamp,
    /// The instances that it is about.
    pub instances: Vec<InstanceId>,
}

/// Where events come from.
pub(super) struct EventSource<'a> {
    pub(super) seed: u64,
    pub(super) region: &'a str,
    pub(super) account: &'a str,
    /// The number of the event, from which its id follows.
    pub(super) number: u64,
    pub(super) at: Timestamp,
}

impl EventSource<'_> {
    pub(super) fn image_state(&self, image: &ImageId, state: ImageState, error: &str) -> TwinEvent {
        // The account field of an image's ARN is empty.
        let resource = format!("arn:aws:ec2:{}::image/{image}", self.region);
        let request = uuid(self.seed, "request", self.number);
        let detail = json!({
            "RequestId": request, "ImageId": image.as_str(), "State": state.as_str(), "ErrorMessage": error,
        });
        self.event("aws.ec2", "EC2 AMI State Change", &resource, detail)
    }

    pub(super) fn instance_state(&self, instance: &InstanceId, state: InstanceState) -> TwinEvent {
        let detail = json!({ "instance-id": instance.as_str(), "state": state.as_str() });
        self.event("aws.ec2", "EC2 Instance State-change Notification", &self.instance_arn(instance), detail)
    }

    pub(super) fn spot_interruption(&self, instance: &InstanceId, zone: &str) -> TwinEvent {
        let detail = json!({ "instance-id": instance.as_str(), "instance-action": "terminate" });
        // AWS's samples have the zone in the region's place and no account, so no code may parse this ARN.
        let resource = format!("arn:aws:ec2:{zone}:instance/{instance}");
        self.event("aws.ec2", "EC2 Spot Instance Interruption Warning", &resource, detail)
    }

    pub(super) fn rebalance(&self, instance: &InstanceId, zone: &str) -> TwinEvent {
        let detail = json!({ "instance-id": instance.as_str() });
        let resource = format!("arn:aws:ec2:{zone}:instance/{instance}");
        self.event("aws.ec2", "EC2 Instance Rebalance Recommendation", &resource, detail)
    }

    pub(super) fn health(&self, health: &HealthEvent) -> TwinEvent {
        let code = &health.event_type_code;
        let entities: Vec<Value> =
            health.instances.iter().map(|i| json!({ "entityValue": i.as_str() })).collect();
        let arn = format!(
            "arn:aws:health:{}::event/EC2/{code}/{}",
            self.region,
            uuid(self.seed, "health", self.number)
        );
        let detail = json!({
            "eventArn": arn,
            "service": "EC2",
            "eventTypeCode": code,
            "eventTypeCategory": health.event_type_category,
            "eventScopeCode": "ACCOUNT_SPECIFIC",
            "communicationId": uuid(self.seed, "communication", self.number),
            "startTime": health_time(health.starts_at),
            "lastUpdatedTime": health_time(self.at),
            "statusCode": "upcoming",
            "eventRegion": self.region,
            "eventDescription": [{ "language": "en_US", "latestDescription": format!("{code} for instances of this account") }],
            "affectedEntities": entities,
            "affectedAccount": self.account,
            "page": "1",
            "totalPages": "1",
        });
        let mut event = self.event("aws.health", "AWS Health Event", "", detail);
        if let Some(resources) = event.json.get_mut("resources") {
            *resources = health.instances.iter().map(|i| i.as_str()).collect();
        }
        event
    }

    pub(super) fn autoshift(&self, away_from: &str, detail_type: &str) -> TwinEvent {
        let detail =
            json!({ "version": "0.0.1", "data": "", "metadata": { "awayFrom": away_from, "notes": "" } });
        let mut event = self.event("aws.arc-zonal-shift", detail_type, "", detail);
        if let Some(resources) = event.json.get_mut("resources") {
            *resources = json!([]);
        }
        event
    }

    fn instance_arn(&self, instance: &InstanceId) -> String {
        format!("arn:aws:ec2:{}:{}:instance/{instance}", self.region, self.account)
    }

    fn event(&self, source: &str, detail_type: &str, resource: &str, detail: Value) -> TwinEvent {
        let json = json!({
            "version": "0",
            "id": uuid(self.seed, "event", self.number),
            "detail-type": detail_type,
            "source": source,
            "account": self.account,
            "time": whole_seconds(self.at),
            "region": self.region,
            "resources": [resource],
            "detail": detail,
        });
        TwinEvent { at: self.at, json }
    }
}

/// An id in the form of a UUID.
pub(super) fn uuid(seed: u64, kind: &str, number: u64) -> String {
    let number = number.to_string();
    let (high, low) =
        (draw(seed, &["uuid", kind, &number, "high"]), draw(seed, &["uuid", kind, &number, "low"]));
    let text = format!("{high:016x}{low:016x}");
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// EventBridge's times have whole seconds.
fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// A time as AWS Health writes it.
fn health_time(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> EventSource<'static> {
        let at = Timestamp::from_millisecond(1_767_225_600_750).unwrap();
        EventSource { seed: 1, region: "us-east-1", account: "111122223333", number: 1, at }
    }

    #[test]
    fn an_image_event_has_aws_s_keys() {
        let event = source().image_state(&ImageId::parse("ami-1").unwrap(), ImageState::Available, "").json;
        assert_eq!(event["detail-type"], "EC2 AMI State Change");
        assert_eq!(event["source"], "aws.ec2");
        assert_eq!(event["time"], "2026-01-01T00:00:00Z");
        assert_eq!(event["resources"][0], "arn:aws:ec2:us-east-1::image/ami-1");
        assert_eq!(event["detail"]["ImageId"], "ami-1");
        assert_eq!(event["detail"]["State"], "available");
        assert_eq!(event["detail"]["ErrorMessage"], "");
        assert_eq!(event["id"].as_str().unwrap().len(), 36);
    }

    #[test]
    fn an_instance_event_has_aws_s_keys() {
        let event =
            source().instance_state(&InstanceId::parse("i-0a").unwrap(), InstanceState::ShuttingDown).json;
        assert_eq!(event["resources"][0], "arn:aws:ec2:us-east-1:111122223333:instance/i-0a");
        assert_eq!(event["detail"], json!({"instance-id": "i-0a", "state": "shutting-down"}));
    }

    #[test]
    fn a_health_event_names_its_instances() {
        let event = source().health(&HealthEvent {
            event_type_code: "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED".to_owned(),
            event_type_category: "scheduledChange".to_owned(),
            starts_at: source().at,
            instances: vec![InstanceId::parse("i-0a").unwrap()],
        });
        assert_eq!(event.json["detail"]["affectedEntities"][0]["entityValue"], "i-0a");
        assert_eq!(event.json["resources"], json!(["i-0a"]));
        assert_eq!(event.json["detail"]["service"], "EC2");
    }
}
