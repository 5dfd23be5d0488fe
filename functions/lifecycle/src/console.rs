//! The end of an instance's console, where its cluster's stack lets Tenon read it.
//!
//! Decides for which claims it is read, and what of it is kept. An instance that never joins says there why: nodeadm's and
//! the kubelet's last words. It is read once, in the pass that gives the instance up. User data and programs may write
//! secrets to a console, so that whatever looks like one isn't kept.

use std::collections::BTreeMap;

use tenon_domain::claim::joining::REGISTRATION_TIMEOUT;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance};
use tenon_domain::id::InstanceId;
use tenon_domain::registry::FeatureGate;
use tenon_ec2::Ec2;
use tenon_runtime::Ports;

use crate::input::{LifecycleInput, NodeSeen};

/// How many consoles a pass reads: one shows what the others of a burst would.
const READ_MOST: usize = 5;
/// How many lines are kept, each of so many characters: an item of the journal is small.
const LINES: usize = 20;
const LINE_LENGTH: usize = 200;
/// What stands in the place of a secret.
const HIDDEN: &str = "[hidden]";
/// A word at least so long that mixes small letters, capitals and digits, or is hexadecimal, is a key or a token.
const SECRET_LENGTH: usize = 32;
/// The value after such a name is a secret; the words of these names are in any case and order.
const SECRET_NAMES: [&str; 8] =
    ["secret", "password", "passwd", "token", "credential", "authorization", "signature", "apikey"];
/// How ids of access keys begin; they are this long.
const ACCESS_KEYS: [&str; 2] = ["AKIA", "ASIA"];
const ACCESS_KEY_LENGTH: usize = 20;

/// The instance of a claim that is given up because no Node of it joined.
fn given_up<'a>(claim: &'a Claim, input: &LifecycleInput) -> Option<&'a LaunchedInstance> {
    let ClaimState::Launched { instance, at } = &claim.state else { return None };
    let joined = matches!(input.node_of(instance, *at), NodeSeen::Present(_));
    (input.since(*at) >= REGISTRATION_TIMEOUT && !joined).then_some(instance)
}

/// Whether the cluster's settings are needed for a plan.
pub(crate) fn needs_settings(input: &LifecycleInput) -> bool {
    input.claims.values().any(|claim| given_up(claim, input).is_some())
}

/// Reads the consoles. What EC2 refuses stands in the place of its answer: nothing else waits for it.
pub(crate) async fn observe<P: Ports>(ports: &P, input: &LifecycleInput) -> BTreeMap<InstanceId, String> {
    let mut found = BTreeMap::new();
    if input.console_output == FeatureGate::Disabled {
        return found;
    }
    let instances = input.claims.values().filter_map(|claim| given_up(claim, input));
    for instance in instances.take(READ_MOST) {
        let text = match ports.ec2().console_output(&instance.id).await {
            Ok(Some(text)) => kept(&text),
            Ok(None) => "EC2 has no console output of it yet".to_owned(),
            Err(error) => format!("its console output couldn't be read: {error}"),
        };
        found.insert(instance.id.clone(), text);
    }
    found
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
    let mut found = String::new();
    let mut characters = line.chars();
    while let Some(one) = characters.next() {
        if one == '\u{1b}' {
            // A sequence ends with its first letter.
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else if !one.is_control() {
            found.push(one);
        }
    }
    found.trim().to_owned()
}

/// A line with the secrets hidden.
fn hidden(line: &str) -> String {
    let mut found = String::new();
    let mut names_secret = false;
    for piece in pieces(line) {
        if !is_word(piece) {
            found.push_str(piece);
            continue;
        }
        let names = names_one(piece);
        let is_value = names_secret && !names && !is_scheme(piece);
        found.push_str(if is_value || is_secret(piece) { HIDDEN } else { piece });
        // What follows the name or the scheme is the secret, and what follows that isn't.
        names_secret = names || (names_secret && is_scheme(piece));
    }
    found
}

/// Words, and what is between them.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let of_word = |one: char| one.is_ascii_alphanumeric() || "+/=_-".contains(one);
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        // A name and its value, as in `token=abc`, are two words.
        let end = match first {
            '=' => rest.find(|one| one != '='),
            first if of_word(first) => {
                let end = rest.find(|one| !of_word(one)).unwrap_or(rest.len());
                let word = rest.get(..end).unwrap_or(rest);
                Some(word.trim_end_matches('=').find('=').unwrap_or(end))
            }
            _ => rest.find(of_word),
        };
        let (piece, left) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        rest = left;
        Some(piece)
    })
}

fn is_word(piece: &str) -> bool {
    piece.contains(|one: char| one.is_ascii_alphanumeric())
}

fn names_one(word: &str) -> bool {
    let plain: String =
        word.chars().filter(char::is_ascii_alphanumeric).map(|one| one.to_ascii_lowercase()).collect();
    SECRET_NAMES.iter().any(|name| plain.contains(name)) || plain.ends_with("accesskey")
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

fn is_secret(word: &str) -> bool {
    let is_access_key =
        ACCESS_KEYS.iter().any(|start| word.starts_with(start)) && word.len() == ACCESS_KEY_LENGTH;
    let has = |of: fn(&char) -> bool| word.chars().any(|one| of(&one));
    let is_mixed =
        has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit);
    let is_hexadecimal = word.chars().all(|one| one.is_ascii_hexdigit());
    is_access_key || (word.len() >= SECRET_LENGTH && (is_mixed || is_hexadecimal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_hidden_and_the_rest_stays() {
        let check = |line: &str, expected: &str| assert_eq!(hidden(line), expected, "{line}");
        check(
            "kubelet: failed to run: no such file /etc/kubernetes/kubelet/config.json",
            "kubelet: failed to run: no such file /etc/kubernetes/kubelet/config.json",
        );
        check(
            "[   12.9] nodeadm[1610]: i-0123456789abcdef0 in ip-10-0-32-187.ec2.internal",
            "[   12.9] nodeadm[1610]: i-0123456789abcdef0 in ip-10-0-32-187.ec2.internal",
        );
        check("DB_PASSWORD=hunter2 next", "DB_PASSWORD=[hidden] next");
        check(r#"{"token": "abc", "user": "me"}"#, r#"{"token": "[hidden]", "user": "me"}"#);
        check("Authorization: Bearer abc.def", "Authorization: Bearer [hidden].def");
        check(
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [hidden]",
        );
        check("key wJalrXUtnFEMI/K7MDENG/bPxRfi3YEXAMPLEKEY", "key [hidden]");
        check("id AKIAIOSFODNN7EXAMPLE used", "id [hidden] used");
        check("sha 0123456789abcdef0123456789abcdef01234567", "sha [hidden]");
        check("größe=3 ═══", "größe=3 ═══");
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
