//! The table's keys, and the names in them.
//!
//! Decides the prefixes, which are a contract: queries of people and scripts use them. It doesn't decide the items'
//! content.

use jiff::Timestamp;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{
    ClaimName, ClusterName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName,
    NodePoolName, Region,
};
use tenon_domain::journal::Subject;
use tenon_domain::unavailable::UnavailableKey;
use tenon_domain::wake::FunctionName;

use crate::Key;

/// Clusters of a region's registry.
pub const CLUSTER: &str = "CLUSTER#";
/// Marks of a region.
pub const UNAVAILABLE: &str = "UNAVAILABLE#";
/// Images of a region.
pub const IMAGE: &str = "IMAGE#";
/// Images of a region, with all that is known of them.
pub const ALL_OF_IMAGES: &str = "IMAGE";
/// Memory that kubelets of a region reported.
pub const LEARNED: &str = "LEARNED#";
/// What instances of images showed when they booted, by cluster and class.
pub const BOOT: &str = "IMAGEBOOT#";
/// Instance types of a region, for people.
pub const TYPE: &str = "TYPE#";
/// Pools of a cluster.
pub const NODE_POOL: &str = "NODEPOOL#";
/// Node classes of a cluster.
pub const NODE_CLASS: &str = "NODECLASS#";
/// Claims of a cluster.
pub const NODE_CLAIM: &str = "NODECLAIM#";
/// Launches of a cluster.
pub const LAUNCH: &str = "LAUNCH#";
/// Disruption commands of a cluster.
pub const COMMAND: &str = "COMMAND#";
/// Launch templates of a cluster.
pub const TEMPLATE: &str = "TEMPLATE#";
/// Names of a cluster's launch templates that leave; the key follows those of [`TEMPLATE`], so one query reads both.
pub const LEAVING_TEMPLATES: &str = "TEMPLATES";
/// Actions for a cluster's agent.
pub const ACTION: &str = "ACTION#";
/// What a function's last plan was made from.
pub const SEEN: &str = "SEEN#";
/// A function's findings.
pub const TOLD: &str = "TOLD#";
/// Handling that a function began.
pub const TRIAL: &str = "TRIAL#";
/// Chunks of an agent's snapshot.
pub const CHUNK: &str = "CHUNK#";

/// The partition of a region's shared items.
#[must_use]
pub fn region_pk(region: &Region) -> String {
    format!("REGION#{region}")
}

/// The partition of a cluster's state.
#[must_use]
pub fn cluster_pk(cluster: &ClusterName) -> String {
    format!("{CLUSTER}{cluster}")
}

/// The partition that a cluster's agent writes, and no other.
#[must_use]
pub fn agent_pk(cluster: &ClusterName) -> String {
    format!("AGENT#{cluster}")
}

/// A cluster's entry in the registry.
#[must_use]
pub fn registry(region: &Region, cluster: &ClusterName) -> Key {
    Key::new(region_pk(region), format!("{CLUSTER}{cluster}"))
}

/// Pointers to a region's catalogue.
#[must_use]
pub fn catalog(region: &Region) -> Key {
    Key::new(region_pk(region), "CATALOG")
}

/// One packed item of a part of the catalogue: the `n`-th piece of the content of that digest.
#[must_use]
pub fn packed(region: &Region, part: CatalogPart, digest: &str, n: u32) -> Key {
    Key::new(region_pk(region), format!("PACKED#{part}#{digest}#{n}"))
}

/// An instance type, for people.
#[must_use]
pub fn instance_type(region: &Region, instance_type: &InstanceType) -> Key {
    Key::new(region_pk(region), format!("{TYPE}{instance_type}"))
}

/// The right to write most instance types.
#[must_use]
pub fn types_claim(region: &Region) -> Key {
    Key::new(region_pk(region), "TYPES")
}

/// A mark.
#[must_use]
pub fn unavailable(region: &Region, key: &UnavailableKey) -> Key {
    Key::new(region_pk(region), format!("{UNAVAILABLE}{key}"))
}

/// The time of the region's next dry run of RunInstances.
#[must_use]
pub fn dry_run(region: &Region) -> Key {
    Key::new(region_pk(region), "DRYRUN")
}

/// An image.
#[must_use]
pub fn image(region: &Region, image: &ImageId) -> Key {
    Key::new(region_pk(region), format!("{IMAGE}{image}"))
}

/// The last sweep of the region's images.
#[must_use]
pub fn image_sweep(region: &Region) -> Key {
    Key::new(region_pk(region), "IMAGES")
}

