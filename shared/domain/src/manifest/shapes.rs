//! Shapes of pods, each held once: ten thousand pods of a few controllers share a few shapes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::pod::PodShape;

/// The shapes of a reading.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadShapes(BTreeSet<Arc<PodShape>>);

impl ReadShapes {
    /// The shared shape that equals this one.
    pub(super) fn intern(&mut self, shape: PodShape) -> Arc<PodShape> {
        if let Some(known) = self.0.get(&shape) {
            return Arc::clone(known);
        }
        let shared = Arc::new(shape);
        self.0.insert(Arc::clone(&shared));
        shared
    }
}
