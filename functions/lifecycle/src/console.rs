//! The end of an instance's console, where its cluster's stack lets Tenon read it.
//!
//! Decides whose console is read, and what of it is kept. An instance that never joins says there why: nodeadm's and the
//! kubelet's last words. It is read when a plan gives the instance up, which is then planned again with it. User data and
//! programs may write secrets to a console, so that whatever looks like one isn't kept.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use tenon_domain::claim::{ClaimState, RemovalReason};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_ec2::Ec2;
use tenon_runtime::{HandlerError, Ports};
use tenon_table::items::keys;
use tenon_table::{Consistency, Table};

use crate::observe::read;
use crate::plan::LifecyclePlan;

/// How many consoles a pass reads: one shows what the others of a burst would.
const READ_MOST: usize = 5;
/// How many lines are kept, each of so many characters: an item of the journal is small.
const LINES: usize = 20;
const LINE_LENGTH: usize = 200;
/// What stands in the place of a secret.
const HIDDEN: &str = "[hidden]";

/// The instances that the plan gives up because no Node of theirs joined.
pub(crate) fn given_up(plan: &LifecyclePlan) -> Vec<InstanceId> {
    let steps = plan.steps.iter().filter(|step| {
        let held = plan.boots.iter().any(|lesson| lesson.holds.contains(&step.before.name));
        step.after.state.removal() == Some(RemovalReason::RegistrationTimeout) && !held
    });
    let launched = steps.filter_map(|step| match &step.before.state {
        ClaimState::Launched { instance, .. } => Some(instance.id.clone()),
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    });
    launched.take(READ_MOST).collect()
}

/// Reads consoles, if the cluster's stack lets it. What EC2 refuses stands in the place of its answer.
///
/// # Errors
/// [`HandlerError`] if the cluster's registry entry can't be read.
pub(crate) async fn observe<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    instances: &[InstanceId],
) -> Result<BTreeMap<InstanceId, String>, HandlerError> {
    let mut found = BTreeMap::new();
    let key = keys::registry(&ports.installation().region, cluster);
    let entry = ports.table().get(&key, Consistency::Eventual).await?;
    let entry: Option<Registry> = entry.map(|item| read(&key, &item)).transpose()?;
    if entry.is_none_or(|entry| entry.settings.console_output == FeatureGate::Disabled) {
        return Ok(found);
    }
    for id in instances {
        let text = match ports.ec2().console_output(id).await {
            Ok(Some(text)) => kept(&text),
            Ok(None) => "EC2 has no console output of it yet".to_owned(),
            Err(error) => format!("its console output couldn't be read: {error}"),
        };
        found.insert(id.clone(), text);
    }
    Ok(found)
}

/// The last lines of a console, without what looks like a secret.
fn kept(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    let short = |line: &String| hidden(line).chars().take(LINE_LENGTH).collect::<String>();
    last.iter().map(short).collect::<Vec<_>>().join("\n")
}

/// A line without colours and other control characters.
fn plain(line: &str) -> String {
    static COLOUR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\x1b\[[0-9;]*[A-Za-z]").ok());
    let plain = COLOUR.as_ref().map_or(line.into(), |colour| colour.replace_all(line, ""));
    plain.replace(char::is_control, "").trim().to_owned()
}

/// The value after a name that says secret, credentials in a URL, the id of an access key, and long words.
const SECRETS: &str = concat!(
    r"(?i:(?P<name>[\w-]*(?:secret|passw|token|credential|authorization|signature|api[_-]?key|access[_-]?key)[\w-]*",
    r#"["']?[\s:=]+["']?(?:(?:bearer|basic)\s+)?)[^\s"',;]+)"#,
    r"|(?P<scheme>://)[^/\s@]+@",
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"|(?P<word>[A-Za-z0-9+/=_-]{32,})",
);

/// A line with the secrets hidden.
fn hidden(line: &str) -> String {
    static FOUND: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SECRETS).ok());
    let Some(secrets) = FOUND.as_ref() else { return HIDDEN.to_owned() };
    let hide = |found: &Captures<'_>| match (found.name("name"), found.name("scheme"), found.name("word")) {
        (Some(name), ..) => format!("{}{HIDDEN}", name.as_str()),
        (_, Some(scheme), _) => format!("{}{HIDDEN}@", scheme.as_str()),
        (.., Some(word)) if !is_key(word.as_str()) => word.as_str().to_owned(),
        (None, None, _) => HIDDEN.to_owned(),
    };
    secrets.replace_all(line, hide).into_owned()
}

/// Whether a long word is a key or a token: it mixes small letters, capitals and digits, or is hexadecimal.
fn is_key(word: &str) -> bool {
    let has = |of: fn(&char) -> bool| word.chars().any(|one| of(&one));
    let is_mixed =
        has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit);
    is_mixed || word.chars().all(|one| one.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_hidden_and_the_rest_stays() {
        let check = |line: &str, expected: &str| assert_eq!(hidden(line), expected, "{line}");
        let stays = |line: &str| check(line, line);
        stays("kubelet: failed to run: no such file /etc/kubernetes/kubelet/config.json");
        stays("[   12.9] nodeadm[1610]: i-0123456789abcdef0 in ip-10-0-32-187.ec2.internal");
        stays("kubelet: https://0123456789.gr7.us-east-1.eks.amazonaws.com: x509: certificate has expired");
        stays("größe=3 ═══");
        check("DB_PASSWORD=hunter2 next", "DB_PASSWORD=[hidden] next");
        check(r#"{"token": "abc", "user": "me"}"#, r#"{"token": "[hidden]", "user": "me"}"#);
        check("Authorization: Bearer abc.def", "Authorization: Bearer [hidden]");
        check("bootstrap token abcdef.0123456789abcdef", "bootstrap token [hidden]");
        check(
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [hidden]",
        );
        check("key wJalrXUtnFEMI/K7MDENG/bPxRfi3YEXAMPLEKEY", "key [hidden]");
        check("id AKIAIOSFODNN7EXAMPLE used", "id [hidden] used");
        check("sha 0123456789abcdef0123456789abcdef01234567", "sha [hidden]");
        check("pull https://me:hunter2@registry.example/v2", "pull https://[hidden]@registry.example/v2");
    }

    #[test]
    fn the_last_lines_are_kept_without_colours() {
        let text: String = (0..50).map(|n| format!("\u{1b}[32mline {n}\u{1b}[0m\r\n\n")).collect();
        let kept = kept(&text);
        assert_eq!(
            (kept.lines().count(), kept.lines().next(), kept.lines().last()),
            (LINES, Some("line 30"), Some("line 49"))
        );
        assert_eq!(super::kept(&"x ".repeat(500)).len(), LINE_LENGTH);
        assert_eq!(super::kept(""), "");
    }
}
