//! Classes: that of Karpenter's getting-started page, and one of a pipeline's images.
//!
//! The public parameters of the images are in `tests/servers/ministack-parameters.json`, the images in
//! `tests/servers/moto-images.json`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenon_domain::class_status::{ClassStatus, ImageVariant};
use tenon_table::Key;
use tenon_table::items::from_item;

use crate::account::RehearsalAccount;
use crate::cluster::{CLUSTER, POOL};
use crate::network::DISCOVERY;
use crate::tools::shell;
use crate::wait::eventually;
use crate::world::rehearse;

/// The alias's image for types without accelerators.
pub(crate) const AL2023_STANDARD_X86_64: &str = "ami-00000000a12023001";
/// Another class than the pool's.
const LATEST: &str = "latest";
/// The tag of a pipeline's images.
pub(crate) const PIPELINE_TAG: (&str, &str) = ("team", "platform");

/// The line by which the page finds the newest release.
const ALIAS_VERSION: &str = r#"export K8S_VERSION=1.35
ALIAS_VERSION="$(aws ssm get-parameter --name "/aws/service/eks/optimized-ami/${K8S_VERSION}/amazon-linux-2023/x86_64/standard/recommended/image_id" --query Parameter.Value | xargs aws ec2 describe-images --query 'Images[0].Name' --image-ids | sed -r 's/^.*(v[[:digit:]]+).*$/\1/')"
echo "${ALIAS_VERSION}""#;

/// The page's `ALIAS_VERSION`.
pub(crate) async fn alias_version() -> String {
    shell(ALIAS_VERSION).await.well("the page's ALIAS_VERSION").trim().to_owned()
}

/// A class's status, once it has one.
pub(crate) async fn status(account: &RehearsalAccount, class: &str) -> Option<ClassStatus> {
    let (pk, sk) = (format!("CLUSTER#{CLUSTER}"), format!("NODECLASS#{class}"));
    let item = account.item(pk.as_str(), sk.as_str()).await?;
    Some(from_item(&Key::new(pk, sk), &item).expect("a status can be read"))
}

/// Waits until the class is ready.
pub(crate) async fn ready(account: &RehearsalAccount, class: &str) -> ClassStatus {
    let look = || async { status(account, class).await.filter(ClassStatus::ready) };
    eventually(&format!("the ready EC2NodeClass `{class}`"), look).await
}

/// A class whose images have one term.
pub(crate) fn class(name: &str, ami_selector_term: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": { "name": name },
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [ami_selector_term],
            "subnetSelectorTerms": [{ "tags": { DISCOVERY: CLUSTER } }],
            "securityGroupSelectorTerms": [{ "tags": { DISCOVERY: CLUSTER } }],
            "role": format!("KarpenterNodeRole-{CLUSTER}"),
        },
    })
}

/// The images of a class, and the variant of each.
fn images(status: &ClassStatus) -> BTreeSet<(String, ImageVariant)> {
    status.images.iter().map(|image| (image.name.clone(), image.variant)).collect()
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_class_of_karpenters_page_is_ready_with_the_images_of_its_alias() {
    rehearse(|world| async {
        let account = &world.account;
        let pinned = ready(account, POOL).await;
        let version = alias_version().await;
        let kinds = [
            ("arm64", ImageVariant::Nvidia),
            ("arm64", ImageVariant::Standard),
            ("x86_64", ImageVariant::Neuron),
            ("x86_64", ImageVariant::Nvidia),
            ("x86_64", ImageVariant::Standard),
        ];
        let expected = kinds.map(|(architecture, variant)| {
            (format!("amazon-eks-node-al2023-{architecture}-{variant}-1.35-{version}"), variant)
        });
        let expected = BTreeSet::from(expected);
        assert_eq!(images(&pinned), expected);
        assert!(pinned.profile_seen.is_some(), "IAM answered: {pinned:?}");
        assert_eq!((pinned.subnets.len(), pinned.security_groups.len()), (2, 1));

        let mut cluster = world.cluster.lock().await;
        cluster.apply_class(class(LATEST, &json!({ "alias": "al2023@latest" }))).await;
        assert_eq!(
            images(&ready(account, LATEST).await),
            expected,
            "the parameters `recommended` name them too"
        );
        cluster.delete_class(LATEST).await;
    });
}
