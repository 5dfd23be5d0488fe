//! User data: the configuration that a node reads when it boots.
//!
//! Decides which family's module writes it, the labels and taints that the kubelet registers with, and the limit on its
//! size. The modules `al2`, `al2023`, `bottlerocket` and `windows` decide the forms. A Custom image gets the user's text
//! unchanged: nothing is added, neither labels nor taints.
//!
//! Invariants: the same input gives the same bytes, from which launch templates get their names; what is generated
//! wins over the user's text; every family but Custom registers with [`Taint::unregistered`].
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/amifamily/bootstrap`;
//! karpenter.sh/docs/concepts/nodeclasses, `spec.userData`.

mod al2;
mod al2023;
mod bottlerocket;
mod kubelet_args;
mod mime;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::BTreeMap;

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::AmiFamily;
use tenon_domain::labels;
use tenon_domain::registry::Registry;
use tenon_domain::taint::{Taint, merge_taints};

use kubelet_args::{KubeletSettings, kubelet_settings};

/// EC2's limit on user data before it is encoded.
pub const USER_DATA_BYTES: usize = 16_384;

/// Domains whose labels a kubelet may set on its own Node.
const KUBELET_DOMAINS: [&str; 2] = ["node.kubernetes.io", "kubelet.kubernetes.io"];

/// The settings of a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeSetup<'a> {
    /// Its cluster.
    pub registry: &'a Registry,
    /// Its class.
    pub class: &'a Ec2NodeClass,
    /// Labels that its kubelet registers with.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints that its kubelet registers with, besides [`Taint::unregistered`].
    pub taints: &'a [Taint],
    /// The number of pods that the plan counted on; `None` leaves it to the class, or to the image.
    pub max_pods: Option<u32>,
}

/// What a family's module writes.
struct BootSettings<'a> {
    setup: &'a NodeSetup<'a>,
    /// The name of the image.
    image_name: &'a str,
    kubelet: KubeletSettings,
    /// The labels that the kubelet may set.
    labels: BTreeMap<String, String>,
    /// All taints that the kubelet registers with.
    taints: Vec<Taint>,
}

/// Why there is no user data for a class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The class's kubelet settings can't be read.
    #[error("`spec.kubelet` can't be read: {0}")]
    Kubelet(String),
    /// The user's text begins as MIME, and isn't an archive.
    #[error(
        "`spec.userData` begins with a MIME header, but isn't a MIME multipart archive: write `Content-Type: \
         multipart/mixed; boundary=\"…\"` and parts between lines with this boundary"
    )]
    Multipart,
    /// The user's text must be TOML.
    #[error(
        "line {line} of `spec.userData` isn't TOML: {message}; Bottlerocket takes its settings as TOML, correct the \
         line"
    )]
    Toml {
        /// The line, from 1.
        line: usize,
        /// What is wrong, in the parser's words.
        message: String,
    },
    /// A setting in the user's TOML must be a table.
    #[error("`{0}` in `spec.userData` isn't a table: write `[{0}]`")]
    NotATable(String),
    /// The settings have no form in TOML.
    #[error("the settings can't be written as TOML: {0}")]
    Settings(String),
    /// EC2 doesn't take that much.
    #[error("user data has {0} bytes, EC2 takes at most {USER_DATA_BYTES}: shorten `spec.userData`")]
    TooLong(usize),
}

/// The user data for an image of this name, not encoded; `None` for a Custom class without any.
///
/// # Errors
/// [`UserDataError`] names what the class's owner can do.
pub fn user_data(setup: &NodeSetup<'_>, image_name: &str) -> Result<Option<String>, UserDataError> {
    let node = || BootSettings::new(setup, image_name);
    let text = match setup.class.settings.ami_family {
        AmiFamily::Al2 => Some(al2::text(&node()?)?),
        AmiFamily::Al2023 => Some(al2023::text(&node()?)?),
        AmiFamily::Bottlerocket => Some(bottlerocket::text(&node()?)?),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            Some(windows::text(&node()?))
        }
        AmiFamily::Custom => setup.class.user_data.clone(),
    };
    match &text {
        Some(text) if text.len() > USER_DATA_BYTES => Err(UserDataError::TooLong(text.len())),
        Some(_) | None => Ok(text),
    }
}

/// Whether a kubelet may set this label on its own Node; the API server refuses the Node otherwise.
#[must_use]
pub fn kubelet_may_set(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    KUBELET_DOMAINS.iter().any(|allowed| within(allowed)) || !(within("kubernetes.io") || within("k8s.io"))
}

impl<'a> BootSettings<'a> {
    fn new(setup: &'a NodeSetup<'a>, image_name: &'a str) -> Result<Self, UserDataError> {
        let kubelet = kubelet_settings(setup)?;
        let mut labels = setup.labels.clone();
        labels.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        labels.retain(|key, _| kubelet_may_set(key));
        let taints = merge_taints(setup.taints, &[Taint::unregistered()]);
        Ok(Self { setup, image_name, kubelet, labels, taints })
    }
}