/// Memory that a cluster's kubelets reported for a type with an image. Each cluster has its own item, so that none
/// writes another's.
#[must_use]
pub fn learned(region: &Region, instance_type: &InstanceType, image: &ImageId, cluster: &ClusterName) -> Key {
    Key::new(region_pk(region), format!("{LEARNED}{instance_type}#{image}#{cluster}"))
}

/// What instances of an image showed when they booted, for a class of a cluster. `images` writes the image's own item.
#[must_use]
pub fn boot(region: &Region, cluster: &ClusterName, class: &NodeClassName, image: &ImageId) -> Key {
    Key::new(region_pk(region), format!("{}{class}#{image}", boots(cluster)))
}

/// The beginning of the keys of a cluster's boot records, in its region's partition.
#[must_use]
pub fn boots(cluster: &ClusterName) -> String {
    format!("{BOOT}{cluster}#")
}

/// The revision that set-level decisions of a cluster are conditional on.
#[must_use]
pub fn revision(cluster: &ClusterName) -> Key {
    Key::cluster_revision(cluster)
}

/// The counter of steps that planners of a cluster read about and that aren't under its revision.
#[must_use]
pub fn steps(cluster: &ClusterName) -> Key {
    Key::new(cluster_pk(cluster), "STEPS")
}

/// The item that holds everything back until a person deletes it.
#[must_use]
pub fn halt(cluster: &ClusterName) -> Key {
    Key::new(cluster_pk(cluster), "HALT")
}

/// A pool's status.
#[must_use]
pub fn node_pool(cluster: &ClusterName, pool: &NodePoolName) -> Key {
    Key::new(cluster_pk(cluster), format!("{NODE_POOL}{pool}"))
}

/// A node class, as it resolved.
#[must_use]
pub fn node_class(cluster: &ClusterName, class: &NodeClassName) -> Key {
    Key::new(cluster_pk(cluster), format!("{NODE_CLASS}{class}"))
}

/// A claim.
#[must_use]
pub fn claim(cluster: &ClusterName, claim: &ClaimName) -> Key {
    Key::new(cluster_pk(cluster), format!("{NODE_CLAIM}{claim}"))
}

/// A launch.
#[must_use]
pub fn launch(cluster: &ClusterName, launch: &LaunchId) -> Key {
    Key::new(cluster_pk(cluster), format!("{LAUNCH}{launch}"))
}

/// A disruption command.
#[must_use]
pub fn command(cluster: &ClusterName, command: &CommandId) -> Key {
    Key::new(cluster_pk(cluster), format!("{COMMAND}{command}"))
}

/// A launch template of EC2, by its name.
#[must_use]
pub fn template(cluster: &ClusterName, name: &str) -> Key {
    Key::new(cluster_pk(cluster), format!("{TEMPLATE}{name}"))
}

/// The names of launch templates that leave.
#[must_use]
pub fn leaving_templates(cluster: &ClusterName) -> Key {
    Key::new(cluster_pk(cluster), LEAVING_TEMPLATES)
}

/// The target state of a claim's Node.
#[must_use]
pub fn action(cluster: &ClusterName, claim: &ClaimName) -> Key {
    Key::new(cluster_pk(cluster), format!("{ACTION}{claim}"))
}

/// What a function's last plan was made from.
#[must_use]
pub fn seen(cluster: &ClusterName, function: FunctionName) -> Key {
    Key::new(cluster_pk(cluster), format!("{SEEN}{function}"))
}

/// A function's findings in a cluster.
#[must_use]
pub fn told(cluster: &ClusterName, function: FunctionName) -> Key {
    Key::new(cluster_pk(cluster), format!("{TOLD}{function}"))
}

/// A function's findings in the region within the last hour.
#[must_use]
pub fn region_told(region: &Region, function: FunctionName) -> Key {
    Key::new(region_pk(region), format!("{TOLD}{function}"))
}

/// A function's trial of a cluster.
#[must_use]
pub fn trial(cluster: &ClusterName, function: FunctionName) -> Key {
    Key::new(cluster_pk(cluster), format!("{TRIAL}{function}"))
}

/// What a regional function's last plan was made from.
#[must_use]
pub fn region_seen(region: &Region, function: FunctionName) -> Key {
    Key::new(region_pk(region), format!("{SEEN}{function}"))
}

/// The owner of an instance.
#[must_use]
pub fn instance(instance: &InstanceId) -> Key {
    Key::new(format!("INSTANCE#{instance}"), "INSTANCE")
}

