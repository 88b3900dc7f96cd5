//! `clearway-lab serve`: the real server with a replacement that exists only for measurements.
//!
//! The replacement comes in through the public extension point, [`ReplacementKind::Custom`]. The
//! rest of the server is unchanged.

use clearway_latch::RawLatch;
use clearway_latch::lockstat::Class;
use clearway_replacement::{
    Policy, PolicyKind, Probe, Replacement, ReplacementFactory, ReplacementKind, WrapperKind,
};
use clearway_server::config::Flags;
use clearway_server::exit::{self, ExitFailure};
use clearway_server::{Config, serve};
use clearway_specimens::{SLockCas, SLockTas};
use clearway_types::{FrameId, PageId};
use std::panic::Location;
use std::str::FromStr;

/// Flags of `serve`: those of `clearway serve`, and the replacement under test.
#[derive(Debug, clap::Args)]
pub struct ServeFlags {
    /// Replacement for measurements: lru/s_lock(tas) or lru/s_lock(cas), LRU behind PostgreSQL's
    /// spinlock, which every page access takes; or POLICY/WRAPPER with a wrapper that no server
    /// offers, such as lru/locked or 2q/batched [default: that of --replacement]
    #[arg(long, value_name = "NAME")]
    specimen: Option<Specimen>,
    #[command(flatten)]
    flags: Box<Flags>,
}

/// Runs the server until a signal stops it.
pub fn serve(flags: ServeFlags) -> Result<(), ExitFailure> {
    let config = Config::load(*flags.flags)
        .map_err(|message| ExitFailure::new(exit::ExitCode::Usage, message));
    let mut config = config?;
    if let Some(specimen) = flags.specimen {
        config.replacement = specimen.kind();
    }
    serve::serve(config)
}

/// A replacement that no server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specimen {
    /// LRU behind `s_lock` with test-and-set.
    LruSLockTas,
    /// LRU behind `s_lock` with compare-and-swap.
    LruSLockCas,
    /// A policy in a wrapper.
    Wrapped(PolicyKind, WrapperKind),
}

impl Specimen {
    /// LRU behind PostgreSQL's spinlock, with each acquisition.
    pub const S_LOCKS: [Self; 2] = [Self::LruSLockTas, Self::LruSLockCas];

    /// Returns the policy, and how threads share it.
    pub fn name(self) -> String {
        match self {
            Self::LruSLockTas => format!("lru/{}", SLockTas::NAME),
            Self::LruSLockCas => format!("lru/{}", SLockCas::NAME),
            Self::Wrapped(..) => self.kind().to_string(),
        }
    }

    /// Returns the configuration of the pool.
    fn kind(self) -> ReplacementKind {
        let custom = |factory| ReplacementKind::Custom(ReplacementFactory::Notified(factory));
        match self {
            Self::LruSLockTas => custom(behind::<SLockTas>),
            Self::LruSLockCas => custom(behind::<SLockCas>),
            Self::Wrapped(policy, wrapper) => ReplacementKind::Wrapped(policy, wrapper),
        }
    }
}

impl FromStr for Specimen {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(s_lock) = Self::S_LOCKS.into_iter().find(|specimen| specimen.name() == name) {
            return Ok(s_lock);
        }
        let names = Self::S_LOCKS.map(Self::name).join(", ");
        let (policy, wrapper) =
            name.split_once('/').ok_or_else(|| format!("expected {names} or POLICY/WRAPPER"))?;
        let wrapper = wrapper.parse().map_err(|error| format!("{error}; and {names}"))?;
        Ok(Self::Wrapped(policy.parse()?, wrapper))
    }
}

fn behind<L: RawLatch + 'static>(frames: u32) -> Box<dyn Replacement> {
    Box::new(Behind(clearway_latch::Latched::<_, L>::new(PolicyKind::Lru.build(frames))))
}

/// The latch class of the pool's own replacements, so `clearway.contention` shows them in one row.
static POLICY: Class = Class::new("buffer.policy");

/// A policy behind a latch that every access takes.
struct Behind<L: RawLatch>(clearway_latch::Latched<Box<dyn Policy>, L>);

impl<L: RawLatch> Behind<L> {
    /// Calls the policy under the latch.
    fn with<R>(
        &self,
        caller: &'static Location<'static>,
        call: impl FnOnce(&mut dyn Policy) -> R,
    ) -> R {
        POLICY.request();
        let mut policy = match self.0.try_lock() {
            Some(policy) => policy,
            None => POLICY.timed(caller, || self.0.lock()),
        };
        call(&mut **policy)
    }
}

impl<L: RawLatch> Replacement for Behind<L> {
    fn hit(&self, frame: FrameId, _page: PageId) {
        self.with(Location::caller(), |policy| policy.hit(frame));
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        self.with(Location::caller(), |policy| policy.miss(frame, page));
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.with(Location::caller(), |policy| policy.evict(incoming, probe))
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        self.with(Location::caller(), |policy| {
            if take() {
                policy.remove(frame);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_latch::lockstat;
    use clearway_types::PartitionId;

    const LOCKED: Specimen = Specimen::Wrapped(PolicyKind::Lru, WrapperKind::Locked);

    #[test]
    fn specimens_evict_like_their_policy_and_count() {
        let page = |no| PageId::new(PartitionId(0), no);
        for specimen in Specimen::S_LOCKS.into_iter().chain([LOCKED]) {
            assert_eq!(specimen.name().parse(), Ok(specimen));
            let requests = || {
                lockstat::contention()
                    .iter()
                    .find(|row| row.name == "buffer.policy")
                    .map_or(0, |row| row.requests)
            };
            let before = requests();
            let pages = specimen.kind().build(3);
            (0..3).for_each(|no| pages.miss(FrameId(no), page(no)));
            pages.hit(FrameId(0), page(0));
            pages.remove(FrameId(2), &mut || true);
            pages.remove(FrameId(0), &mut || false);
            let evict = || pages.evict(Some(page(9)), &mut |_| Probe::Take);
            assert_eq!([evict(), evict(), evict()], [Some(FrameId(1)), Some(FrameId(0)), None]);
            assert!(requests() >= before + 9, "every call requests the latch");
        }
        let error = "lru/mcs".parse::<Specimen>().unwrap_err();
        assert!(
            error.contains("locked") && error.contains("lru/s_lock(tas), lru/s_lock(cas)"),
            "{error}"
        );
    }
}
