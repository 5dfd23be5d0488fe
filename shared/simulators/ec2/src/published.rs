//! Images that AWS publishes for EKS, by their public parameters.
//!
//! Decides names, architectures and devices of the images behind a parameter, and which release is the recommended one.
//! An image is there from the moment that somebody asks for a parameter of it, so worlds that don't ask have none. Not
//! modelled: `recommended` as a document, names and versions of releases (`image_name`, `release_version`), Windows'
//! full images.
//!
//! Sources: EKS's user guide, "Retrieve recommended Amazon Linux AMI IDs", and the same for Bottlerocket and Microsoft
//! Windows, for paths; awslabs/amazon-eks-ami and bottlerocket-os/bottlerocket for names; aws/karpenter-provider-aws
//! `pkg/providers/amifamily` for paths of a release (read November 2026). Versions and dates are the twin's own.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::id::ImageId;

use super::state::TwinState;
use tenon_ec2::port::{ImageArchitecture, ImagePlatform};

tenon_domain::words! {
    /// A family of images with releases of its own.
    pub enum PublishedFamily {
        /// Amazon Linux 2, for Kubernetes before 1.33.
        AmazonLinux2,
        /// Amazon Linux 2023.
        AmazonLinux2023,
        /// Bottlerocket.
        Bottlerocket,
        /// Windows Server, Core.
        Windows,
    }
}

/// Kubernetes' minor versions with images, all of 1.
const KUBERNETES: std::ops::RangeInclusive<u32> = 26..=36;
/// The first minor version without Amazon Linux 2.
const WITHOUT_AMAZON_LINUX_2: u32 = 33;
/// The first minor version with Windows Server 2025.
const WITH_WINDOWS_2025: u32 = 35;
/// The commit in Bottlerocket's names.
const COMMIT: &str = "3fbe5a46";

/// 2025-11-12T00:00:00Z and 2025-12-10T00:00:00Z, before the beginning of simulated worlds.
const FIRST_RELEASES: [Timestamp; 2] =
    [Timestamp::constant(1_762_905_600, 0), Timestamp::constant(1_765_324_800, 0)];

impl PublishedFamily {
    /// The versions of [`FIRST_RELEASES`], as the family writes them.
    const fn first_versions(self) -> [&'static str; 2] {
        match self {
            Self::AmazonLinux2 | Self::AmazonLinux2023 => ["v20251112", "v20251210"],
            Self::Bottlerocket => ["1.49.0", "1.50.0"],
            Self::Windows => ["2025.11.12", "2025.12.10"],
        }
    }

    /// AWS's account that owns the images (in us-east-1; the twin has it in every region).
    const fn owner(self) -> &'static str {
        match self {
            Self::AmazonLinux2 | Self::AmazonLinux2023 => "602401143452",
            Self::Bottlerocket => "092701018921",
            Self::Windows => "801119661308",
        }
    }

    /// The images' platform, where it isn't Linux.
    pub(super) const fn platform(self) -> Option<ImagePlatform> {
        match self {
            Self::AmazonLinux2 | Self::AmazonLinux2023 | Self::Bottlerocket => None,
            Self::Windows => Some(ImagePlatform::Windows),
        }
    }

    /// The images' volumes, the root first.
    pub(super) const fn devices(self) -> &'static [&'static str] {
        match self {
            Self::AmazonLinux2 | Self::AmazonLinux2023 => &["/dev/xvda"],
            Self::Bottlerocket => &["/dev/xvda", "/dev/xvdb"],
            Self::Windows => &["/dev/sda1"],
        }
    }
}

/// A release of a family.
#[derive(Debug, Clone)]
struct Release {
    version: String,
    at: Timestamp,
}

/// What AWS published so far.
#[derive(Debug)]
pub(super) struct PublishedReleases {
    /// By family, the oldest first.
    releases: BTreeMap<PublishedFamily, Vec<Release>>,
    /// Images that somebody asked for, by name.
    images: BTreeMap<String, ImageId>,
}

impl Default for PublishedReleases {
    fn default() -> Self {
        let of = |family: PublishedFamily| {
            let pairs = family.first_versions().into_iter().zip(FIRST_RELEASES);
            (family, pairs.map(|(version, at)| Release { version: version.to_owned(), at }).collect())
        };
        Self { releases: PublishedFamily::ALL.into_iter().map(of).collect(), images: BTreeMap::new() }
    }
}

