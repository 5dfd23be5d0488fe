//! The SSM parameters that name a class's images: those of its alias, or its own.
//!
//! Decides the parameters of an alias for a version of Kubernetes, and the variant of each. It doesn't read them.
//!
//! Invariant: an alias that AWS publishes no images for in this version of Kubernetes is refused by name.
//!
//! Source of the names: docs.aws.amazon.com/eks/latest/userguide `retrieve-ami-id.html`,
//! `retrieve-ami-id-bottlerocket.html`, `retrieve-windows-ami-id.html`; of the variants: aws/karpenter-provider-aws
//! `pkg/providers/amifamily`.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::node_class::AmiSelectorTerm;
use tenon_domain::class_status::ImageVariant;

use ImageVariant::{Neuron, Nvidia, Standard};

/// The last minor version of Kubernetes with images of Amazon Linux 2.
const AL2_UNTIL: u32 = 32;
/// The first minor version of Kubernetes with images of Windows Server 2025.
const WINDOWS_2025_SINCE: u32 = 35;

/// Parameters by name, with the variants that their images are for.
pub type ImageParameters = BTreeMap<String, BTreeSet<ImageVariant>>;

/// An alias without images.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// AWS publishes none for this version.
    #[error(
        "alias `{alias}` has no images for Kubernetes {kubernetes}: {why}; select another family in \
         `spec.amiSelectorTerms`"
    )]
    Unsupported {
        /// The alias.
        alias: String,
        /// The version.
        kubernetes: String,
        /// The versions that have some.
        why: &'static str,
    },
    /// The version of Kubernetes isn't one.
    #[error(
        "can't resolve alias `{alias}`: the cluster's version of Kubernetes is `{kubernetes}`, expected such as `1.35`"
    )]
    Version {
        /// The alias.
        alias: String,
        /// The version.
        kubernetes: String,
    },
}

/// The parameters of a class's terms.
///
/// # Errors
/// [`AliasError`].
pub fn parameters(terms: &[AmiSelectorTerm], kubernetes: &str) -> Result<ImageParameters, AliasError> {
    let mut found = ImageParameters::new();
    for term in terms {
        match term {
            AmiSelectorTerm::Alias { family, version } => {
                for (name, variants) in of_alias(family, version, kubernetes)? {
                    found.entry(name).or_default().extend(variants);
                }
            }
            AmiSelectorTerm::SsmParameter(name) => {
                found.entry(name.clone()).or_default().insert(ImageVariant::Any);
            }
            AmiSelectorTerm::Id(_) | AmiSelectorTerm::Match { .. } => {}
        }
    }
    Ok(found)
}

