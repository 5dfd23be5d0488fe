//! The port of parameters over the SDK.
//!
//! Decides which of the asked names an answer is for: Systems Manager answers a name, an ARN or a selector with the
//! parameter's own name, ARN and selector, in an order of its own. Values aren't decrypted.

use std::time::Duration;

use aws_sdk_ssm::operation::get_parameters::GetParametersOutput;
use aws_sdk_ssm::types::Parameter as SdkParameter;
use tenon_ec2::port::{Parameter, without_selector};
use tenon_ec2::{Ec2Error, Parameters};

use crate::call;
use crate::reading::{Malformed, required};
use crate::settings::service;

const ACTION: &str = "GetParameters";

/// A function looks at several classes in thirty seconds; without an answer the last images stay.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

service! {
    /// Systems Manager of an account and region.
    AwsParameters of aws_sdk_ssm, CALL_TIMEOUT
}

impl Parameters for AwsParameters {
    async fn parameters(&self, names: &[String]) -> Result<Vec<Parameter>, Ec2Error> {
        let sent = self.client.get_parameters().set_names(Some(names.to_vec())).send().await;
        let answer = call::answer(self.report.as_ref(), ACTION, sent)?;
        found(names, &answer).map_err(|malformed| malformed.into_error(ACTION))
    }
}

/// The answered parameters, in the order of the request. An answer that nobody asked for is one that can't be told to
/// a name, which would then look missing.
fn found(names: &[String], answer: &GetParametersOutput) -> Result<Vec<Parameter>, Malformed> {
    for parameter in answer.parameters() {
        if !names.iter().any(|asked| is_for(parameter, asked)) {
            let name = required(parameter.name(), "Parameters.Name")?;
            return Err(Malformed::new("Parameters.Name", format!("is `{name}`, which wasn't asked for")));
        }
    }
    let mut all = Vec::new();
    for asked in names {
        let answers = answer.parameters().iter().filter(|parameter| is_for(parameter, asked));
        // Where answers have no selectors, an older version may look like the newest one.
        if let Some(parameter) =
            answers.max_by_key(|parameter| (selected(parameter).is_some(), parameter.version()))
        {
            let value = required(parameter.value(), "Parameters.Value")?.to_owned();
            all.push(Parameter { name: asked.clone(), value });
        }
    }
    Ok(all)
}

/// Whether a parameter was asked for by that name or ARN, which may have a selector.
fn is_for(parameter: &SdkParameter, asked: &str) -> bool {
    let (asked, selector) = without_selector(asked);
    // One that another account shares has its ARN as its name.
    let named = parameter.name() == Some(asked) || parameter.arn() == Some(asked);
    named
        && match (selector, selected(parameter)) {
            (None, found) => found.is_none(),
            (Some(selector), Some(found)) => selector == found,
            // moto leaves it out.
            (Some(selector), None) => selector == parameter.version().to_string(),
        }
}

/// The selector that a parameter was found by; Systems Manager writes it with its colon.
fn selected(parameter: &SdkParameter) -> Option<&str> {
    let selector = parameter.selector().map(|selector| selector.trim_start_matches(':'));
    selector.filter(|selector| !selector.is_empty())
}
