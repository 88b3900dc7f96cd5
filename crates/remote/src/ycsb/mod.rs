//! The source's experiments in virtual time: YCSB on a simulated cluster, by one-sided verbs or by
//! messages.
//!
//! Protocols and lock tables are the real ones. [`RowWorker`] runs on [`clearway_fabric::sim`].
//! [`MessageWorker`] and [`MessageServer`] exchange messages with the costs in [`Costs`]. A node's
//! workers also serve the messages of other nodes. Without cached locations, a row's index entry is
//! read first. An owner that serves a message looks up the row itself.
//!
//! Clients keep [`Setup::in_flight`] transactions at each worker. With one-sided verbs, a worker
//! runs one at a time, as in the source. With messages, a node's workers share a queue. A worker
//! that finds the queue empty starts another transaction, while others wait for replies or locks.
//! An aborted transaction restarts after [`Costs::back_off_ns`], with its timestamp.
//!
//! After a run, each row must have as many changes as committed transactions made; otherwise the
//! run fails.
//!
//! Waits and their bounds: the warm-up ends after [`MAX_WARM_UP_NS`], and a run after
//! [`MAX_VIRTUAL_NS`], even if too few transactions have committed.

mod cluster;
mod costs;
mod model;
mod plans;
#[cfg(test)]
mod tests;
mod windows;
mod zipf;

pub use costs::{CostField, Costs, MessageCosts};
pub use plans::Plans;
pub use windows::{FIRST_NS, TOLERANCE, WINDOWS};

use crate::{
    Buckets, LogLayout, Mailbox, MessageServer, MessageWorker, Mode, Owner, RemoteError,
    RemoteStats, RowClient, RowWorker, Table, WorkerLimits,
};
use clearway_fabric::sim::{Network, SimNode, SimRegion};
use clearway_fabric::{Fabric, Region as _, WorkerAddr};
use cluster::{Cluster, Server};
use model::{Model, ModelLink};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The virtual time after which no more transactions start or restart.
pub const MAX_VIRTUAL_NS: u64 = 2_000_000_000;

/// The virtual time after which the warm-up ends even if too few transactions have committed.
pub const MAX_WARM_UP_NS: u64 = 1_000_000_000;

/// Words of a row. The source's 100 bytes would occupy the network for 5 ns more.
pub const PAYLOAD_WORDS: usize = 4;
/// Words of an index entry.
pub const BUCKET_WORDS: usize = 2;
/// Transactions in flight per worker: 10,000 per node with 8 workers, as in the experiments of
/// Deneva and RCBench.
const IN_FLIGHT: usize = 1_250;
/// No worker has this port: connections to a node only access its memory.
const PORT: u32 = 1000;

/// The way to access rows of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Verbs on the owner's memory.
    OneSided,
    /// SEND and RECV: the owner's CPU does the work.
    TwoSided,
    /// TCP: the owner's CPU does the work.
    Tcp,
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Seed of transactions and delays.
    pub seed: u64,
    /// Protocol and locks. Messages have no one-round locks and no lines; their locks are shared or
    /// mutual.
    pub mode: Mode,
    /// The way to access rows.
    pub transport: Transport,
    /// Workers know the locations of rows and read no index.
    pub cached: bool,
    /// Skew of the rows of each node, from 0 to below 1.
    pub theta: f64,
    /// Share of operations that update.
    pub writes: f64,
    /// Number of nodes; each has the same number of rows.
    pub nodes: usize,
    /// Workers of a node.
    pub workers: usize,
    /// Concurrent transactions of a worker.
    pub transactions: usize,
    /// Transactions of a worker for which clients wait, including aborted ones that have not
    /// restarted.
    pub in_flight: usize,
    /// Rows of a node.
    pub rows: u32,
    /// Operations per transaction, each on a different row.
    pub operations: usize,
    /// Commits before the measurement of the rate begins.
    pub warm_up: u64,
    /// Commits during the measurement.
    pub commits: u64,
    /// Ignores `warm_up` and `commits`: runs until two successive windows of virtual time have the
    /// same rate, see [`TOLERANCE`], and in the second one as many transactions started as
    /// committed, and as many committed as are in flight.
    pub until_stationary: bool,
    /// All costs.
    pub costs: Costs,
}

impl Setup {
    /// Creates the source's cluster: 4 nodes with 8 workers each, transactions of 10 operations,
    /// and 1,000,000 rows per node.
    ///
    /// By messages, the backlog of aborted transactions grows for a long time, so the warm-up takes
    /// more commits.
    pub fn new(mode: Mode, transport: Transport, theta: f64, writes: f64) -> Self {
        let one_sided = transport == Transport::OneSided;
        Self {
            seed: 1,
            mode,
            transport,
            cached: false,
            theta,
            writes,
            nodes: 4,
            workers: 8,
            transactions: if one_sided { 1 } else { IN_FLIGHT },
            in_flight: IN_FLIGHT,
            rows: 1_000_000,
            operations: 10,
            warm_up: if one_sided { 10_000 } else { 30_000 },
            commits: 3_000,
            until_stationary: false,
            costs: Costs::default(),
        }
    }

    fn limits(&self) -> WorkerLimits {
        // One more row for the index entry.
        WorkerLimits { transactions: self.transactions, rows: self.operations + 1 }
    }

