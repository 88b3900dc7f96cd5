//! A worker's process: the part that does not depend on its transactions.

use super::{LEASE, OWNERS, Shape, TRANSACTIONS, WORKERS, joined, words};
use crate::recovery::{HeldLock, Outcomes};
use crate::{Mailbox, Owner, RemoteError, RowClient, RowWorker, WorkerLimits};
use clearway_env::{Clock, OsClock};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, Region, RegionKey, WorkerAddr};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// The transactions of a worker. They are reported by lines of text.
pub trait Load<W> {
    fn new(rows: RowWorker<'static, W>, shape: Shape, number: u16) -> Self;

    fn rows(&mut self) -> &mut RowWorker<'static, W>;

    /// Starts a transaction.
    fn begin(&mut self);

    /// Advances all transactions.
    fn poll(&mut self) -> Result<(), RemoteError>;

    /// Returns true if `poll` has work to do before anything arrives.
    fn is_ready(&self) -> bool;

    /// Starts no more transactions.
    fn finish(&mut self);

    /// Returns true if it has finished, and no transaction is running.
    fn has_ended(&self) -> bool;
}

pub struct Work<F, L> {
    node: F,
    load: L,
    shape: Shape,
    failed: bool,
    orders: Receiver<String>,
}

impl<F: Fabric, L: Load<F::Worker>> Work<F, L>
where
    F::Region: 'static,
{
    pub fn new(
        node: F,
        address: &str,
        (shape, number): (Shape, u16),
        keys: &[u64],
        add_peer: impl Fn(&F, FabricNode, &str),
    ) -> Self {
        let (table, limits) = (shape.table(keys), shape.limits());
        let fabric = node.worker(0, limits.scratch_words(table.longest_payload())).unwrap();
        let (sender, orders) = channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let rows = RowWorker::new(fabric, table, number, limits, None).unwrap();
        let own = new_mailbox(&node, limits);
        println!("ready {address} {}", own.key().key);
        let line = orders.recv().unwrap();
        let fields: Vec<&str> = line.strip_prefix("peers ").unwrap().split(' ').collect();
        let mut keys = Vec::new();
        for (peer, [address, key]) in (0..).zip(fields.as_chunks::<2>().0) {
            let peer: u16 = peer;
            if peer != number {
                add_peer(&node, node_of(peer), address);
            }
            keys.push(key.parse().unwrap());
        }
        let rows = rows.with_mailbox(mailbox(own, &keys)).unwrap();
        Self { node, load: L::new(rows, shape, number), shape, failed: false, orders }
    }

    pub fn run(mut self) {
        for _ in 0..TRANSACTIONS {
            self.load.begin();
        }
        let mut renewed = Duration::ZERO;
        while !self.load.has_ended() {
            match self.orders.try_recv() {
                Ok(order) => self.obey(&order),
                Err(TryRecvError::Empty) => {}
                // The parent has ended.
                Err(TryRecvError::Disconnected) => return,
            }
            let now = OsClock.monotonic();
            if now.saturating_sub(renewed) > LEASE / 20 {
                renewed = now;
                self.load.rows().renew_leases().unwrap();
            }
            match self.load.poll() {
                Ok(()) => {}
                // The regions are fenced, or an owner or another worker's mailbox died with its
                // node, or this worker was considered dead. If it is a survivor, `stop` follows.
                // Until then it must keep its leases.
                Err(RemoteError::Verb(_)) if self.failed => {}
                Err(RemoteError::Verb(_)) => {
                    self.failed = true;
                    println!("failed");
                }
                Err(why) => panic!("{why}"),
            }
            if self.load.rows().watches_memory() {
                std::thread::yield_now();
            } else if !self.load.is_ready() {
                self.load.rows().fabric().wait();
            }
        }
        self.end_leases();
        println!("ended");
        // A survivor takes part in recovery even if it has ended.
        while let Ok(order) = self.orders.recv() {
            self.obey(&order);
            self.end_leases();
        }
    }

    /// Ends the leases. If the regions are fenced, `stop` follows, and then this is repeated.
    fn end_leases(&mut self) {
        let rows = self.load.rows();
        rows.end_leases().unwrap();
        while !rows.is_quiet() {
            match rows.poll(&mut Vec::new()) {
                Ok(_) | Err(RemoteError::Verb(_)) => {}
                Err(why) => panic!("{why}"),
            }
            rows.fabric().wait();
        }
    }

    fn obey(&mut self, order: &str) {
        if order == "finish" {
            self.load.finish();
            return;
        }
        assert_eq!(order, "stop");
        let rows = self.load.rows();
        while !rows.drain() {
            rows.fabric().wait();
        }
        let locks = rows.pause();
        let own = new_mailbox(&self.node, self.shape.limits());
        let words_of_locks = locks.iter().flat_map(HeldLock::to_words);
        println!("holds {}", joined(std::iter::once(own.key().key).chain(words_of_locks)));
        let go = self.orders.recv().unwrap();
        let words = words(go.strip_prefix("go ").unwrap());
        let (keys, rest) = words.split_at(OWNERS as usize);
        let (mailboxes, committed) = rest.split_at(WORKERS as usize);
        rows.replace_mailbox(mailbox(own, mailboxes));
        rows.resume(self.shape.table(keys), &Outcomes::from_words(committed)).unwrap();
    }
}

fn node_of(worker: u16) -> FabricNode {
    FabricNode(OWNERS + u32::from(worker))
}

/// Registers a mailbox that stays registered until the process ends.
fn new_mailbox<F: Fabric>(node: &F, limits: WorkerLimits) -> &'static F::Region
where
    F::Region: 'static,
{
    Box::leak(Box::new(node.register(limits.mailbox_words()).unwrap()))
}

/// Lists the mailboxes of all workers by their keys.
fn mailbox(own: &'static dyn Region, keys: &[u64]) -> Mailbox<'static> {
    let place = |(worker, key): (u16, &u64)| {
        let address = WorkerAddr { node: node_of(worker), port: 9 };
        Owner { address, region: RegionKey { key: *key, base: 0 } }
    };
    Mailbox { own, all: (0..).zip(keys).map(place).collect() }
}
