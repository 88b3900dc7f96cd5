//! What may go wrong on a disk in memory, where, and how often: the fault plan.
//!
//! A plan divides the disk into zones, each with a role. The role says what the engine owes at a
//! fault, and a plan holds no fault that the role is not asked about: a test that fails under a
//! plan has found a bug, not a wish.
//!
//! | role   | the rest goes on    | stops, and says why     | finds the damage       | is not asked    |
//! |--------|---------------------|-------------------------|------------------------|-----------------|
//! | log    | short reads, delays | failing reads, writes,  | flipped bits,          | lost and        |
//! |        |                     | syncs, names, opens,    | unreadable sectors     | misled writes   |
//! |        |                     | lists                   |                        |                 |
//! | pages  | short and failing   | failing writes, syncs,  | flipped bits,          | lost and        |
//! |        | reads, delays       | names, opens, lists     | unreadable sectors     | misled writes   |
//! | copies | short reads, delays | as the log              | flipped bits,          | lost and        |
//! |        |                     |                         | unreadable sectors     | misled writes   |
//! | root   | short reads, delays | as the log              | flipped bits,          | lost and        |
//! |        |                     |                         | unreadable sectors     | misled writes   |
//! | cache  | all                 | -                       | -                      | -               |
//! | any    | -                   | -                       | all                    | -               |
//!
//! Copies are those that mend torn pages; the root is what a start reads first; a cache is what
//! could as well not be there. "Finds" means: an error that names the place, when something needs
//! what is there; never a wrong answer, never a commit that is quietly gone. A write that was
//! acknowledged and not done, or done elsewhere, leaves a place with an old content whose checksum
//! is right, so that no checksum in the place itself can tell: role `any` is for showing that.
//! Crashes, with unsynced writes lost, torn and out of order, a full disk and a read-only one are
//! no matter of zones: every role goes on after them.
//!
//! # Invariants
//! 1. Each rule strikes at most as often as it says: that is the zone's budget.
//! 2. At most one fault strikes an operation, besides a delay.
//! 3. The same operations in the same order and the same seed give the same faults.
//!
//! # Locking
//! One mutex, which is a leaf. A panic cannot occur under it.
//!
//! # Source
//! TigerBeetle's storage simulator: faults are dealt so that the engine must, and can, survive
//! them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::entropy::SeededEntropy;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A read fails; the next one may succeed.
    FailedRead,
    /// A sector of what is read cannot be read any more, by anyone, until it is written again.
    UnreadableSector,
    /// A read brings fewer bytes than were asked for and are there, at least one.
    ShortRead,
    /// A bit of what is read has flipped at rest, for good: in what is synced, and in a cache in
    /// what is not, too, as the system may have written it back.
    FlippedBit,
    /// A write, or a change of the length, fails; a write may have done some of its sectors, from
    /// the first on.
    FailedWrite,
    /// A write is acknowledged and never reaches the medium; the cache may have it for a while.
    LostWrite,
    /// A write is acknowledged and lands at another sector of the file.
    MisledWrite,
    /// A sync of a file fails. Any of the unsynced sectors are on the medium; the others count as
    /// clean, so that a later sync succeeds and writes nothing, and are gone at a crash, or at
    /// once.
    FailedSync,
    /// Creating, renaming or removing a file, or syncing a directory, fails and changes nothing.
    FailedName,
    /// A file cannot be opened, as when the process has too many files open.
    FailedOpen,
    /// A directory cannot be listed.
    FailedList,
    /// The operation takes longer: see [`crate::Operation::delay`].
    Delay,
}

/// What a zone is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The write-ahead log.
    Log,
    /// Pages in their places.
    Pages,
    /// Copies of pages, from which torn ones are mended.
    Copies,
    /// What a start must read before everything else.
    Root,
    /// Further copies of pages, which nobody needs.
    Cache,
    /// Whatever the test says.
    Any,
}

