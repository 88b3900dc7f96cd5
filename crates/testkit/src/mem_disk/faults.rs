//! The fault plan of an in-memory disk: which faults occur, where, and how often.
//!
//! A plan divides the disk into zones, each with a role. The role says what the engine must
//! guarantee under a fault. A plan contains only faults that its roles cover, so a test that fails
//! under a plan has found a bug.
//!
//! | role   | continues           | stops with the reason  | detects the damage | not covered   |
//! |--------|---------------------|------------------------|--------------------|---------------|
//! | log    | short reads, delays | failing reads, writes, | flipped bits,      | lost and      |
//! |        |                     | syncs, names, opens,   | unreadable sectors | misled writes |
//! |        |                     | lists                  |                    |               |
//! | pages  | short and failing   | failing writes, syncs, | flipped bits,      | lost and      |
//! |        | reads, delays       | names, opens, lists    | unreadable sectors | misled writes |
//! | copies | short reads, delays | as the log             | flipped bits,      | lost and      |
//! |        |                     |                        | unreadable sectors | misled writes |
//! | root   | short reads, delays | as the log             | flipped bits,      | lost and      |
//! |        |                     |                        | unreadable sectors | misled writes |
//! | cache  | all                 | -                      | -                  | -             |
//! | any    | short reads, delays | -                      | all others         | -             |
//!
//! Copies are the ones that repair torn pages. The root is what start-up reads first. A cache may
//! be lost without harm. "Detects" means an error that names the place when the data is needed,
//! never a wrong result or a silently lost commit. A write that was acknowledged but not done, or
//! done elsewhere, leaves old content with a valid checksum, so no checksum in that place can
//! detect it. Role `any` exists to demonstrate that. Zones do not matter for crashes (with unsynced
//! writes lost, torn and reordered), a full disk and a read-only disk: every role continues after
//! them.
//!
//! # Invariants
//! 1. Each rule injects at most `times` faults: the zone's budget.
//! 2. At most one fault hits an operation, besides a delay.
//! 3. The same operations in the same order with the same seed give the same faults.
//!
//! # Locking
//! One mutex, which is a leaf. A panic cannot occur under it.
//!
//! # Source
//! TigerBeetle's storage simulator: faults are distributed so that the engine must, and can,
//! survive them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clearway_env::SeededEntropy;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A read fails; the next one may succeed.
    FailedRead,
    /// A sector in the read range becomes unreadable for everyone until it is rewritten.
    UnreadableSector,
    /// A read returns fewer bytes than requested and available, but at least one.
    ShortRead,
    /// A bit in the read range has permanently flipped at rest. It is in synced data; in a cache
    /// also in unsynced data, as the system may have written it back.
    FlippedBit,
    /// A write, or a change of the length, fails. A write may have written some of its sectors,
    /// from the first on.
    FailedWrite,
    /// A write is acknowledged but never reaches the medium; the cache may have it for a while.
    LostWrite,
    /// A write is acknowledged but lands at another sector of the file.
    MisledWrite,
    /// A sync of a file fails. Any of the unsynced sectors may be on the medium. The others count
    /// as clean, so a later sync succeeds without writing them; they are lost at a crash, or at
    /// once.
    FailedSync,
    /// Creating, renaming or removing a file, or syncing a directory, fails and changes nothing.
    FailedName,
    /// A file cannot be opened, as when the process has too many open files.
    FailedOpen,
    /// A directory cannot be listed.
    FailedList,
    /// The operation takes longer: see [`crate::Operation::delay`].
    Delay,
}

/// The role of a zone's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The write-ahead log.
    Log,
    /// Pages in their home locations.
    Pages,
    /// Copies of pages, used to repair torn pages.
    Copies,
    /// What start-up must read before everything else.
    Root,
    /// Additional copies of pages that are not needed.
    Cache,
    /// Unspecified; the test decides.
    Any,
}

/// What the engine must do under a fault, the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Continues; at most the callers that need the failed operation get an error.
    Continues,
    /// Stops with the reason; the next start finds everything that was acknowledged.
    Stops,
    /// May lose the data that was hit, and reports that to callers that need it.
    Detects,
}

