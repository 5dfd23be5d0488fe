//! The adapters against answers of the shapes in the references of EC2, the Pricing API, ARC, Systems Manager and IAM.

mod errors;
mod fake_http;
mod fleets;
mod instance_profiles;
mod launch_roles;
mod lists;
mod parameters;
mod prices;
mod writes;
mod zonal_shifts;

use std::collections::BTreeMap;
use std::future::Future;

use aws_sdk_ec2::config::{Credentials, Region, SharedCredentialsProvider};
use aws_types::SdkConfig;

pub(super) use fake_http::{FakeHttp, Sent};

use crate::{AwsEc2, AwsInstanceProfiles, AwsParameters, AwsPricing, AwsZonalShift};

pub(super) fn config(http: &FakeHttp) -> SdkConfig {
    config_in("us-east-1", http)
}

fn config_in(region: &'static str, http: &FakeHttp) -> SdkConfig {
    let credentials = Credentials::new("key", "secret", None, None, "tests");
    SdkConfig::builder()
        .region(Region::new(region))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(http.clone())
        .build()
}

pub(super) fn ec2(answers: &[(u16, &str)]) -> (AwsEc2, FakeHttp) {
    let http = FakeHttp::new(answers);
    (AwsEc2::new(&config(&http)), http)
}

pub(super) fn pricing(region: &str, answers: &[(u16, &str)]) -> (AwsPricing, FakeHttp) {
    let http = FakeHttp::new(answers);
    (AwsPricing::new(&config(&http), region.parse().unwrap()), http)
}

pub(super) fn zonal_shift(answers: &[(u16, &str)]) -> (AwsZonalShift, FakeHttp) {
    let http = FakeHttp::new(answers);
    (AwsZonalShift::new(&config(&http)), http)
}

pub(super) fn parameters(answers: &[(u16, &str)]) -> (AwsParameters, FakeHttp) {
    let http = FakeHttp::new(answers);
    (AwsParameters::new(&config(&http)), http)
}

pub(super) fn instance_profiles(
    region: &'static str,
    answers: &[(u16, &str)],
) -> (AwsInstanceProfiles, FakeHttp) {
    let http = FakeHttp::new(answers);
    (AwsInstanceProfiles::new(&config_in(region, &http)), http)
}

pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The form of a request, by key.
pub(super) fn form(request: &Sent) -> BTreeMap<String, String> {
    let body = std::str::from_utf8(&request.body).unwrap();
    body.split('&').map(|pair| pair.split_once('=').unwrap()).map(|(k, v)| (decoded(k), decoded(v))).collect()
}

pub(super) fn forms(http: &FakeHttp) -> Vec<BTreeMap<String, String>> {
    http.sent().iter().map(form).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex: Vec<u8> = rest.by_ref().take(2).collect();
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            bytes.push(if byte == b'+' { b' ' } else { byte });
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Checks a request's form, apart from the API's version.
#[track_caller]
pub(super) fn check_form(request: &Sent, expected: &[(&str, &str)]) {
    let mut found = form(request);
    assert_eq!(found.remove("Version").as_deref(), Some("2016-11-15"));
    let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assert_eq!(found, expected);
}