type NamedVariants = (String, &'static [ImageVariant]);

fn of_alias(family: &str, version: &str, kubernetes: &str) -> Result<Vec<NamedVariants>, AliasError> {
    let alias = || format!("{family}@{version}");
    let minor = kubernetes.strip_prefix("1.").and_then(|minor| minor.parse::<u32>().ok());
    let minor =
        minor.ok_or_else(|| AliasError::Version { alias: alias(), kubernetes: kubernetes.to_owned() })?;
    let unsupported =
        |why| Err(AliasError::Unsupported { alias: alias(), kubernetes: kubernetes.to_owned(), why });
    match family {
        "al2" if minor > AL2_UNTIL => unsupported("Amazon Linux 2 has images up to 1.32"),
        "al2" => Ok(al2(version, kubernetes)),
        "al2023" => Ok(al2023(version, kubernetes)),
        "bottlerocket" => Ok(bottlerocket(version, kubernetes)),
        "windows2025" if minor < WINDOWS_2025_SINCE => {
            unsupported("Windows Server 2025 has images since 1.35")
        }
        "windows2019" | "windows2022" | "windows2025" => Ok(windows(family, kubernetes)),
        // The reader of manifests lets no other family through.
        _ => unsupported("it isn't a family of EKS"),
    }
}

/// The image with drivers serves both kinds of accelerators.
fn al2(version: &str, kubernetes: &str) -> Vec<NamedVariants> {
    let of = |folder: &str, image: &str, variants| {
        let leaf = match version {
            "latest" => "recommended".to_owned(),
            version => format!("{image}-{kubernetes}-{version}"),
        };
        (format!("/aws/service/eks/optimized-ami/{kubernetes}/{folder}/{leaf}/image_id"), variants)
    };
    vec![
        of("amazon-linux-2", "amazon-eks-node", &[Standard][..]),
        of("amazon-linux-2-arm64", "amazon-eks-arm64-node", &[Standard]),
        of("amazon-linux-2-gpu", "amazon-eks-gpu-node", &[Neuron, Nvidia]),
    ]
}

fn al2023(version: &str, kubernetes: &str) -> Vec<NamedVariants> {
    let of = |(architecture, variant): (&str, &'static ImageVariant)| {
        let leaf = match version {
            "latest" => "recommended".to_owned(),
            version => {
                format!("amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-{version}")
            }
        };
        let name = format!(
            "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{architecture}/{variant}/{leaf}/image_id"
        );
        (name, std::slice::from_ref(variant))
    };
    [
        ("x86_64", &Standard),
        ("x86_64", &Nvidia),
        ("x86_64", &Neuron),
        ("arm64", &Standard),
        ("arm64", &Nvidia),
    ]
    .map(of)
    .into()
}

/// On x86_64 the image without GPU drivers also has those of Neuron.
fn bottlerocket(version: &str, kubernetes: &str) -> Vec<NamedVariants> {
    let of = |suffix: &str, architecture: &str, variants| {
        // Parameters have versions without the `v` of releases.
        let version = version.strip_prefix('v').unwrap_or(version);
        let name = format!(
            "/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{architecture}/{version}/image_id"
        );
        (name, variants)
    };
    vec![
        of("", "x86_64", &[Neuron, Standard][..]),
        of("-nvidia", "x86_64", &[Nvidia]),
        of("", "arm64", &[Standard]),
        of("-nvidia", "arm64", &[Nvidia]),
    ]
}

fn windows(family: &str, kubernetes: &str) -> Vec<NamedVariants> {
    let year = family.trim_start_matches("windows");
    let name = format!(
        "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
    );
    vec![(name, &[Standard][..])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(alias: &str, kubernetes: &str) -> Vec<String> {
        let (family, version) = alias.split_once('@').unwrap();
        let term = AmiSelectorTerm::Alias { family: family.to_owned(), version: version.to_owned() };
        match parameters(&[term], kubernetes) {
            Ok(found) => found
                .into_iter()
                .map(|(name, variants)| {
                    let variants: Vec<&str> = variants.into_iter().map(ImageVariant::as_str).collect();
                    let name = name.trim_start_matches("/aws/service/").trim_end_matches("/image_id");
                    format!("{name} {}", variants.join(" "))
                })
                .collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    fn check(alias: &str, kubernetes: &str, expected: &[&str]) {
        assert_eq!(lines(alias, kubernetes), expected, "{alias} {kubernetes}");
    }

    #[test]
    fn an_alias_names_a_parameter_for_each_architecture_and_variant() {
        check(
            "al2023@latest",
            "1.35",
            &[
                "eks/optimized-ami/1.35/amazon-linux-2023/arm64/nvidia/recommended nvidia",
                "eks/optimized-ami/1.35/amazon-linux-2023/arm64/standard/recommended standard",
                "eks/optimized-ami/1.35/amazon-linux-2023/x86_64/neuron/recommended neuron",
                "eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended nvidia",
                "eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended standard",
            ],
        );
        check(
            "al2@v20250610",
            "1.32",
            &[
                "eks/optimized-ami/1.32/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20250610 standard",
                "eks/optimized-ami/1.32/amazon-linux-2-gpu/amazon-eks-gpu-node-1.32-v20250610 nvidia neuron",
                "eks/optimized-ami/1.32/amazon-linux-2/amazon-eks-node-1.32-v20250610 standard",
            ],
        );
        check(
            "bottlerocket@v1.46.0",
            "1.35",
            &[
                "bottlerocket/aws-k8s-1.35-nvidia/arm64/1.46.0 nvidia",
                "bottlerocket/aws-k8s-1.35-nvidia/x86_64/1.46.0 nvidia",
                "bottlerocket/aws-k8s-1.35/arm64/1.46.0 standard",
                "bottlerocket/aws-k8s-1.35/x86_64/1.46.0 standard neuron",
            ],
        );
        check(
            "windows2022@latest",
            "1.35",
            &["ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.35 standard"],
        );
        let pinned = lines("al2023@v20260901", "1.35");
        let last = "eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.35-v20260901 standard";
        assert_eq!(pinned.last().map(String::as_str), Some(last));
    }

    #[test]
    fn an_alias_without_images_for_the_version_is_refused() {
        let select = "select another family in `spec.amiSelectorTerms`";
        check(
            "al2@latest",
            "1.33",
            &[&format!(
                "alias `al2@latest` has no images for Kubernetes 1.33: Amazon Linux 2 has images up to 1.32; {select}"
            )],
        );
        check(
            "windows2025@latest",
            "1.34",
            &[&format!(
                "alias `windows2025@latest` has no images for Kubernetes 1.34: Windows Server 2025 has images since 1.35; {select}"
            )],
        );
        check(
            "al2023@latest",
            "one",
            &[
                "can't resolve alias `al2023@latest`: the cluster's version of Kubernetes is `one`, expected such as `1.35`",
            ],
        );
    }
}
