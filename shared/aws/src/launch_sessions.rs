//! Sessions of launch roles, each with a client of EC2.
//!
//! Decides how long a session is used. The caller decides when a role is taken, and who is told of a denial.
//!
//! Invariants: a role is taken by one request of AWS STS, without a retry; a session isn't used in its last minutes;
//! the number of kept sessions is bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::config::{Credentials, IdentityCache};
use aws_types::SdkConfig;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{ASSUME_ROLE, LaunchRole};

use crate::call::{self, FailedCallSink};
use crate::ec2::client_settings;
use crate::reading::required;
use crate::settings::{retries, short_timeouts};

/// A launch waits for it, and STS answers within tens of milliseconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long before its end a session isn't used any longer: an invocation lasts a minute, and clocks differ.
const LEFT_SECONDS: i64 = 300;
/// The most sessions of a process. More clusters than that take their roles more often.
const SESSIONS_MAX: usize = 100;

/// A client of EC2 in a session.
struct KeptSession {
    client: aws_sdk_ec2::Client,
    /// Until when it is used, in seconds of Unix time.
    until: i64,
}

/// The sessions of a process; clones share them.
#[derive(Clone)]
pub(crate) struct LaunchSessions {
    config: SdkConfig,
    client: aws_sdk_sts::Client,
    kept: Arc<Mutex<BTreeMap<LaunchRole, KeptSession>>>,
}

impl LaunchSessions {
    /// None yet. Roles are taken with the credentials of `config`, at its endpoints.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        let settings = aws_sdk_sts::config::Builder::from(config)
            .behavior_version(aws_sdk_sts::config::BehaviorVersion::v2026_01_12())
            .retry_config(retries())
            .timeout_config(short_timeouts(CALL_TIMEOUT))
            .build();
        Self {
            config: config.clone(),
            client: aws_sdk_sts::Client::from_conf(settings),
            kept: Arc::default(),
        }
    }

    /// A client by the role's rights: the kept one, or that of a new session.
    pub(crate) async fn client(
        &self,
        role: &LaunchRole,
        now: i64,
        report: Option<&FailedCallSink>,
    ) -> Result<aws_sdk_ec2::Client, Ec2Error> {
        let known = self.kept().get(role).filter(|kept| now < kept.until).map(|kept| kept.client.clone());
        if let Some(client) = known {
            return Ok(client);
        }
        let asked = self.client.assume_role().role_arn(&role.arn).role_session_name(role.session_name());
        let answer = call::answer(report, ASSUME_ROLE, asked.send().await)?;
        let given =
            required(answer.credentials, "Credentials").map_err(|error| error.into_error(ASSUME_ROLE))?;
        let until = given.expiration.secs().saturating_sub(LEFT_SECONDS);
        let credentials = Credentials::new(
            given.access_key_id,
            given.secret_access_key,
            Some(given.session_token),
            None,
            "LaunchRole",
        );
        // Session and client end together. A cache of credentials would be all clients', and grow.
        let settings = client_settings(&self.config).identity_cache(IdentityCache::no_cache());
        let client = aws_sdk_ec2::Client::from_conf(settings.credentials_provider(credentials).build());
        let mut kept = self.kept();
        kept.retain(|_, other| now < other.until);
        if kept.len() >= SESSIONS_MAX {
            kept.pop_first();
        }
        kept.insert(role.clone(), KeptSession { client: client.clone(), until });
        Ok(client)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<LaunchRole, KeptSession>> {
        // Every change of the map is whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
