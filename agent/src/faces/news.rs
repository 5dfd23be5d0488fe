//! What Events are about: each is sent once by an agent, as soon as it sees the reason.
//!
//! Decides which news is still to be sent. The functions decide what is told again: then it has a later time. A new
//! leader may send news again that is younger than [`NEWS_FOR`].

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_snapshot::object::{Kind, ObjectKey};
use tenon_snapshot::{Kube, Note};

/// News for so long: the API server keeps an Event for an hour, and functions tell what lasts again after an hour.
pub const NEWS_FOR: SignedDuration = SignedDuration::from_hours(1);
/// Events of one look at most; the next look sends the others.
const MOST_AT_ONCE: usize = 50;

/// An Event that is due once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// The reason's identity; the object is in the Event.
    pub of: String,
    /// The time of the decision.
    pub at: Timestamp,
    /// The Event.
    pub note: Note,
}

/// The decisions that this agent sent Events about, by identity and object.
#[derive(Debug, Default)]
pub struct SentNews(BTreeMap<(String, ObjectKey), Timestamp>);

/// Gives Events about pods the UID of their pod: `kubectl describe` finds them by it.
pub(crate) async fn with_pods_uids<K: Kube>(kube: &K, mut news: Vec<News>) -> Vec<News> {
    let is_nameless = |news: &News| news.note.about.kind == Kind::Pod && news.note.uid.is_empty();
    if news.iter().any(is_nameless)
        && let Ok(pods) = kube.pods().await
    {
        let uids: BTreeMap<&ObjectKey, &String> = pods.iter().map(|pod| (&pod.key, &pod.uid)).collect();
        for one in news.iter_mut().filter(|news| is_nameless(news)) {
            one.note.uid = uids.get(&one.note.about).copied().cloned().unwrap_or_default();
        }
    }
    news
}

impl SentNews {
    /// The news that this agent hasn't sent yet. Forgets Events of more than an hour ago.
    pub fn unsent(&mut self, news: Vec<News>, now: Timestamp) -> Vec<News> {
        self.0.retain(|_, at| now.duration_since(*at) < NEWS_FOR);
        let is_due = |news: &News| {
            let sent = self.0.get(&news.key());
            now.duration_since(news.at) < NEWS_FOR && sent.is_none_or(|sent| *sent < news.at)
        };
        news.into_iter().filter(is_due).take(MOST_AT_ONCE).collect()
    }

    /// Records that an Event was sent.
    pub fn sent(&mut self, news: &News) {
        self.0.insert(news.key(), news.at);
    }
}

impl News {
    fn key(&self) -> (String, ObjectKey) {
        (self.of.clone(), self.note.about.clone())
    }
}

#[cfg(test)]
mod tests {
    use tenon_snapshot::NoteKind;

    use super::*;

    #[test]
    fn what_was_decided_while_no_agent_looked_is_sent_once_and_again_when_it_is_told_again() {
        let at = |minutes: i64| Timestamp::from_second(minutes * 60).unwrap();
        let news = |name: &str, minutes: i64| News {
            of: "refused".to_owned(),
            at: at(minutes),
            note: Note {
                about: ObjectKey::node(name),
                uid: String::new(),
                kind: NoteKind::Warning,
                reason: "Unschedulable".to_owned(),
                message: String::new(),
            },
        };
        let mut sent = SentNews::default();
        let mut look = |all: &[News], minutes: i64| {
            let due = sent.unsent(all.to_vec(), at(minutes));
            due.iter().for_each(|news| sent.sent(news));
            due.len()
        };
        assert_eq!(look(&[news("old", 0), news("a", 30), news("b", 30)], 60), 2, "an hour is no news");
        let (same, again) = ([news("a", 30)], [news("a", 90)]);
        assert_eq!([look(&same, 61), look(&again, 91), look(&again, 92)], [0, 1, 0]);
        let many: Vec<News> = (0..120).map(|n| news(&format!("n-{n}"), 100)).collect();
        assert_eq!([0, 1, 2, 3].map(|_| look(&many, 101)), [50, 50, 20, 0]);
    }
}
