//! The clocks of the simulated machine: a wall clock that jumps, a boot clock that does not, and boots.

use agentrun::domain::quantity::{BootId, BootMs, Now, UtcMs};

#[derive(Debug, Clone)]
pub(crate) struct Clock {
    utc: i64,
    boot: u64,
    boots: u32,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { utc: 1_789_466_400_000, boot: 100_000, boots: 1 }
    }

    pub(crate) fn now(&self) -> Now {
        Now { utc: UtcMs(self.utc), boot: self.boot(), boot_id: self.boot_id() }
    }

    pub(crate) fn boot(&self) -> BootMs {
        BootMs(self.boot)
    }

    pub(crate) fn boot_id(&self) -> BootId {
        BootId(format!("boot-{}", self.boots))
    }

    /// Time passes, on both clocks; also while the machine is suspended.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.boot += ms;
        self.utc += ms.cast_signed();
    }

    /// Somebody sets the wall clock.
    pub(crate) fn jump(&mut self, ms: i64) {
        self.utc += ms;
    }

    /// The machine begins anew.
    pub(crate) fn reboot(&mut self) {
        self.pass(20_000);
        self.boots += 1;
        self.boot = 5_000;
    }
}
