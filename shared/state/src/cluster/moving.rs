//! Pods that move once their replacement is ready: they run on nodes that a disruption command holds.
//!
//! Decides which room of replacements on their way is theirs. Without it `provisioner` would plan pending pods into that
//! room, and the candidates' pods would need another node. It is kept until the replacement is initialised: from then on
//! kube-scheduler gives it to whom it likes, and `disruption` judges whether it is enough.

use tenon_domain::api::Pod;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, CommandRole};
use tenon_domain::id::CommandId;

use super::ObservedCluster;

impl ObservedCluster<'_> {
    /// Keeps the room of replacements on their way for the pods of the nodes that they replace.
    pub fn keep_room_of_moving(&mut self) {
        for launch in self.view.launches.values() {
            for planned in &launch.claims {
                let Some(claim) = self.view.claims.get(&planned.name) else { continue };
                let (CommandRole::Replacement(command), ClaimPhase::Launched | ClaimPhase::Registered) =
                    (&claim.role, claim.phase())
                else {
                    continue;
                };
                let candidates = self.view.claims.values().filter(|claim| is_held(claim, command));
                let here =
                    candidates.filter_map(|claim| self.bound.get(&self.node_of(claim)?.name)).flatten();
                let moves = |pod: &&&Pod| planned.pods.contains(&pod.uid) && pod.deleted_at.is_none();
                let pods: Vec<_> = here.filter(moves).copied().collect();
                self.moving.insert(&planned.name, pods);
            }
        }
    }
}

fn is_held(claim: &Claim, command: &CommandId) -> bool {
    matches!(&claim.state, ClaimState::Disrupting { command: by, .. } if by == command)
}
