//! A world's ports over another table: one that fails, waits or conflicts on the way to the world's own.
//!
//! Decides nothing.

use jiff::{SignedDuration, Timestamp};
use tenon_table::Table;
use tenon_twin::RegionTwin;

use super::{FunctionWorld, Recorder};
use tenon_runtime::ports::{Installation, Ports};

/// A world with this table.
pub struct Over<T> {
    world: FunctionWorld,
    pub(super) table: T,
}

impl<T> std::fmt::Debug for Over<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Over").field("world", &self.world).finish_non_exhaustive()
    }
}

impl<T> Over<T> {
    /// The world with this table in the place of its own.
    #[must_use]
    pub fn of(world: &FunctionWorld, table: T) -> Self {
        Self { world: world.clone(), table }
    }
}

impl<T: Table + Send + Sync> Ports for Over<T> {
    type Table = T;
    type Ec2 = RegionTwin;
    type Signals = Recorder;

    fn table(&self) -> &T {
        &self.table
    }

    fn ec2(&self) -> &RegionTwin {
        &self.world.ec2
    }

    fn signals(&self) -> &Recorder {
        &self.world.signals
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    async fn pause(&self, time: SignedDuration) {
        self.world.clock.advance(time);
    }

    fn installation(&self) -> &Installation {
        &self.world.installation
    }
}