    fn messages(&self) -> MessageCosts {
        if self.transport == Transport::Tcp { self.costs.tcp } else { self.costs.two_sided }
    }

    fn reads_index(&self) -> bool {
        self.transport == Transport::OneSided && !self.cached
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct YcsbOutcome {
    /// Commits per second after the warm-up.
    pub rate: f64,
    /// With [`Setup::until_stationary`]: the rate in each window, 0 after the end.
    pub windows: [f64; WINDOWS],
    /// With [`Setup::until_stationary`]: the run ended because its rate was stationary.
    pub is_stationary: bool,
    /// All counts, including those of the warm-up and of the end.
    pub stats: RemoteStats,
    /// Mean time from a transaction's first start to its commit.
    pub latency_ns: f64,
    /// Lock requests for rows of other nodes.
    pub remote_rows: u64,
}

impl YcsbOutcome {
    /// Returns aborts as a share of all commits and aborts.
    pub fn abort_rate(&self) -> f64 {
        self.stats.aborts as f64 / (self.stats.aborts + self.stats.commits).max(1) as f64
    }

    /// Returns a count per commit.
    pub fn a_commit(&self, count: u64) -> f64 {
        count as f64 / self.stats.commits.max(1) as f64
    }
}

/// Why a run has no outcome.
#[derive(Debug)]
pub enum RunError {
    /// A worker or server failed.
    Remote(RemoteError),
    /// Rows or locks are not in the state that the committed transactions should leave.
    WrongRows(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(why) => why.fmt(f),
            Self::WrongRows(why) => write!(f, "wrong rows after the run: {why}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<RemoteError> for RunError {
    fn from(why: RemoteError) -> Self {
        Self::Remote(why)
    }
}

/// Runs the cluster until enough transactions have committed, and verifies its rows.
///
/// # Errors
/// Returns a [`RunError`] for a bug of the protocols or of the simulation.
pub fn run(setup: &Setup) -> Result<YcsbOutcome, RunError> {
    let network = Network::new(setup.seed, setup.costs.network());
    let nodes: Vec<SimNode> = (0..setup.nodes).map(|_| network.add_node()).collect();
    let address = |node: &SimNode| WorkerAddr { node: node.node(), port: PORT };
    let register = |node: &SimNode, words| node.register(words).map_err(RemoteError::Fabric);
    let mut table = Table {
        mode: setup.mode,
        payload_words: PAYLOAD_WORDS,
        rows: setup.rows,
        buckets: Buckets {
            payload_words: BUCKET_WORDS,
            rows: if setup.reads_index() { setup.rows } else { 0 },
        },
        log: LogLayout::default(),
        owners: Vec::new(),
    };
    let memory = |words: usize| {
        move |node| register(node, if setup.transport == Transport::OneSided { words } else { 1 })
    };
    let regions: Vec<SimRegion> =
        nodes.iter().map(memory(table.words())).collect::<Result<_, _>>()?;
    let owner = |(node, region): (&SimNode, &SimRegion)| Owner {
        address: address(node),
        region: region.key(),
    };
    table.owners = nodes.iter().zip(&regions).map(owner).collect();
    let homes: Vec<&SimNode> =
        nodes.iter().flat_map(|node| (0..setup.workers).map(move |_| node)).collect();
    let mailbox = |node: &&SimNode| register(node, setup.limits().mailbox_words());
    let mailboxes: Vec<SimRegion> = homes.iter().map(mailbox).collect::<Result<_, _>>()?;
    let all: Vec<Owner> =
        homes.iter().zip(&mailboxes).map(|(node, region)| owner((node, region))).collect();
    let model =
        Model::new(network.clone(), setup.costs, setup.messages(), (setup.nodes, setup.workers));
    let model =
        if setup.transport == Transport::OneSided { model } else { model.with_shared_queues() };
    let model = Rc::new(RefCell::new(model));
    let limits = setup.limits();
    let link = |endpoint| ModelLink { model: Rc::clone(&model), endpoint };
    let worker =
        |(number, node): (usize, &&SimNode)| -> Result<Box<dyn RowClient + '_>, RemoteError> {
            if setup.transport != Transport::OneSided {
                return Ok(Box::new(MessageWorker::new(
                    link(number),
                    table.clone(),
                    number as u16,
                    limits,
                )));
            }
            let scratch = limits.scratch_words(PAYLOAD_WORDS);
            let fabric = node
                .worker((number % setup.workers) as u32, scratch)
                .map_err(RemoteError::Fabric)?;
            let worker = RowWorker::new(fabric, table.clone(), number as u16, limits, None)?;
            Ok(Box::new(
                worker.with_mailbox(Mailbox { own: &mailboxes[number], all: all.clone() })?,
            ))
        };
    let workers = homes.iter().enumerate().map(worker).collect::<Result<Vec<_>, _>>()?;
    let servers: Vec<Server> = match setup.transport {
        Transport::OneSided => Vec::new(),
        _ => (0..setup.nodes)
            .map(|owner| MessageServer::new(link(homes.len() + owner), table.clone()))
            .collect(),
    };
    Cluster::new(setup, network, model, workers, servers).run(&table, &regions)
}