/// A published image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublishedImage {
    pub(super) name: String,
    pub(super) family: PublishedFamily,
    pub(super) owner: &'static str,
    pub(super) architecture: ImageArchitecture,
    pub(super) released_at: Timestamp,
}

impl PublishedReleases {
    /// The newest release that a word of a path means.
    fn release(&self, family: PublishedFamily, means: impl Fn(&str) -> bool) -> Option<&Release> {
        self.releases.get(&family)?.iter().rev().find(|release| means(&release.version))
    }

    /// The image behind a parameter.
    fn image(&self, parameter: &str) -> Option<PublishedImage> {
        let path = parameter.strip_prefix("/aws/service/")?.strip_suffix("/image_id")?;
        let words: Vec<&str> = path.split('/').collect();
        match words.as_slice() {
            ["eks", "optimized-ami", minor, "amazon-linux-2023", arch, variant, release] => {
                self.amazon_linux_2023(minor, arch, variant, release)
            }
            ["eks", "optimized-ami", minor, flavour, release] => self.amazon_linux_2(minor, flavour, release),
            ["bottlerocket", of, arch, release] => self.bottlerocket(of, arch, release),
            ["ami-windows-latest", of] => self.windows(of),
            _ => None,
        }
    }

    fn amazon_linux_2(&self, minor: &str, flavour: &str, release: &str) -> Option<PublishedImage> {
        kubernetes(minor).filter(|minor| *minor < WITHOUT_AMAZON_LINUX_2)?;
        let (infix, architecture) = match flavour {
            "amazon-linux-2" => ("", ImageArchitecture::X86_64),
            "amazon-linux-2-arm64" => ("-arm64", ImageArchitecture::Arm64),
            "amazon-linux-2-gpu" => ("-gpu", ImageArchitecture::X86_64),
            _ => return None,
        };
        let name = |version: &str| format!("amazon-eks{infix}-node-{minor}-{version}");
        self.of(PublishedFamily::AmazonLinux2, architecture, name, |name, _| {
            release == "recommended" || release == name
        })
    }

    fn amazon_linux_2023(
        &self,
        minor: &str,
        arch: &str,
        variant: &str,
        release: &str,
    ) -> Option<PublishedImage> {
        kubernetes(minor)?;
        let architecture = match (arch, variant) {
            ("x86_64", "standard" | "nvidia" | "neuron") => ImageArchitecture::X86_64,
            ("arm64", "standard" | "nvidia") => ImageArchitecture::Arm64,
            _ => return None,
        };
        let name = |version: &str| format!("amazon-eks-node-al2023-{arch}-{variant}-{minor}-{version}");
        self.of(PublishedFamily::AmazonLinux2023, architecture, name, |name, _| {
            release == "recommended" || release == name
        })
    }

    fn bottlerocket(&self, of: &str, arch: &str, release: &str) -> Option<PublishedImage> {
        let minor = of.strip_prefix("aws-k8s-")?;
        kubernetes(minor.strip_suffix("-nvidia").unwrap_or(minor))?;
        let architecture = match arch {
            "x86_64" => ImageArchitecture::X86_64,
            "arm64" => ImageArchitecture::Arm64,
            _ => return None,
        };
        let name = |version: &str| format!("bottlerocket-{of}-{arch}-v{version}-{COMMIT}");
        self.of(PublishedFamily::Bottlerocket, architecture, name, |_, version| {
            release == "latest" || release == version || release == format!("{version}-{COMMIT}")
        })
    }

    fn windows(&self, of: &str) -> Option<PublishedImage> {
        let (server, minor) =
            of.strip_prefix("Windows_Server-")?.split_once("-English-Core-EKS_Optimized-")?;
        let minor = kubernetes(minor)?;
        match server {
            "2019" | "2022" => {}
            "2025" if minor >= WITH_WINDOWS_2025 => {}
            _ => return None,
        }
        let name = |version: &str| format!("{of}-{version}");
        self.of(PublishedFamily::Windows, ImageArchitecture::X86_64, name, |_, _| true)
    }

