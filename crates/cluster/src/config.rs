//! What a run simulates.

use crate::bugs::PlantedBug;
use clearway_partition::{ExclusiveAccess, SchemeKind};
use clearway_testkit::Rng;

/// Nanoseconds of virtual time.
pub type Nanos = u64;

/// One microsecond.
pub const MICRO: Nanos = 1_000;

/// A run of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Seed of all choices.
    pub seed: u64,
    /// Concurrency-control scheme of every partition at the start.
    pub scheme: SchemeKind,
    /// Mean time between changes of the scheme of a partition to any scheme; 0: none.
    pub scheme_changes: Nanos,
    /// Number of partitions, each with a CPU of its own; at least 1.
    pub partitions: u16,
    /// Number of sessions, each with one transaction at a time.
    pub sessions: u32,
    /// Number of processes that coordinate the sessions' transactions; at least 1.
    pub coordinators: u32,
    /// Whether the coordinator, which must be the only one, orders all transactions at several
    /// partitions, as in the source. Then requests for partitions ride on the first fragments,
    /// which are sent to all partitions at once, and the coordinator knows which transactions are
    /// behind which. Clients send other transactions to the partitions. Needs messages without
    /// faults, and a first round at all of a transaction's partitions.
    pub central: bool,
    /// Number of transactions to start. Repetitions of a transaction that another one has prevented
    /// do not count.
    pub transactions: u64,
    /// What transactions do.
    pub load: ClusterLoad,
    /// Whether the last fragment of a transaction at a partition asks for its vote. Otherwise
    /// PREPARE is a message of its own, as if nobody knew which fragment is the last.
    pub votes_ride: bool,
    /// See [`clearway_partition::Limits::turns`].
    pub turns: usize,
    /// Virtual costs.
    pub costs: ClusterCosts,
    /// Where the log of a partition must be before it answers.
    pub durability: Durability,
    /// What goes wrong.
    pub faults: ClusterFaults,
    /// The bug to plant.
    pub bug: Option<PlantedBug>,
}

/// What transactions do: each writes some keys, and reads what they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterLoad {
    /// Keys of a transaction.
    pub keys: usize,
    /// Keys of a partition.
    pub keys_per_partition: u32,
    /// Transactions at two partitions, per 1000.
    pub multi: u64,
    /// Of these, transactions of two rounds, per 1000.
    pub two_rounds: u64,
    /// Fragments that use a key that all sessions share, per 1000.
    pub conflicts: u64,
    /// Only a transaction's first fragment may use such a key, so a transaction conflicts at one of
    /// its partitions.
    pub conflicts_once: bool,
    /// All keys are drawn from the whole partition, in any order. Otherwise a session has its own.
    pub uniform: bool,
    /// Transactions that abort by themselves, per 1000.
    pub aborts: u64,
}

/// Virtual costs, in nanoseconds unless stated otherwise. A partition is charged for what its state
/// machine has done in a message, whichever transactions that was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterCosts {
    /// CPU time of running a transaction at a partition, besides its rows.
    pub run: Nanos,
    /// Additional CPU time of each fragment that is not a one-shot.
    pub fragment: Nanos,
    /// CPU time of changing a row without undo.
    pub row: Nanos,
    /// CPU time of keeping the undo of a changed row, and of undoing a change. Not charged if the
    /// transaction takes no locks and commits within the message that has changed the row.
    pub undo: Nanos,
    /// Additional CPU time of messages in which row locks are requested, in 1/1000.
    pub locking: u64,
    /// CPU time of each message at a partition.
    pub control: Nanos,
    /// CPU time of a message at a coordinator.
    pub coordinator: Nanos,
    /// Time that a message takes in the network.
    pub network: Nanos,
    /// Time until a record in a log on disk is durable.
    pub sync: Nanos,
}

impl ClusterCosts {
    /// The source's parameters: 64 us for a transaction of 12 keys at one partition, 73 us with
    /// undo, 55 us for 6 keys of one at two partitions (all its messages), which is 37 us a
    /// transaction and 2.25 us a row; a factor of 1.132 for locks; and 156 us between a fragment
    /// and its decision. The source's coordinator saturates when it has half of the transactions
    /// that two partitions can speculate on, which is one in 92 us. It receives five messages a
    /// transaction, so the fragments' two answers take 36 us of the 156.
    pub const SOURCE: Self = Self {
        run: 37 * MICRO,
        fragment: 0,
        row: 2_250,
        undo: 750,
        locking: 132,
        control: 0,
        coordinator: 18 * MICRO,
        network: 60 * MICRO,
        sync: 0,
    };
}

/// Where a partition's log must be before its answers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In the partition's memory. It cannot crash.
    None,
    /// On its disk.
    Disk,
    /// In the memory of this number of backups, at least 1.
    Backups(usize),
}