/// What the engine owes at a fault, the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Goes on; at most those who need what failed get an error.
    GoesOn,
    /// Stops with the reason; a new start finds everything that was acknowledged.
    Stops,
    /// May lose what was hit, and says so to whoever needs it.
    Finds,
}

impl Role {
    /// What the engine owes at such a fault in such a zone; `None` if it is not asked.
    pub fn duty(self, fault: Fault) -> Option<Duty> {
        match (self, fault) {
            (_, Fault::Delay | Fault::ShortRead)
            | (Self::Pages, Fault::FailedRead)
            | (Self::Cache, _) => Some(Duty::GoesOn),
            (Self::Any, _) | (_, Fault::FlippedBit | Fault::UnreadableSector) => Some(Duty::Finds),
            (_, Fault::LostWrite | Fault::MisledWrite) => None,
            (
                _,
                Fault::FailedRead
                | Fault::FailedWrite
                | Fault::FailedSync
                | Fault::FailedName
                | Fault::FailedOpen
                | Fault::FailedList,
            ) => Some(Duty::Stops),
        }
    }
}

/// Which of the operations that a fault can hit it does hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All but the first so many.
    After(u64),
    /// One in so many, as the seed says.
    OneIn(u64),
}

/// For ever: as the number of times that a fault may strike.
pub const FOR_EVER: u64 = u64::MAX;

/// What the disk is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A read of a file.
    Read,
    /// A write to a file.
    Write,
    /// A change of a file's length.
    SetLen,
    /// A sync of a file.
    Sync,
    /// The creation, the renaming or the removal of a file, or a directory's sync or creation.
    Name,
    /// The opening of a file; neither delayed nor seen by a [`crate::Hook`].
    Open,
    /// The listing of a directory; neither delayed nor seen by a [`crate::Hook`].
    List,
}

impl Fault {
    fn hits(self, kind: OpKind) -> bool {
        match self {
            Self::FailedRead | Self::UnreadableSector | Self::ShortRead | Self::FlippedBit => {
                kind == OpKind::Read
            }
            Self::FailedWrite => matches!(kind, OpKind::Write | OpKind::SetLen),
            Self::LostWrite | Self::MisledWrite => kind == OpKind::Write,
            Self::FailedSync => kind == OpKind::Sync,
            Self::FailedName => kind == OpKind::Name,
            Self::FailedOpen => kind == OpKind::Open,
            Self::FailedList => kind == OpKind::List,
            Self::Delay => !matches!(kind, OpKind::Open | OpKind::List),
        }
    }
}

struct Rule {
    fault: Fault,
    when: When,
    times: u64,
}

/// Files with one role, and the faults that may hit them.
pub struct Zone {
    role: Role,
    name: &'static str,
    holds: Box<dyn Fn(&Path) -> bool + Send + Sync>,
    rules: Vec<Rule>,
}

impl Zone {
    /// The zone of the files for which `holds` says so, none of them hit by anything. A file has
    /// the path under which it was opened.
    pub fn new(
        role: Role,
        name: &'static str,
        holds: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { role, name, holds: Box::new(holds), rules: Vec::new() }
    }

    /// The zone of what lies under a directory, the directory itself included, or of one file.
    pub fn under(role: Role, name: &'static str, path: impl Into<PathBuf>) -> Self {
        let top = path.into();
        Self::new(role, name, move |path| path.starts_with(&top))
    }

    /// Adds a fault that strikes at most `times` times.
    ///
    /// # Panics
    /// If the role is not asked about it.
    pub fn fault(mut self, fault: Fault, when: When, times: u64) -> Self {
        assert!(
            self.role.duty(fault).is_some(),
            "zone {}: {:?} is not asked about {fault:?}",
            self.name,
            self.role
        );
        self.rules.push(Rule { fault, when, times });
        self
    }
}

