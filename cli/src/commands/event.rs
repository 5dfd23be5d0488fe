//! `tenon event`: an event in AWS's form.
//!
//! Decides the forms. The region fills in absent fields (id, account, time, region). An event only says when to look:
//! EC2 decides what is true.

use std::path::Path;

use serde_json::{Value, json};
use tenon_domain::id::{ImageId, InstanceId, ParseIdError};

use crate::args::EventArgs;
use crate::errors::{CommandOutcome, Failure, Problem, did_you_mean, quoted};
use crate::input;
use crate::output::{self, OutputFormat};
use crate::target;

/// The kind of an event.
#[derive(Debug, Clone, Copy)]
enum EventShape {
    /// EC2 AMI State Change.
    Image { state: &'static str },
    /// EC2 Instance State-change Notification.
    Instance { state: &'static str },
    /// A warning about an instance.
    Warning { detail_type: &'static str, action: Option<&'static str> },
    /// A pipeline's own event.
    Pipeline,
}

/// The events with a short name.
const WORDS: [(&str, EventShape); 10] = [
    ("ami-available", EventShape::Image { state: "available" }),
    ("ami-failed", EventShape::Image { state: "failed" }),
    ("ami-deregistered", EventShape::Image { state: "deregistered" }),
    ("ami-disabled", EventShape::Image { state: "disabled" }),
    (
        "spot-interruption",
        EventShape::Warning {
            detail_type: "EC2 Spot Instance Interruption Warning",
            action: Some("terminate"),
        },
    ),
    ("rebalance", EventShape::Warning { detail_type: "EC2 Instance Rebalance Recommendation", action: None }),
    ("instance-shutting-down", EventShape::Instance { state: "shutting-down" }),
    ("instance-stopped", EventShape::Instance { state: "stopped" }),
    ("instance-terminated", EventShape::Instance { state: "terminated" }),
    ("pipeline", EventShape::Pipeline),
];

/// Runs the command.
pub(crate) fn run(args: &EventArgs) -> Result<CommandOutcome, Failure> {
    let event = match (WORDS.iter().find(|(word, _)| *word == args.what), &args.id) {
        (Some((_, shape)), Some(id)) => shape.event(id)?,
        (Some((word, shape)), None) => {
            let of = shape.subject();
            let message = format!("`{word}` needs {of}: which one?");
            return Err(Problem::new(message, format!("write `tenon event {word} {of}`")).at("ID").into());
        }
        (None, None) => from_file(&args.what)?,
        (None, Some(_)) => return Err(unknown(&args.what)),
    };
    let sent = target::open(&args.target)?.send(&event)?;
    match args.output.format {
        OutputFormat::Table => {
            let what = event.get("detail-type").and_then(Value::as_str).unwrap_or("event");
            let names: Vec<&str> = sent.functions.iter().map(String::as_str).collect();
            let wakes = if names.is_empty() {
                "no rule matches it".to_owned()
            } else {
                format!("wakes {}", names.join(", "))
            };
            output::write(&format!("sent {what}: {wakes}\n"))?;
        }
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            output::write(&output::document_text(format, &sent))?;
        }
    }
    Ok(if sent.functions.is_empty() { CommandOutcome::No } else { CommandOutcome::Done })
}

fn unknown(what: &str) -> Failure {
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let remedy = did_you_mean(what, words.iter().copied(), &format!("use {}", quoted(&words)));
    Problem::new(format!("`{what}` isn't an event"), remedy).at("EVENT").into()
}

fn from_file(name: &str) -> Result<Value, Failure> {
    let path = Path::new(name);
    if name != "-" && !path.exists() {
        let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
        let otherwise = format!("give a file that exists, or one of {}", quoted(&words));
        let remedy = did_you_mean(name, words.iter().copied(), &otherwise);
        return Err(Problem::new(format!("`{name}` is neither a file nor an event"), remedy)
            .at("EVENT")
            .into());
    }
    let text = input::read_text(path)?;
    let wrong = |message: String, line: Option<u32>| {
        let remedy =
            "give one event as EventBridge delivers it: an object with `source`, `detail-type` and `detail`";
        Failure::from(Problem::new(message, remedy).in_file(input::name_of(path)).on_line(line))
    };
    let event: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(error.to_string(), u32::try_from(error.line()).ok()))?;
    let missing =
        ["source", "detail-type"].into_iter().find(|field| event.get(field).is_none_or(|v| !v.is_string()));
    match missing {
        Some(field) => Err(wrong(format!("`{field}` is missing or isn't a string"), None)),
        None => Ok(event),
    }
}