impl Role {
    /// Returns the engine's duty under `fault` in a zone of this role; `None` if the role does not
    /// cover it.
    pub fn duty(self, fault: Fault) -> Option<Duty> {
        match (self, fault) {
            (_, Fault::Delay | Fault::ShortRead)
            | (Self::Pages, Fault::FailedRead)
            | (Self::Cache, _) => Some(Duty::Continues),
            (Self::Any, _) | (_, Fault::FlippedBit | Fault::UnreadableSector) => {
                Some(Duty::Detects)
            }
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

/// Selects which of the eligible operations a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All except the first N.
    After(u64),
    /// One in N, as the seed decides.
    OneIn(u64),
}

/// No limit on the number of times that a fault may occur.
pub const FOR_EVER: u64 = u64::MAX;

/// Kinds of operations.
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
    /// Creating, renaming or removing a file, or syncing or creating a directory.
    Name,
    /// Opening a file; neither delayed nor seen by a [`crate::Hook`].
    Open,
    /// Listing a directory; neither delayed nor seen by a [`crate::Hook`].
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
pub struct FaultZone {
    role: Role,
    name: &'static str,
    holds: Box<dyn Fn(&Path) -> bool + Send + Sync>,
    rules: Vec<Rule>,
}

impl FaultZone {
    /// Creates a zone without faults, for the files for which `holds` returns true. `holds` gets
    /// the path under which the file was opened.
    pub fn new(
        role: Role,
        name: &'static str,
        holds: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { role, name, holds: Box::new(holds), rules: Vec::new() }
    }

    /// Creates the zone of one file, or of a directory and everything below it.
    pub fn under(role: Role, name: &'static str, path: impl Into<PathBuf>) -> Self {
        let top = path.into();
        Self::new(role, name, move |path| path.starts_with(&top))
    }

    /// Adds a fault that occurs at most `times` times.
    ///
    /// # Panics
    /// Panics if the role does not cover the fault.
    pub fn fault(mut self, fault: Fault, when: When, times: u64) -> Self {
        assert!(
            self.role.duty(fault).is_some(),
            "zone {}: {:?} does not cover {fault:?}",
            self.name,
            self.role
        );
        self.rules.push(Rule { fault, when, times });
        self
    }
}

/// A fault that occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The zone's name.
    pub zone: &'static str,
    /// The engine's duty under it.
    pub duty: Duty,
    /// The kind of fault.
    pub fault: Fault,
    /// The file or directory that it hit.
    pub path: PathBuf,
    /// The position in the file of a flipped bit. Except in a cache, it is never in an unsynced
    /// sector.
    pub at: Option<u64>,
}

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} in zone {}", self.fault, self.path.display(), self.zone)
    }
}

/// Zones with their faults, and the faults that have occurred. A disk shares its plan with the
/// disks that its crashes leave.
pub struct FaultPlan {
    zones: Vec<FaultZone>,
    delay_limit: Duration,
    random: SeededEntropy,
    state: Mutex<State>,
}

struct State {
    /// For each zone and rule: the number of operations that were eligible, and the number hit.
    rules: Vec<Vec<(u64, u64)>>,
    injected: Vec<InjectedFault>,
}

/// The effect of the plan on one operation.
#[derive(Default)]
pub(super) struct Verdict {
    /// The fault, the duty under it, and its index among all faults that occurred.
    fault: Option<(Fault, Duty, usize)>,
    pub(super) delay: Duration,
}

/// A fault that hits an operation, and the random numbers for its details.
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

    /// Records the position of the flipped bit.
    pub(super) fn hits(&self, at: u64) {
        if let Some(injected) = self.plan.state().injected.get_mut(self.number) {
            injected.at = Some(at);
        }
    }
}

impl FaultPlan {
    /// Creates a plan. A path belongs to the first zone that holds it. `delay_limit` bounds a
    /// single delay.
    pub fn new(seed: u64, delay_limit: Duration, zones: Vec<FaultZone>) -> Self {
        let rules = zones.iter().map(|zone| vec![(0, 0); zone.rules.len()]).collect();
        let state = Mutex::new(State { rules, injected: Vec::new() });
        Self { zones, delay_limit, random: SeededEntropy::new(seed), state }
    }

    /// Returns the faults so far, without delays.
    pub fn injected(&self) -> Vec<InjectedFault> {
        self.state().injected.clone()
    }

    pub(super) fn judge(&self, kind: OpKind, path: &Path) -> Verdict {
        let mut verdict = Verdict::default();
        let Some((at, zone)) = self.zones.iter().enumerate().find(|(_, zone)| (zone.holds)(path))
        else {
            return verdict;
        };
        let mut state = self.state();
        let State { rules, injected } = &mut *state;
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
                verdict.fault = Some((rule.fault, duty, injected.len()));
                injected.push(InjectedFault {
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

/// Returns the error of a broken medium: EIO has no `ErrorKind` of its own.
pub(super) fn broken(what: &str, path: &Path) -> io::Error {
    io::Error::other(format!("{what} {}: input/output error (injected)", path.display()))
}