/// The list of an agent's chunks.
#[must_use]
pub fn manifest(cluster: &ClusterName) -> Key {
    Key::new(agent_pk(cluster), "MANIFEST")
}

/// The agent's last confirmation of its manifest.
#[must_use]
pub fn heartbeat(cluster: &ClusterName) -> Key {
    Key::new(agent_pk(cluster), "HEARTBEAT")
}

/// A chunk of an agent's snapshot, by its content.
#[must_use]
pub fn chunk(cluster: &ClusterName, kind: &str, digest: &str) -> Key {
    Key::new(agent_pk(cluster), format!("{CHUNK}{kind}#{digest}"))
}

/// The owner of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalOf<'a> {
    /// A cluster's.
    Cluster(&'a ClusterName),
    /// The region, for decisions about all its clusters, such as images' states.
    Region(&'a Region),
}

impl JournalOf<'_> {
    /// The partition of one subject's records.
    #[must_use]
    pub fn subject_pk(self, subject: &Subject) -> String {
        format!("{}#{}#{}", self.prefix(), subject.kind.as_str(), subject.name)
    }

    /// The partition of a day's list; days are UTC's.
    #[must_use]
    pub fn day_pk(self, at: Timestamp) -> String {
        format!("{}#day#{}", self.prefix(), at.strftime("%Y-%m-%d"))
    }

    fn prefix(self) -> String {
        match self {
            Self::Cluster(cluster) => format!("JOURNAL#{cluster}"),
            Self::Region(region) => format!("JOURNAL#REGION#{region}"),
        }
    }
}

/// The item whose revision counts a decision. Revisions of two items may be equal in one moment, so a record's key names
/// the item.
#[derive(Debug, Clone, Copy)]
pub enum DecisionCounter<'a> {
    /// The item of the record's own subject, at this revision. The key's partition names it.
    Subject(u64),
    /// Another item, at this revision.
    Item(&'a Key, u64),
}

impl DecisionCounter<'_> {
    /// The end of the key of the `n`-th record of a commit.
    fn place(self, n: usize) -> String {
        match self {
            Self::Subject(revision) => format!("{revision:08}#{n}"),
            Self::Item(item, revision) => format!("{revision:08}#{n}#{}", item.sk),
        }
    }
}

/// A record of the journal, the `n`-th of its commit. The counter keeps decisions of one millisecond apart.
#[must_use]
pub fn journal(
    of: JournalOf<'_>,
    subject: &Subject,
    at: Timestamp,
    counter: DecisionCounter<'_>,
    n: usize,
) -> Key {
    Key::new(of.subject_pk(subject), format!("{at:.3}#{}", counter.place(n)))
}

/// The same record's place in its day's list.
#[must_use]
pub fn journal_day(
    of: JournalOf<'_>,
    subject: &Subject,
    at: Timestamp,
    counter: DecisionCounter<'_>,
    n: usize,
) -> Key {
    let Subject { kind, name } = subject;
    Key::new(of.day_pk(at), format!("{at:.3}#{}#{name}#{}", kind.as_str(), counter.place(n)))
}

/// The partition of the names of the pods that a cluster's launches were planned for.
#[must_use]
pub fn launched_pods_pk(cluster: &ClusterName) -> String {
    format!("{}#pods", JournalOf::Cluster(cluster).prefix())
}

/// The names of the pods of a launch that was planned at that time.
#[must_use]
pub fn launched_pods(cluster: &ClusterName, at: Timestamp, launch: &LaunchId) -> Key {
    Key::new(launched_pods_pk(cluster), format!("{at:.3}#{launch}"))
}

