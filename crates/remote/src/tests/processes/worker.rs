//! A worker's process: random transactions, reported by lines of text.

use super::{LEASE, LIMITS, OWNERS, PAYLOAD, ROWS, WORKERS, joined, now_ns, table_of, words};
use crate::recovery::{HeldLock, Outcomes};
use crate::{
    Mailbox, Owner, RemoteError, RowClient, RowId, RowWorker, Table, TxnHandle, WorkerEvent,
};
use clearway_env::{Clock, OsClock, SeededEntropy};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, Region, RegionKey, WorkerAddr};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

struct Running {
    begun_ns: u64,
    plan: Vec<(RowId, bool)>,
    ops: String,
}

pub struct Work<F: Fabric> {
    node: F,
    rows: RowWorker<'static, F::Worker>,
    number: u16,
    rng: SeededEntropy,
    values: u64,
    running: BTreeMap<TxnHandle, Running>,
    finishing: bool,
    failed: bool,
    orders: Receiver<String>,
}

impl<F: Fabric> Work<F>
where
    F::Region: 'static,
{
    pub fn new(
        node: F,
        address: &str,
        table: Table,
        number: u16,
        add_peer: impl Fn(&F, FabricNode, &str),
    ) -> Self {
        let fabric = node.worker(0, LIMITS.scratch_words(PAYLOAD)).unwrap();
        let (sender, orders) = channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let rows = RowWorker::new(fabric, table, number, LIMITS, None).unwrap();
        let own = new_mailbox(&node);
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
        let rng = SeededEntropy::new(number.into());
        let running = BTreeMap::new();
        Self {
            node,
            rows,
            number,
            rng,
            values: 0,
            running,
            finishing: false,
            failed: false,
            orders,
        }
    }

    pub fn run(mut self) {
        for _ in 0..LIMITS.transactions {
            self.begin();
        }
        let mut renewed = Duration::ZERO;
        let mut events = Vec::new();
        while !(self.finishing && self.running.is_empty()) {
            match self.orders.try_recv() {
                Ok(order) => self.obey(&order),
                Err(TryRecvError::Empty) => {}
                // The parent has ended.
                Err(TryRecvError::Disconnected) => return,
            }
            let now = OsClock.monotonic();
            if now.saturating_sub(renewed) > LEASE / 20 {
                renewed = now;
                self.rows.renew_leases().unwrap();
            }
            match self.rows.poll(&mut events) {
                Ok(()) => {
                    std::mem::take(&mut events).into_iter().for_each(|event| self.handle(event))
                }
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
            if self.rows.watches_memory() {
                std::thread::yield_now();
            } else if !self.rows.is_ready() {
                self.rows.fabric().wait();
            }
        }
        self.rows.end_leases().unwrap();
        while !self.rows.is_quiet() {
            self.rows.poll(&mut events).unwrap();
            self.rows.fabric().wait();
        }
        println!("ended");
        // A survivor takes part in recovery even if it has ended.
        while let Ok(order) = self.orders.recv() {
            self.obey(&order);
        }
    }

    fn obey(&mut self, order: &str) {
        if order == "finish" {
            self.finishing = true;
            return;
        }
        assert_eq!(order, "stop");
        while !self.rows.drain() {
            self.rows.fabric().wait();
        }
        let locks = self.rows.pause();
        let own = new_mailbox(&self.node);
        let words_of_locks = locks.iter().flat_map(HeldLock::to_words);
        println!("holds {}", joined(std::iter::once(own.key().key).chain(words_of_locks)));
        let go = self.orders.recv().unwrap();
        let words = words(go.strip_prefix("go ").unwrap());
        let (keys, rest) = words.split_at(OWNERS as usize);
        let (mailboxes, committed) = rest.split_at(WORKERS as usize);
        self.rows.replace_mailbox(mailbox(own, mailboxes));
        let table = table_of(self.rows.table().mode, keys);
        self.rows.resume(table, &Outcomes::from_words(committed)).unwrap();
    }

    fn begin(&mut self) {
        let txn = self.rows.begin().unwrap();
        self.go_on_with(txn);
    }

    fn go_on_with(&mut self, txn: TxnHandle) {
        let draw = |n: u32| self.rng.below(n.into()) as u32;
        let row = |_| (RowId { owner: draw(OWNERS), index: draw(ROWS) }, draw(3) > 0);
        let plan = (0..=draw(LIMITS.rows as u32 - 1)).map(row).collect();
        self.running.insert(txn, Running { begun_ns: now_ns(), plan, ops: String::new() });
        self.go_on(txn);
    }

    fn session(&self, txn: TxnHandle) -> usize {
        usize::from(self.number) * LIMITS.transactions + txn.slot
    }

    fn go_on(&mut self, txn: TxnHandle) {
        let session = self.session(txn);
        let running = self.running.get_mut(&txn).unwrap();
        match running.plan.pop() {
            Some((row, update)) => self.rows.get(txn, row, update).unwrap(),
            None => {
                println!("commit {session} {}{}", running.begun_ns, running.ops);
                self.rows.commit(txn).unwrap();
            }
        }
    }

    fn handle(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Locked(txn, row) => {
                let mut payload = [0; PAYLOAD];
                self.rows.payload(txn, row, &mut payload);
                assert!(payload.iter().all(|word| *word == payload[0]), "torn read: {payload:?}");
                let mut op = format!(" {}.{}={}", row.owner, row.index, payload[0]);
                if self.rows.is_for_update(txn, row) {
                    self.values += 1;
                    let value = u64::from(self.number + 1) << 32 | self.values;
                    self.rows.set(txn, row, &[value; PAYLOAD]);
                    op = format!("{op},{value}");
                }
                self.running.get_mut(&txn).unwrap().ops.push_str(&op);
                self.go_on(txn);
            }
            WorkerEvent::Committed(txn) => {
                println!("committed {} {}", self.session(txn), now_ns());
                self.running.remove(&txn);
                if !self.finishing {
                    self.begin();
                }
            }
            WorkerEvent::Aborted(txn, start, _) => {
                self.running.remove(&txn);
                if !self.finishing {
                    let txn = self.rows.restart(start).unwrap();
                    self.go_on_with(txn);
                }
            }
            WorkerEvent::Peeked(..) | WorkerEvent::Released(..) => {
                unreachable!("nobody requests it")
            }
        }
    }
}

fn node_of(worker: u16) -> FabricNode {
    FabricNode(OWNERS + u32::from(worker))
}

/// Registers a mailbox that stays registered until the process ends.
fn new_mailbox<F: Fabric>(node: &F) -> &'static F::Region
where
    F::Region: 'static,
{
    Box::leak(Box::new(node.register(LIMITS.mailbox_words()).unwrap()))
}

/// Lists the mailboxes of all workers by their keys.
fn mailbox(own: &'static dyn Region, keys: &[u64]) -> Mailbox<'static> {
    let place = |(worker, key): (u16, &u64)| {
        let address = WorkerAddr { node: node_of(worker), port: 9 };
        Owner { address, region: RegionKey { key: *key, base: 0 } }
    };
    Mailbox { own, all: (0..).zip(keys).map(place).collect() }
}
