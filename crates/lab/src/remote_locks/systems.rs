//! The systems compared, and one simulated run of each.

use crate::experiment::Task;
use clearway_harness::Res;
use clearway_remote::ycsb::{CostField, Costs, Setup, Transport, YcsbOutcome, run};
use clearway_remote::{LockKind, Mode, Protocol};

/// Thetas of a figure.
pub const THETAS: [f64; 9] = [0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
pub const QUICK_THETAS: [f64; 2] = [0.0, 0.85];

/// The back-off of a quick run.
const QUICK_BACK_OFF_NS: u64 = 100_000;
/// Commits of a warm-up without back-off.
const WARM_UP: u64 = 500;

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
pub const TWO_SIDED: System =
    System { transport: Transport::TwoSided, ..one_sided("two-sided", LockKind::Shared) };
pub const TCP: System = System { transport: Transport::Tcp, ..one_sided("TCP", LockKind::Shared) };
pub const ONE_ROUND: System = one_sided("one round", LockKind::OneRound);
pub const ONE_ROUND_CACHED: System = cached("one round, cached locations", LockKind::OneRound);
pub const ADAPTIVE: System = one_sided("adaptive", LockKind::Adaptive);
pub const LINE: System = one_sided("M in line", LockKind::Line);
pub const LINE_CACHED: System = cached("M in line, cached locations", LockKind::Line);

/// The source's systems, followed by those beyond it.
pub const NO_WAIT: [System; 6] = [M, M_S, TWO_SIDED, TCP, ONE_ROUND, ONE_ROUND_CACHED];
pub const WAIT_DIE: [System; 6] = [M, M_S, TWO_SIDED, TCP, LINE, LINE_CACHED];

impl System {
    /// Returns true if the system's runs depend on a cost.
    pub fn depends_on(&self, cost: &CostField) -> bool {
        cost.affects.contains(&self.transport)
    }

    /// Runs the system once.
    pub fn run(&self, task: &Task, protocol: Protocol, load: Load, seed: u64) -> Res<YcsbOutcome> {
        let mode = Mode { protocol, kind: self.kind };
        let full = Setup::new(mode, self.transport, load.theta, load.writes);
        let in_flight = load.in_flight.unwrap_or(full.in_flight);
        // Without back-off no backlog of aborted transactions builds up, so a short warm-up
        // suffices.
        let warm_up = if load.costs.back_off_ns == 0 { WARM_UP } else { full.warm_up };
        let nodes = load.nodes.unwrap_or(full.nodes);
        let full = Setup {
            seed,
            cached: self.cached,
            costs: load.costs,
            in_flight,
            warm_up,
            nodes,
            ..full
        };
        let full = if load.nodes.is_some() { many_nodes(full) } else { full };
        let full = Setup { until_stationary: load.is_measured_until_stationary(), ..full };
        run(&sized(task, full)).map_err(|why| {
            format!("{protocol:?}, {}, theta {}, seed {seed}: {why}", self.name, load.theta)
        })
    }
}

/// Sets the commits for a larger cluster: each worker must have started some transactions.
fn many_nodes(full: Setup) -> Setup {
    Setup { warm_up: 2_000, commits: 6_000, ..full }
}

/// Reduces rows and transactions for a quick run.
pub fn sized(task: &Task, full: Setup) -> Setup {
    if !task.options.quick {
        return full;
    }
    let costs = Costs { back_off_ns: full.costs.back_off_ns.min(QUICK_BACK_OFF_NS), ..full.costs };
    let full = Setup { until_stationary: false, costs, ..full };
    Setup { rows: 2_000, warm_up: 20, commits: 80, in_flight: 4, ..full }
}

/// The shape of the transactions, and all costs.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub theta: f64,
    pub writes: f64,
    pub costs: Costs,
    /// Transactions in flight per worker; `None` means as many as in Deneva.
    pub in_flight: Option<usize>,
    /// Number of nodes; `None` means as many as in the source.
    pub nodes: Option<usize>,
}

impl Load {
    pub fn new(theta: f64, writes: f64) -> Self {
        Self { theta, writes, costs: Costs::default(), in_flight: None, nodes: None }
    }

    /// Returns true if the run lasts until its rate is stationary. Without back-off a short warm-up
    /// suffices, and large clusters are too expensive.
    fn is_measured_until_stationary(&self) -> bool {
        self.costs.back_off_ns > 0 && self.nodes.is_none()
    }

    /// Restarts aborted transactions at once.
    pub fn without_back_off(self) -> Self {
        Self { costs: Costs { back_off_ns: 0, ..self.costs }, ..self }
    }
}
