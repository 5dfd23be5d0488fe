//! Kubernetes Events, sent by kube-rs' recorder, which counts repeated ones.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tenon_snapshot::kube::FIELD_MANAGER;
use tenon_snapshot::object::Kind;
use tenon_snapshot::{KubeError, Note, NoteKind};

use crate::classify::{KubeCall, classify};

/// The longest note. Source: `Event.note` of `events.k8s.io/v1`: "maximal length ... 1kB".
const NOTE_BYTES: usize = 1024;

/// Sends Events about objects.
#[derive(Clone)]
pub(crate) struct Notes(Recorder);

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notes")
    }
}

impl Notes {
    pub(crate) fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(instance.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    pub(crate) async fn tell(&self, note: &Note) -> Result<(), KubeError> {
        let about = &note.about;
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let regarding = ObjectReference {
            api_version: Some(about.kind.api_version().to_owned()),
            kind: Some(about.kind.as_str().to_owned()),
            name: Some(about.name.clone()),
            namespace: optional(&about.namespace),
            uid: optional(&note.uid),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: match note.kind {
                NoteKind::Normal => EventType::Normal,
                NoteKind::Warning => EventType::Warning,
            },
            reason: note.reason.clone(),
            note: Some(shortened(&note.message)),
            action: note.reason.clone(),
            secondary: None,
        };
        // `Kind` has no Event, because the agent doesn't read Events; the error names the object instead.
        let call = KubeCall { verb: "create", kind: Kind::Lease, part: "", key: Some(about) };
        self.0.publish(&event, &regarding).await.map_err(|error| classify(call, error))
    }
}

fn shortened(message: &str) -> String {
    let mut end = message.len().min(NOTE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default().to_owned()
}
