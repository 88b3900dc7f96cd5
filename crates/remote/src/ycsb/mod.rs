//! The source's experiments in virtual time: YCSB on a simulated cluster, by one-sided verbs or by
//! messages.
//!
//! Protocols and lock tables are the real ones. [`RowWorker`] runs on [`clearway_fabric::sim`];
//! [`MessageWorker`] and [`MessageServer`] exchange messages that cost what [`Costs`] says. A
//! node's workers serve the messages of other nodes, too. Without cached locations a row's index
//! entry is read first; an owner that is asked by a message looks it up itself.
//!
//! Clients keep [`Setup::in_flight`] transactions at each worker. One-sided, a worker runs one at a
//! time, as in the source. By messages, a node's workers share a queue: whoever finds it empty
//! begins another transaction, while others wait for replies or locks. An aborted transaction
//! begins again after [`Costs::back_off_ns`], with its timestamp.
//!
//! After a run each row has as many changes as committed transactions made; otherwise the run is an
//! error.
//!
//! Waits and their bounds: the warm-up ends after [`MAX_WARM_UP_NS`], and a run after
//! [`MAX_VIRTUAL_NS`], even if too few transactions have committed.

mod cluster;
mod costs;
mod model;
mod plans;
#[cfg(test)]
mod tests;
mod zipf;

pub use costs::{CostField, Costs, MessageCosts};
pub use plans::Plans;

use crate::{
    Buckets, LogLayout, Mailbox, MessageServer, MessageWorker, Mode, Owner, RemoteError, RowClient,
    RowWorker, Stats, Table, WorkerLimits,
};
use clearway_fabric::sim::{Network, SimNode, SimRegion};
use clearway_fabric::{Fabric, Region as _, WorkerAddr};
use cluster::{Cluster, Server};
use model::{Model, ModelLink};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The most virtual time that a run takes before no more transactions begin, nor begin again.
pub const MAX_VIRTUAL_NS: u64 = 2_000_000_000;

/// The warm-up ends after this much virtual time even if too few transactions have committed.
pub const MAX_WARM_UP_NS: u64 = 1_000_000_000;

/// Words of a row. The source's 100 bytes would occupy the network for 5 ns more.
pub const PAYLOAD_WORDS: usize = 4;
/// Words of an index entry that is read.
pub const BUCKET_WORDS: usize = 2;
/// Transactions in flight for each worker: 10,000 a node, for its 8 workers. Deneva's and RCBench's
/// experiments have as many.
const IN_FLIGHT: usize = 1_250;
/// No worker has this port: nodes are reached for their memory.
const PORT: u32 = 1000;

/// How rows of other nodes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Verbs on the owner's memory.
    OneSided,
    /// SEND and RECV: the owner's processor does the work.
    TwoSided,
    /// TCP, as above.
    Tcp,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What draws transactions and delays.
    pub seed: u64,
    /// Protocol and locks. Messages have no one-round locks and no lines: they are shared or mutual
    /// there.
    pub mode: Mode,
    /// How rows are reached.
    pub transport: Transport,
    /// Workers know where rows are, and read no index.
    pub cached: bool,
    /// Skew of the rows of each node, from 0 to below 1.
    pub theta: f64,
    /// Share of operations that update.
    pub writes: f64,
    /// Nodes; each has as many of the rows.
    pub nodes: usize,
    /// Workers of a node.
    pub workers: usize,
    /// Transactions that a worker runs at a time.
    pub transactions: usize,
    /// Transactions of a worker that clients wait for, with those that were aborted and have not
    /// begun again.
    pub in_flight: usize,
    /// Rows of a node.
    pub rows: u32,
    /// Operations of a transaction, each on another row.
    pub operations: usize,
    /// Transactions that commit before the rate is taken.
    pub warm_up: u64,
    /// Transactions that commit while it is.
    pub commits: u64,
    /// What everything costs.
    pub costs: Costs,
}

impl Setup {
    /// The source's cluster: 4 nodes of 8 workers, transactions of 10 operations, 1,000,000 rows a
    /// node.
    ///
    /// By messages, aborted transactions that come back pile up for long: the warm-up takes more
    /// commits.
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
            costs: Costs::default(),
        }
    }

    fn limits(&self) -> WorkerLimits {
        // One more row is the index entry.
        WorkerLimits { transactions: self.transactions, rows: self.operations + 1 }
    }

    fn messages(&self) -> MessageCosts {
        if self.transport == Transport::Tcp { self.costs.tcp } else { self.costs.two_sided }
    }

    fn reads_index(&self) -> bool {
        self.transport == Transport::OneSided && !self.cached
    }
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Commits a second, after the warm-up.
    pub rate: f64,
    /// Commits and aborts, with those of the warm-up and those at the end.
    pub stats: Stats,
    /// Mean time from a transaction's first beginning to its commit.
    pub latency_ns: f64,
    /// Requests for locks of rows of other nodes.
    pub remote_rows: u64,
}

impl Outcome {
    /// Aborts, as a share of all ends.
    pub fn abort_rate(&self) -> f64 {
        self.stats.aborts as f64 / (self.stats.aborts + self.stats.commits).max(1) as f64
    }

    /// A count for each commit.
    pub fn a_commit(&self, count: u64) -> f64 {
        count as f64 / self.stats.commits.max(1) as f64
    }
}

/// Why a run has no outcome.
#[derive(Debug)]
pub enum RunError {
    /// A worker or server failed.
    Remote(RemoteError),
    /// Rows or locks are not as the committed transactions leave them.
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
/// [`RunError`], which is a mistake of the protocols or of the simulation.
pub fn run(setup: &Setup) -> Result<Outcome, RunError> {
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
