//! The port of encoded authorisation messages over the SDK.
//!
//! Decides nothing: the content of a decoded message is read by `tenon_ec2::Denial`.

use std::time::Duration;

use tenon_ec2::{AuthorizationMessages, DecodedMessage, Ec2Error};

use crate::call;
use crate::reading::required;
use crate::settings::service;

const ACTION: &str = "DecodeAuthorizationMessage";

/// The denial is told without the answer, so nothing waits long for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

service! {
    /// AWS STS of a region.
    AwsAuthorizationMessages of aws_sdk_sts, CALL_TIMEOUT
}

impl AuthorizationMessages for AwsAuthorizationMessages {
    async fn decoded_message(&self, encoded: &str) -> Result<DecodedMessage, Ec2Error> {
        let sent = self.client.decode_authorization_message().encoded_message(encoded).send().await;
        let answer = call::answer(self.report.as_ref(), ACTION, sent)?;
        required(answer.decoded_message, "DecodedMessage")
            .map(DecodedMessage::new)
            .map_err(|malformed| malformed.into_error(ACTION))
    }
}