impl EventShape {
    const fn subject(self) -> &'static str {
        match self {
            Self::Image { .. } | Self::Pipeline => "AMI",
            Self::Instance { .. } | Self::Warning { .. } => "INSTANCE",
        }
    }

    fn event(self, id: &str) -> Result<Value, Failure> {
        let wrong = |error: ParseIdError| Problem::new(error.to_string(), "give its id").at("ID");
        match self {
            Self::Image { .. } | Self::Pipeline => ImageId::parse(id).map(drop).map_err(wrong)?,
            Self::Instance { .. } | Self::Warning { .. } => instance(id).map(drop).map_err(wrong)?,
        }
        Ok(match self {
            Self::Image { state } => json!({
                "source": "aws.ec2",
                "detail-type": "EC2 AMI State Change",
                "detail": {"ImageId": id, "State": state, "ErrorMessage": ""},
            }),
            Self::Instance { state } => json!({
                "source": "aws.ec2",
                "detail-type": "EC2 Instance State-change Notification",
                "detail": {"instance-id": id, "state": state},
            }),
            Self::Warning { detail_type, action } => {
                let mut detail = json!({ "instance-id": id });
                if let (Some(action), Some(fields)) = (action, detail.as_object_mut()) {
                    fields.insert("instance-action".to_owned(), json!(action));
                }
                json!({ "source": "aws.ec2", "detail-type": detail_type, "detail": detail })
            }
            Self::Pipeline => json!({
                "source": "ami.pipeline",
                "detail-type": "Image Finished",
                "detail": {"ImageId": id},
            }),
        })
    }
}

/// An instance's id as EC2 gives them: of 17 digits, of 8 before 2016. A shorter one names no instance.
fn instance(id: &str) -> Result<InstanceId, ParseIdError> {
    let parsed = InstanceId::parse(id)?;
    match id.strip_prefix("i-").map(str::len) {
        Some(8 | 17) => Ok(parsed),
        Some(_) | None => Err(ParseIdError {
            kind: "instance id",
            value: id.to_owned(),
            expected: "`i-` and 8 or 17 hexadecimal digits",
        }),
    }
}

#[cfg(test)]
mod tests {
    use tenon_runtime::events::parse;

    use super::*;

    #[test]
    fn every_word_makes_an_event_that_functions_understand() {
        for (word, shape) in WORDS {
            let id = if shape.subject() == "AMI" { "ami-0a1" } else { "i-0123456789abcdef0" };
            let event = shape.event(id).unwrap();
            let wakes = parse(&event.to_string()).unwrap();
            assert_eq!(wakes.len(), 1, "{word}");
            assert!(shape.event("nonsense").is_err(), "{word}");
        }
    }

    #[test]
    fn an_instances_id_has_8_or_17_hexadecimal_digits() {
        let check = |id: &str, expected: bool| assert_eq!(instance(id).is_ok(), expected, "{id}");
        check("i-0123456789abcdef0", true);
        check("i-0a1b2c3d", true);
        for wrong in
            ["i-nosuch", "i-0a1", "i-0123456789abcdefg", "i-0123456789ABCDEF0", "0123456789abcdef0", "i-"]
        {
            check(wrong, false);
        }
    }
}