/// The part of the sort key after the prefix; `None` for another kind of item.
#[must_use]
pub fn name_of<'a>(key: &'a Key, prefix: &str) -> Option<&'a str> {
    key.sk.strip_prefix(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_domain::journal::SubjectKind;

    fn check(key: &Key, expected: &str) {
        assert_eq!(key.to_string(), expected);
        key.check().unwrap();
    }

    #[test]
    fn keys_are_the_contracts() {
        let region = Region::parse("us-east-1").unwrap();
        let cluster = ClusterName::parse("prod").unwrap();
        let claim_name = ClaimName::parse("default-3k9x2").unwrap();
        check(&registry(&region, &cluster), "REGION#us-east-1/CLUSTER#prod");
        check(&catalog(&region), "REGION#us-east-1/CATALOG");
        check(
            &packed(&region, CatalogPart::SpotPrices, "12ab", 0),
            "REGION#us-east-1/PACKED#spot-prices#12ab#0",
        );
        check(
            &instance_type(&region, &InstanceType::parse("m5.large").unwrap()),
            "REGION#us-east-1/TYPE#m5.large",
        );
        check(
            &unavailable(&region, &UnavailableKey::parse("offering#spot#use1-az1#m5.large").unwrap()),
            "REGION#us-east-1/UNAVAILABLE#offering#spot#use1-az1#m5.large",
        );
        check(&image(&region, &ImageId::parse("ami-0abc").unwrap()), "REGION#us-east-1/IMAGE#ami-0abc");
        check(&image_sweep(&region), "REGION#us-east-1/IMAGES");
        check(
            &learned(
                &region,
                &InstanceType::parse("m5.large").unwrap(),
                &ImageId::parse("ami-0abc").unwrap(),
                &cluster,
            ),
            "REGION#us-east-1/LEARNED#m5.large#ami-0abc#prod",
        );
        check(
            &boot(
                &region,
                &cluster,
                &NodeClassName::parse("default").unwrap(),
                &ImageId::parse("ami-0abc").unwrap(),
            ),
            "REGION#us-east-1/IMAGEBOOT#prod#default#ami-0abc",
        );
        check(&revision(&cluster), "CLUSTER#prod/REVISION");
        check(&steps(&cluster), "CLUSTER#prod/STEPS");
        check(&halt(&cluster), "CLUSTER#prod/HALT");
        check(&claim(&cluster, &claim_name), "CLUSTER#prod/NODECLAIM#default-3k9x2");
        check(&template(&cluster, "tenon-12ab"), "CLUSTER#prod/TEMPLATE#tenon-12ab");
        check(&leaving_templates(&cluster), "CLUSTER#prod/TEMPLATES");
        check(&action(&cluster, &claim_name), "CLUSTER#prod/ACTION#default-3k9x2");
        check(&seen(&cluster, FunctionName::NodeClasses), "CLUSTER#prod/SEEN#node-classes");
        check(&instance(&InstanceId::parse("i-0abc").unwrap()), "INSTANCE#i-0abc/INSTANCE");
        check(&chunk(&cluster, "pods", "12ab"), "AGENT#prod/CHUNK#pods#12ab");
        assert_eq!(name_of(&claim(&cluster, &claim_name), NODE_CLAIM), Some("default-3k9x2"));
        assert_eq!(name_of(&claim(&cluster, &claim_name), LAUNCH), None);
    }

    #[test]
    fn keys_of_the_journal_are_the_contracts() {
        let region = Region::parse("us-east-1").unwrap();
        let cluster = ClusterName::parse("prod").unwrap();
        let at = Timestamp::from_millisecond(1_767_225_600_042).unwrap();
        let claim_name = ClaimName::parse("default-3k9x2").unwrap();
        let subject = Subject { kind: SubjectKind::Claim, name: claim_name.to_string() };
        let of = JournalOf::Cluster(&cluster);
        check(
            &journal(of, &subject, at, DecisionCounter::Subject(12), 0),
            "JOURNAL#prod#claim#default-3k9x2/2026-01-01T00:00:00.042Z#00000012#0",
        );
        check(
            &journal_day(of, &subject, at, DecisionCounter::Subject(12), 1),
            "JOURNAL#prod#day#2026-01-01/2026-01-01T00:00:00.042Z#claim#default-3k9x2#00000012#1",
        );
        let counted = revision(&cluster);
        check(
            &journal(of, &subject, at, DecisionCounter::Item(&counted, 12), 0),
            "JOURNAL#prod#claim#default-3k9x2/2026-01-01T00:00:00.042Z#00000012#0#REVISION",
        );
        check(
            &journal_day(of, &subject, at, DecisionCounter::Item(&counted, 12), 1),
            "JOURNAL#prod#day#2026-01-01/2026-01-01T00:00:00.042Z#claim#default-3k9x2#00000012#1#REVISION",
        );
        check(
            &launched_pods(&cluster, at, &LaunchId::parse("launch-7").unwrap()),
            "JOURNAL#prod#pods/2026-01-01T00:00:00.042Z#launch-7",
        );
        let image = Subject { kind: SubjectKind::Image, name: "ami-0abc".to_owned() };
        assert_eq!(JournalOf::Region(&region).subject_pk(&image), "JOURNAL#REGION#us-east-1#image#ami-0abc");
    }
}