    /// The newest release whose name and version a path means.
    fn of(
        &self,
        family: PublishedFamily,
        architecture: ImageArchitecture,
        name: impl Fn(&str) -> String,
        means: impl Fn(&str, &str) -> bool,
    ) -> Option<PublishedImage> {
        let release = self.release(family, |version| means(&name(version), version))?;
        let (name, released_at) = (name(&release.version), release.at);
        Some(PublishedImage { name, family, owner: family.owner(), architecture, released_at })
    }
}

/// A minor version that has images.
fn kubernetes(text: &str) -> Option<u32> {
    let minor = text.strip_prefix("1.")?.parse().ok()?;
    (KUBERNETES.contains(&minor) && text == format!("1.{minor}")).then_some(minor)
}

impl TwinState {
    /// The image behind one of AWS's parameters. It exists from the first question on.
    pub(super) fn published_image(&mut self, parameter: &str) -> Option<ImageId> {
        let image = self.published.image(parameter)?;
        if let Some(id) = self.published.images.get(&image.name) {
            return Some(id.clone());
        }
        let name = image.name.clone();
        let id = self.add_published(image)?;
        self.published.images.insert(name, id.clone());
        Some(id)
    }

    pub(super) fn release_images(&mut self, family: PublishedFamily, version: &str) {
        let release = Release { version: version.to_owned(), at: self.now };
        self.published.releases.entry(family).or_default().push(release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<&str>) {
        let published = PublishedReleases::default();
        let found = published.image(&format!("/aws/service/{path}/image_id"));
        let told = found.map(|image| format!("{} {}", image.name, image.architecture.as_str()));
        assert_eq!(told.as_deref(), expected, "{path}");
    }

    #[test]
    fn paths_are_those_of_aws() {
        let al2 = "eks/optimized-ami/1.32/amazon-linux-2";
        check(&format!("{al2}/recommended"), Some("amazon-eks-node-1.32-v20251210 x86_64"));
        check(&format!("{al2}-arm64/recommended"), Some("amazon-eks-arm64-node-1.32-v20251210 arm64"));
        check(&format!("{al2}-gpu/recommended"), Some("amazon-eks-gpu-node-1.32-v20251210 x86_64"));
        let older = "amazon-eks-node-1.32-v20251112";
        check(&format!("{al2}/{older}"), Some("amazon-eks-node-1.32-v20251112 x86_64"));
        check("eks/optimized-ami/1.33/amazon-linux-2/recommended", None);

        let al2023 = "eks/optimized-ami/1.35/amazon-linux-2023";
        let named = "amazon-eks-node-al2023-arm64-nvidia-1.35-v20251112";
        check(&format!("{al2023}/arm64/nvidia/{named}"), Some(&format!("{named} arm64")));
        let newest = "amazon-eks-node-al2023-x86_64-neuron-1.35-v20251210";
        check(&format!("{al2023}/x86_64/neuron/recommended"), Some(&format!("{newest} x86_64")));
        check(&format!("{al2023}/arm64/neuron/recommended"), None);
        check(&format!("{al2023}/x86_64/standard/{named}"), None);
        check("eks/optimized-ami/1.25/amazon-linux-2023/x86_64/standard/recommended", None);
        check("eks/optimized-ami/1.37/amazon-linux-2023/x86_64/standard/recommended", None);

        let name = "bottlerocket-aws-k8s-1.35-nvidia-arm64-v1.49.0-3fbe5a46";
        check("bottlerocket/aws-k8s-1.35-nvidia/arm64/1.49.0", Some(&format!("{name} arm64")));
        check("bottlerocket/aws-k8s-1.35-nvidia/arm64/1.49.0-3fbe5a46", Some(&format!("{name} arm64")));
        let newest = "bottlerocket-aws-k8s-1.35-x86_64-v1.50.0-3fbe5a46";
        check("bottlerocket/aws-k8s-1.35/x86_64/latest", Some(&format!("{newest} x86_64")));
        check("bottlerocket/aws-k8s-1.35/x86_64/1.48.0", None);

        let windows = |year: &str, minor: &str| {
            format!("ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{minor}")
        };
        let name = "Windows_Server-2022-English-Core-EKS_Optimized-1.34-2025.12.10 x86_64";
        check(&windows("2022", "1.34"), Some(name));
        check(&windows("2025", "1.34"), None);
        check(
            &windows("2025", "1.35"),
            Some("Windows_Server-2025-English-Core-EKS_Optimized-1.35-2025.12.10 x86_64"),
        );
    }
}
