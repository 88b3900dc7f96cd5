//! The contenders of the latch benchmark: every latch of the engine's crate, the standard library's
//! mutex and parking_lot's.

use super::round::{Load, Round, round};
use clearway_harness::Res;
use clearway_latch::acquire::{Compare, Swap, Tested};
use clearway_latch::lockstat::Class;
use clearway_latch::{Latch, Latched, ParkLatch, RawLatch, SpinLatch};
use clearway_specimens::{
    ElidedLatch, McsLatch, SLockCas, SLockTas, TicketLatch, elision_available,
};

/// The protected data: the number of acquisitions. A latch without mutual exclusion loses some.
#[derive(Debug, Default)]
pub struct Protected {
    /// Critical sections begun.
    pub taken: u64,
}

/// A latch under test.
pub trait Contender: Send + Sync + 'static {
    /// Creates a free latch.
    fn new() -> Self;

    /// Runs `section` exclusively.
    fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R;
}

impl<L: RawLatch + 'static> Contender for Latched<Protected, L> {
    fn new() -> Self {
        Latched::new(Protected::default())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R {
        section(&mut self.lock())
    }
}

/// The lockstat class of the engine's latch in this benchmark.
static CLASS: Class = Class::new("lab.spinlock");

impl Contender for Latch<Protected> {
    fn new() -> Self {
        Self::new(&CLASS, Protected::default())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R {
        section(&mut self.lock())
    }
}

impl Contender for std::sync::Mutex<Protected> {
    fn new() -> Self {
        Self::new(Protected::default())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R {
        section(&mut self.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Contender for parking_lot::Mutex<Protected> {
    fn new() -> Self {
        Self::new(Protected::default())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R {
        section(&mut self.lock())
    }
}

/// A latch type.
pub struct Kind {
    /// Name in tables and reports.
    pub name: &'static str,
    /// Runs one round on a new latch.
    pub round: fn(&Load) -> Res<Round>,
}

/// The engine's latch, which lockstat counts.
pub const ENGINE: &str = "park, counted";
/// The same without a count. The engine has no such latch.
pub const UNCOUNTED: &str = ParkLatch::NAME;
/// The standard library's mutex.
pub const STD: &str = "std";
/// parking_lot's mutex.
pub const PARKING_LOT: &str = "parking_lot";
/// The latch that only spins (test-and-test-and-set); it collapses with more threads than cores.
pub const SPINNING: &str = <Tested<Swap> as clearway_latch::acquire::Acquisition>::NAME;

/// Returns all latches that this processor supports, the engine's first and its peers last.
pub fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        Kind { name: ENGINE, round: round::<Latch<Protected>> },
        latch::<ParkLatch>(),
        latch::<SpinLatch<Swap>>(),
        latch::<SpinLatch<Tested<Swap>>>(),
        latch::<SpinLatch<Compare>>(),
        latch::<SpinLatch<Tested<Compare>>>(),
    ];
    #[cfg(target_arch = "aarch64")]
    kinds.extend(aarch64());
    if elision_available() {
        kinds.push(latch::<ElidedLatch>());
    }
    kinds.extend([
        latch::<SLockTas>(),
        latch::<SLockCas>(),
        latch::<TicketLatch>(),
        latch::<McsLatch>(),
        Kind { name: STD, round: round::<std::sync::Mutex<Protected>> },
        Kind { name: PARKING_LOT, round: round::<parking_lot::Mutex<Protected>> },
    ]);
    kinds
}

#[cfg(target_arch = "aarch64")]
fn aarch64() -> Vec<Kind> {
    use clearway_latch::acquire::{Acquisition, CompareWfe, LseCompare, LseSwap};
    let mut kinds = vec![latch::<SpinLatch<CompareWfe>>()];
    if LseSwap::available() {
        kinds.extend([
            latch::<SpinLatch<LseSwap>>(),
            latch::<SpinLatch<Tested<LseSwap>>>(),
            latch::<SpinLatch<LseCompare>>(),
            latch::<SpinLatch<Tested<LseCompare>>>(),
        ]);
    }
    kinds
}

fn latch<L: RawLatch + 'static>() -> Kind {
    Kind { name: L::NAME, round: round::<Latched<Protected, L>> }
}