/// A fault that has struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The zone's name.
    pub zone: &'static str,
    /// What the engine owes for it.
    pub duty: Duty,
    /// What it was.
    pub fault: Fault,
    /// What it hit.
    pub path: PathBuf,
    /// Where in the file, if a bit has flipped there: but for a cache not in a sector that is not
    /// synced.
    pub at: Option<u64>,
}

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} in zone {}", self.fault, self.path.display(), self.zone)
    }
}

/// Zones with their faults, and how many have struck: shared by a disk and those that its crashes
/// leave.
pub struct FaultPlan {
    zones: Vec<Zone>,
    delay_limit: Duration,
    random: SeededEntropy,
    state: Mutex<State>,
}

struct State {
    /// For each zone and rule: the operations that it could have hit, and those that it has hit.
    rules: Vec<Vec<(u64, u64)>>,
    struck: Vec<InjectedFault>,
}

/// What happens to an operation.
#[derive(Default)]
pub(super) struct Verdict {
    /// With what is owed for it, and its number among all that have struck.
    fault: Option<(Fault, Duty, usize)>,
    pub(super) delay: Duration,
}

/// A fault that strikes, and the numbers that say how.
pub(super) struct FaultEffect {
    pub(super) fault: Fault,
    pub(super) duty: Duty,
    number: usize,
    plan: Arc<FaultPlan>,
}

impl FaultEffect {
    pub(super) fn of(verdict: Verdict, plan: Arc<FaultPlan>) -> Option<Self> {
        verdict.fault.map(|(fault, duty, number)| Self { fault, duty, number, plan })
    }

    pub(super) fn random(&self) -> &SeededEntropy {
        &self.plan.random
    }

    /// Notes the byte that it has hit.
    pub(super) fn hits(&self, at: u64) {
        if let Some(struck) = self.plan.state().struck.get_mut(self.number) {
            struck.at = Some(at);
        }
    }
}

impl FaultPlan {
    /// A plan; a path belongs to the first zone that holds it. `delay_limit` bounds what one delay
    /// takes.
    pub fn new(seed: u64, delay_limit: Duration, zones: Vec<Zone>) -> Self {
        let rules = zones.iter().map(|zone| vec![(0, 0); zone.rules.len()]).collect();
        let state = Mutex::new(State { rules, struck: Vec::new() });
        Self { zones, delay_limit, random: SeededEntropy::new(seed), state }
    }

    /// What has struck so far, delays left out.
    pub fn struck(&self) -> Vec<InjectedFault> {
        self.state().struck.clone()
    }

    pub(super) fn judge(&self, kind: OpKind, path: &Path) -> Verdict {
        let mut verdict = Verdict::default();
        let Some((at, zone)) = self.zones.iter().enumerate().find(|(_, zone)| (zone.holds)(path))
        else {
            return verdict;
        };
        let mut state = self.state();
        let State { rules, struck } = &mut *state;
        for (rule, (seen, hits)) in zone.rules.iter().zip(&mut rules[at]) {
            let taken = verdict.fault.is_some() && rule.fault != Fault::Delay;
            if !rule.fault.hits(kind) || *hits >= rule.times || taken {
                continue;
            }
            *seen += 1;
            let strikes = match rule.when {
                When::After(n) => *seen > n,
                When::OneIn(n) => self.random.below(n) == 0,
            };
            if !strikes {
                continue;
            }
            *hits += 1;
            if rule.fault == Fault::Delay {
                let limit_ns = self.delay_limit.as_nanos() as u64;
                verdict.delay +=
                    Duration::from_nanos(self.random.below(limit_ns.saturating_add(1)));
            } else if let Some(duty) = zone.role.duty(rule.fault) {
                verdict.fault = Some((rule.fault, duty, struck.len()));
                struck.push(InjectedFault {
                    zone: zone.name,
                    duty,
                    fault: rule.fault,
                    path: path.to_owned(),
                    at: None,
                });
            }
        }
        verdict
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a broken medium says: EIO has no kind of its own.
pub(super) fn broken(what: &str, path: &Path) -> io::Error {
    io::Error::other(format!("{what} {}: input/output error (injected)", path.display()))
}
