//! The systems that are compared, and one simulated run of each.

use crate::experiment::Task;
use clearway_harness::Res;
use clearway_remote::ycsb::{Costs, Outcome, Setup, Transport, run};
use clearway_remote::{LockKind, Mode, Protocol};

/// Thetas of a figure.
pub const THETAS: [f64; 9] = [0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
pub const QUICK_THETAS: [f64; 2] = [0.0, 0.85];

/// Transactions that a worker has under way by messages. RCBench keeps 16 at a node, which its workers share: `config.h` of
/// dbiir/RCBench, commit 01465fd, `MAX_TXN_IN_FLIGHT`. The source has 8 workers at a node. With one-sided verbs RCBench's
/// workers make their own transactions (`SERVER_GENERATE_QUERIES`), one after the other.
pub const BY_MESSAGES: usize = 2;

/// A way to lock rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    pub name: &'static str,
    transport: Transport,
    kind: LockKind,
    cached: bool,
}

const fn one_sided(name: &'static str, kind: LockKind) -> System {
    System { name, transport: Transport::OneSided, kind, cached: false }
}

const fn cached(name: &'static str, kind: LockKind) -> System {
    System { cached: true, ..one_sided(name, kind) }
}

pub const M: System = one_sided("M", LockKind::Mutual);
pub const M_S: System = one_sided("M/S", LockKind::Shared);
pub const TWO_SIDED: System = System { transport: Transport::TwoSided, ..one_sided("two-sided", LockKind::Shared) };
pub const TCP: System = System { transport: Transport::Tcp, ..one_sided("TCP", LockKind::Shared) };
pub const ONE_ROUND: System = one_sided("one round", LockKind::OneRound);
pub const ONE_ROUND_CACHED: System = cached("one round, cached locations", LockKind::OneRound);
pub const ADAPTIVE: System = one_sided("adaptive", LockKind::Adaptive);
pub const LINE: System = one_sided("M in line", LockKind::Line);
pub const LINE_CACHED: System = cached("M in line, cached locations", LockKind::Line);

/// The source's systems, then those past it.
pub const NO_WAIT: [System; 6] = [M, M_S, TWO_SIDED, TCP, ONE_ROUND, ONE_ROUND_CACHED];
pub const WAIT_DIE: [System; 6] = [M, M_S, TWO_SIDED, TCP, LINE, LINE_CACHED];

impl System {
    /// Transactions that a worker has under way.
    fn transactions(self, load: Load) -> usize {
        match load.transactions {
            Some(transactions) => transactions,
            None if self.transport == Transport::OneSided => 1,
            None => BY_MESSAGES,
        }
    }

    /// One run.
    pub fn run(&self, task: &Task, protocol: Protocol, load: Load, seed: u64) -> Res<Outcome> {
        let mode = Mode { protocol, kind: self.kind };
        let full = Setup::new(mode, self.transport, load.theta, load.writes);
        let transactions = self.transactions(load);
        let full = Setup { seed, cached: self.cached, costs: load.costs, transactions, ..full };
        run(&sized(task, full))
            .map_err(|why| format!("{protocol:?}, {}, theta {}, seed {seed}: {why}", self.name, load.theta))
    }
}

/// A quick run has fewer rows and transactions.
pub fn sized(task: &Task, full: Setup) -> Setup {
    if task.options.quick { Setup { rows: 2_000, warm_up: 20, commits: 80, ..full } } else { full }
}

/// What the transactions are like, and what everything costs.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub theta: f64,
    pub writes: f64,
    pub costs: Costs,
    /// Transactions that a worker runs at a time; if none is given, as many as in RCBench.
    pub transactions: Option<usize>,
}

impl Load {
    pub fn new(theta: f64, writes: f64) -> Self {
        Self { theta, writes, costs: Costs::default(), transactions: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_transactions_of_rcbench_under_way() {
        let load = Load::new(0.85, 0.5);
        assert_eq!([M, ADAPTIVE, LINE, TWO_SIDED, TCP].map(|system| system.transactions(load)), [1, 1, 1, 2, 2]);
        let four = Load { transactions: Some(4), ..load };
        assert_eq!([M, TCP].map(|system| system.transactions(four)), [4, 4]);
    }
}
