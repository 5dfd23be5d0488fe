//! EC2NodeClasses that ask for what isn't their cluster's.

use serde_json::{Value, json};
use tenon_domain::id::ClusterName;

use crate::random::Dice;
use crate::world::{node_class, set};

/// EC2 takes so much user data.
const USER_DATA: usize = 16 * 1024;
/// An API server takes objects of so much.
const OBJECT: usize = 1024 * 1024;

/// A class of the third cluster. Each field is its own, selects everything, or names another cluster's.
pub(super) fn drawn_class(third: &ClusterName, other: &ClusterName, dice: &mut Dice) -> Value {
    let mut class = node_class(third.as_str());
    for field in ["subnetSelectorTerms", "securityGroupSelectorTerms"] {
        let names = [third.as_str(), other.as_str(), "*"];
        let name = dice.pick(&names).copied().unwrap_or("*");
        set(&mut class, &["spec", field], json!([{"tags": {"karpenter.sh/discovery": name}}]));
    }
    if dice.permille(300) {
        let all = [json!([{"name": "*"}]), json!([{"name": "*", "owner": "999988887777"}])];
        set(&mut class, &["spec", "amiSelectorTerms"], dice.pick(&all).cloned().unwrap_or_default());
    }
    match dice.below(6) {
        0 => set(&mut class, &["spec", "role"], json!(format!("{other}-node"))),
        1 => {
            class.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove("role"));
            set(&mut class, &["spec", "instanceProfile"], json!(format!("{other}-node")));
        }
        _ => {}
    }
    if dice.permille(150) {
        let owned = format!("kubernetes.io/cluster/{other}");
        let tags = json!({owned: "owned", "tenon.dev/cluster": other.as_str(), "eks:eks-cluster-name": other.as_str()});
        set(&mut class, &["spec", "tags"], tags);
    }
    if dice.permille(200) {
        let size = dice.pick(&[USER_DATA, OBJECT]).copied().unwrap_or(USER_DATA);
        set(&mut class, &["spec", "userData"], json!("x".repeat(size)));
    }
    class
}