/// Faults: chances per 1000 of each message, and mean times between crashes; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterFaults {
    /// Messages that are lost.
    pub lost: u64,
    /// Messages that arrive twice.
    pub doubled: u64,
    /// Messages that arrive late, and may overtake each other.
    pub late: u64,
    /// Idle transactions without a vote that a partition abandons when it asks for their outcome.
    pub abandoned: u64,
    /// Mean time between crashes of a coordinator.
    pub coordinator_crash: Nanos,
    /// Mean time between crashes of a partition's primary.
    pub primary_crash: Nanos,
    /// Mean time between crashes of a backup.
    pub backup_crash: Nanos,
}

impl ClusterFaults {
    /// Returns true if nothing goes wrong.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl ClusterConfig {
    /// Returns the source's micro-benchmark on two partitions: 40 clients, 12 keys, its costs. As
    /// there, one coordinator orders transactions at two partitions unless they lock.
    pub fn micro_benchmark(scheme: SchemeKind, multi: u64) -> Self {
        let central = scheme.exclusive() == ExclusiveAccess::WhenUnlocked;
        Self {
            seed: 1,
            scheme,
            scheme_changes: 0,
            partitions: 2,
            sessions: 40,
            coordinators: if central { 1 } else { 40 },
            central,
            transactions: 20_000,
            load: ClusterLoad {
                keys: 12,
                keys_per_partition: 41 * 12,
                multi,
                two_rounds: 0,
                conflicts: 0,
                conflicts_once: false,
                uniform: false,
                aborts: 0,
            },
            votes_ride: true,
            turns: 1,
            costs: ClusterCosts::SOURCE,
            durability: Durability::None,
            faults: ClusterFaults::default(),
            bug: None,
        }
    }

    /// Draws a run with conflicts, aborts and faults.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let partitions = 2 + rng.below(7) as u16;
        // The order of these is fixed, so that kept seeds keep their meaning.
        let kinds = [
            SchemeKind::Hybrid,
            SchemeKind::Blocking,
            SchemeKind::Speculative,
            SchemeKind::Locking,
        ];
        let drawn = kinds[rng.below(4) as usize];
        let optimistic = Rng::new(seed.rotate_left(32)).permille(200);
        let scheme = if optimistic { SchemeKind::Optimistic } else { drawn };
        let sessions = 2 + rng.below(30) as u32;
        let durability = match rng.below(4) {
            0 => Durability::None,
            1 => Durability::Disk,
            backups => Durability::Backups(backups as usize - 1),
        };
        let some = |rng: &mut Rng, most: u64| if rng.permille(500) { rng.below(most) } else { 0 };
        let messages = rng.permille(600);
        let crashes = rng.permille(600);
        let apart = |rng: &mut Rng, often: bool| match often && rng.permille(700) {
            true => (2_000 + rng.below(60_000)) * MICRO,
            false => 0,
        };
        let faults = ClusterFaults {
            lost: if messages { some(&mut rng, 50) } else { 0 },
            doubled: if messages { some(&mut rng, 100) } else { 0 },
            late: if messages { some(&mut rng, 200) } else { 0 },
            abandoned: some(&mut rng, 50),
            coordinator_crash: apart(&mut rng, crashes),
            primary_crash: apart(&mut rng, crashes && durability != Durability::None),
            backup_crash: apart(&mut rng, crashes && matches!(durability, Durability::Backups(_))),
        };
        // Its own draws, so that the others of a seed stay the same.
        let mut changes = Rng::new(!seed);
        let scheme_changes = match changes.permille(400) {
            true => (100 + changes.below(5_000)) * MICRO,
            false => 0,
        };
        Self {
            seed,
            scheme,
            scheme_changes,
            partitions,
            sessions,
            coordinators: 1 + rng.below(u64::from(sessions)) as u32,
            central: false,
            transactions: 500,
            load: ClusterLoad {
                keys: 2 + rng.below(5) as usize,
                keys_per_partition: 6 + rng.below(60) as u32,
                multi: 100 + rng.below(900),
                two_rounds: some(&mut rng, 1000),
                conflicts: some(&mut rng, 1000),
                conflicts_once: false,
                uniform: true,
                aborts: some(&mut rng, 300),
            },
            votes_ride: rng.permille(500),
            turns: 64,
            costs: ClusterCosts {
                run: 4 * MICRO,
                fragment: MICRO,
                row: MICRO,
                undo: MICRO / 2,
                locking: 132,
                control: MICRO,
                coordinator: rng.below(2) * MICRO,
                network: (5 + rng.below(100)) * MICRO,
                sync: 100 * MICRO,
            },
            durability,
            faults,
            bug: None,
        }
    }
}
