//! Requests to a running region in another process.
//!
//! Decides how to reach it, and the advice if none runs. A problem in its answer becomes an error here.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{ClearBody, ErrorList, EventSent, ItemList, JournalList};
use crate::errors::{Failure, Problem};
use crate::state::{GetKind, StoryOf};
use crate::target::Target;

/// A region that runs on this machine.
pub(crate) struct Client {
    port: u16,
    agent: ureq::Agent,
}

impl Client {
    /// The region that answers on this port of 127.0.0.1.
    pub(crate) fn new(port: u16) -> Self {
        // Answers that are errors have a document, too.
        let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        Self { port, agent }
    }

    /// Requests a document.
    fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, Option<&str>)]) -> Result<T, Failure> {
        let path: Vec<String> = path.iter().map(|part| encoded(part)).collect();
        let mut request = self.agent.get(self.url(&path.join("/")));
        for (name, value) in query {
            if let Some(value) = value {
                request = request.query(*name, *value);
            }
        }
        self.read(request.call())
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/v1/{path}", self.port)
    }

    fn read<T: DeserializeOwned>(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, Failure> {
        let port = self.port;
        let mut response = answer.map_err(|error| {
            let remedy = "start a region with `tenon local`, or name its port with `--local=PORT`";
            Problem::new(format!("no region answers on port {port} of 127.0.0.1: {error}"), remedy)
                .at("--local")
        })?;
        let unreadable = |error: &dyn std::fmt::Display| {
            let remedy = "name the port of a region that `tenon local` of the same version runs";
            Failure::from(
                Problem::new(format!("port {port} answers something else: {error}"), remedy).at("--local"),
            )
        };
        if response.status().is_success() {
            return response
                .body_mut()
                .with_config()
                .limit(ANSWER_MAX)
                .read_json()
                .map_err(|e| unreadable(&e));
        }
        let errors: ErrorList = response.body_mut().read_json().map_err(|e| unreadable(&e))?;
        Err(Failure(errors.errors))
    }
}

impl Target for Client {
    fn items(&self, kind: GetKind, cluster: Option<&str>, name: Option<&str>) -> Result<ItemList, Failure> {
        self.get(&["items"], &[("kind", Some(kind.as_str())), ("cluster", cluster), ("name", name)])
    }

    fn journal(&self, of: StoryOf, cluster: Option<&str>, name: &str) -> Result<JournalList, Failure> {
        self.get(&["journal", of.as_str(), name], &[("cluster", cluster)])
    }

    fn clear(&self, what: &ClearBody) -> Result<ItemList, Failure> {
        self.read(self.agent.post(self.url("clear")).send_json(what))
    }

    fn send(&self, event: &Value) -> Result<EventSent, Failure> {
        self.read(self.agent.post(self.url("events")).send_json(event))
    }
}

/// The largest answer: all instance types with their labels have about 4 MB.
const ANSWER_MAX: u64 = 256 << 20;

/// A part of a path, percent-encoded except for `/`, which names of pods contain.
fn encoded(part: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    part.bytes().map(|b| if keeps(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn paths_keep_slashes_and_encode_the_rest() {
        assert_eq!(encoded("default/web-0"), "default/web-0");
        assert_eq!(encoded("a b?c#d"), "a%20b%3Fc%23d");
    }
}
