//! STS: AssumeRole over the twin's launch roles, on its Query protocol, and who asks by the sessions of these roles.
//!
//! Decides the keys of a session, and the caller of a request: a session's role by its key and token, the account's own
//! rights by any other key. It doesn't end sessions, as the twin doesn't. Signatures aren't checked.
//!
//! Source: "STS API Reference", version 2011-06-15, AssumeRole; "Amazon EC2 API Reference", "Error codes for the Amazon
//! EC2 API", AuthFailure (read November 2026).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_twin::RegionTwin;

use crate::error::{OwnCodes, WireError, of_service_call, refused, service_document};
use crate::form::FormFields;
use crate::xml::Xml;

/// The API's version, by which a request is told from one to EC2.
const VERSION: &str = "2011-06-15";
const ACTION: &str = "AssumeRole";
const CODES: OwnCodes = OwnCodes { throttled: (400, "Throttling"), denied: (403, "AccessDenied") };
/// The beginning of a session's key id. Keys of users begin otherwise.
const KEY: &str = "ASIATWIN";
/// The header with a session's token.
const TOKEN: &str = "x-amz-security-token";
/// How long a session lasts where the request doesn't say.
const LASTS: SignedDuration = SignedDuration::from_hours(1);
/// The shortest ARN that STS takes, and the lengths of a session's name.
const ARN_CHARACTERS: usize = 20;
const NAME_CHARACTERS: std::ops::RangeInclusive<usize> = 2..=64;

/// The sessions of a server; clones share them.
#[derive(Clone, Default)]
pub(crate) struct RoleSessions(Arc<Mutex<BTreeMap<String, RoleSession>>>);

struct RoleSession {
    token: String,
    twin: RegionTwin,
}

/// What a session is asked for with.
struct AskedRole {
    arn: String,
    session: String,
}

/// The keys of a session.
struct SessionKeys {
    id: String,
    token: String,
}

impl RoleSessions {
    /// The twin as the caller of a request has it: by a role's rights, or the account's own.
    pub(crate) fn caller(&self, headers: &HeaderMap, own: &RegionTwin) -> Result<RegionTwin, WireError> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let key = text(AUTHORIZATION.as_str()).and_then(key_id).filter(|key| key.starts_with(KEY));
        let Some(key) = key else { return Ok(own.clone()) };
        let sessions = self.kept();
        let session = sessions.get(key).filter(|session| text(TOKEN) == Some(session.token.as_str()));
        session.map(|session| session.twin.clone()).ok_or_else(|| WireError {
            status: 401,
            code: "AuthFailure".to_owned(),
            message: "AWS was not able to validate the provided access credentials".to_owned(),
        })
    }

    fn begin(&self, twin: RegionTwin) -> SessionKeys {
        let mut sessions = self.kept();
        let number = sessions.len();
        let keys = SessionKeys { id: format!("{KEY}{number:012}"), token: format!("token-{number}") };
        sessions.insert(keys.id.clone(), RoleSession { token: keys.token.clone(), twin });
        keys
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, RoleSession>> {
        // Every change of the map is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the key in a signature: `AWS4-HMAC-SHA256 Credential=<id>/<day>/<region>/<service>/aws4_request, …`.
fn key_id(authorization: &str) -> Option<&str> {
    authorization.split_once("Credential=")?.1.split('/').next()
}

/// Whether a request asks STS for a role.
pub(crate) fn is_asked(body: &[u8]) -> bool {
    FormFields::parse(body).is_ok_and(|mut form| {
        form.text("Version").as_deref() == Some(VERSION) && form.text("Action").as_deref() == Some(ACTION)
    })
}

/// The answer to a request: status and document; none if no answer comes.
pub(crate) fn answer(
    twin: &RegionTwin,
    sessions: &RoleSessions,
    body: &[u8],
    request_id: &str,
) -> Option<(u16, String)> {
    match begun(twin, sessions, body) {
        Ok((asked, keys)) => Some((200, document(&asked, &keys, request_id))),
        Err(Some(refusal)) => Some((refusal.status, service_document(&refusal, request_id))),
        Err(None) => None,
    }
}

fn begun(
    twin: &RegionTwin,
    sessions: &RoleSessions,
    body: &[u8],
) -> Result<(AskedRole, SessionKeys), Option<WireError>> {
    let asked = read(body).map_err(Some)?;
    let by_role = twin.assume_role(&asked.arn).map_err(|error| of_service_call(error, CODES))?;
    let keys = sessions.begin(by_role);
    Ok((asked, keys))
}

fn read(body: &[u8]) -> Result<AskedRole, WireError> {
    let mut form = FormFields::parse(body)?;
    form.text("Version");
    form.text("Action");
    let (arn, session) = (form.required("RoleArn")?, form.required("RoleSessionName")?);
    form.finish()?;
    let is_named = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
    if arn.len() < ARN_CHARACTERS || !arn.starts_with("arn:") {
        return Err(refused("ValidationError", format!("{arn} is invalid")));
    }
    if !NAME_CHARACTERS.contains(&session.len()) || !session.chars().all(is_named) {
        let message = format!("Value '{session}' at 'roleSessionName' failed to satisfy constraint");
        return Err(refused("ValidationError", message));
    }
    Ok(AskedRole { arn, session })
}

fn document(asked: &AskedRole, keys: &SessionKeys, request_id: &str) -> String {
    let AskedRole { arn, session } = asked;
    let account = arn.split(':').nth(4).unwrap_or_default();
    let name = arn.rsplit('/').next().unwrap_or(arn);
    // By the real time, as the caller's clock.
    let ends = Timestamp::now().saturating_add(LASTS).unwrap_or(Timestamp::MAX);
    let ends = Timestamp::from_second(ends.as_second()).unwrap_or(ends);
    Xml::document("AssumeRoleResponse", |xml| {
        xml.within("AssumeRoleResult", |xml| {
            xml.within("AssumedRoleUser", |xml| {
                xml.text("AssumedRoleId", format!("AROATWIN:{session}"));
                xml.text("Arn", format!("arn:aws:sts::{account}:assumed-role/{name}/{session}"));
            });
            xml.within("Credentials", |xml| {
                xml.text("AccessKeyId", &keys.id);
                xml.text("SecretAccessKey", "secret");
                xml.text("SessionToken", &keys.token);
                xml.text("Expiration", ends);
            });
        });
        xml.within("ResponseMetadata", |xml| xml.text("RequestId", request_id));
    })
}

#[cfg(test)]
mod tests {
    use tenon_twin::TwinConfig;

    use super::*;

    const ARN: &str = "arn:aws:iam::111122223333:role/tenon/us-east-1/tenon-prod-launch";

    fn twin() -> RegionTwin {
        let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        RegionTwin::new(TwinConfig::new("us-east-1".parse().unwrap(), 1, clock)).unwrap()
    }

    fn asked(arn: &str, more: &str) -> Option<(u16, String)> {
        let twin = twin();
        twin.add_launch_role(ARN, &"prod".parse().unwrap());
        let body =
            format!("Action=AssumeRole&Version={VERSION}&RoleArn={arn}&RoleSessionName=tenon-prod{more}");
        assert!(is_asked(body.as_bytes()));
        answer(&twin, &RoleSessions::default(), body.as_bytes(), "request")
    }

    #[test]
    fn a_role_is_given_with_its_keys_and_others_are_denied() {
        let (status, document) = asked(ARN, "").unwrap();
        assert_eq!(status, 200);
        for part in [
            "<AccessKeyId>ASIATWIN000000000000</AccessKeyId>",
            "<Arn>arn:aws:sts::111122223333:assumed-role/tenon-prod-launch/tenon-prod</Arn>",
        ] {
            assert!(document.contains(part), "{document}");
        }
        let check = |arn: &str, more: &str, status: u16, code: &str| {
            let (found, document) = asked(arn, more).unwrap();
            assert_eq!(found, status, "{document}");
            assert!(document.contains(&format!("<Code>{code}</Code>")), "{document}");
        };
        check("arn:aws:iam::111122223333:role/other", "", 403, "AccessDenied");
        check("arn:short", "", 400, "ValidationError");
        check(ARN, "%20x", 400, "ValidationError");
        check(ARN, "&ExternalId=x", 400, "UnknownParameter");
    }

    #[test]
    fn a_key_of_a_session_needs_its_token() {
        let (twin, sessions) = (twin(), RoleSessions::default());
        let keys = sessions.begin(twin.clone());
        let check = |id: &str, token: Option<&str>, allowed: bool| {
            let mut headers = HeaderMap::new();
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential={id}/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host"
            );
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
            if let Some(token) = token {
                headers.insert(TOKEN, token.parse().unwrap());
            }
            assert_eq!(sessions.caller(&headers, &twin).is_ok(), allowed, "{id} {token:?}");
        };
        check("AKIDEXAMPLE", None, true);
        check(&keys.id, Some(&keys.token), true);
        check(&keys.id, None, false);
        check(&keys.id, Some("other"), false);
        check("ASIATWIN999999999999", Some(&keys.token), false);
        assert!(sessions.caller(&HeaderMap::new(), &twin).is_ok());
    }
}
