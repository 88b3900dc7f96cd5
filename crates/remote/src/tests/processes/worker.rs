//! A worker's side: transactions as in the other histories, told of in lines.

use super::{LEASE, LIMITS, OWNERS, PAYLOAD, ROWS, joined, now_ns, table_of, words};
use crate::recovery::{HeldLock, Outcomes};
use crate::{Event, RemoteError, RowClient, RowId, RowWorker, Table, TxnHandle};
use clearway_env::{Clock, OsClock, SeededEntropy};
use clearway_fabric::{Fabric, FabricWorker};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

struct Running {
    begun_ns: u64,
    plan: Vec<(RowId, bool)>,
    ops: String,
}

pub struct Work<W> {
    rows: RowWorker<'static, W>,
    number: u16,
    rng: SeededEntropy,
    values: u64,
    running: BTreeMap<TxnHandle, Running>,
    finishing: bool,
    orders: Receiver<String>,
}

impl<W: FabricWorker> Work<W> {
    pub fn new<F: Fabric<Worker = W>>(node: &F, table: Table, number: u16) -> Self {
        let fabric = node.worker(0, LIMITS.scratch_words(PAYLOAD)).unwrap();
        let (tell, orders) = channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let rows = RowWorker::new(fabric, table, number, LIMITS, None).unwrap();
        let rng = SeededEntropy::new(number.into());
        let running = BTreeMap::new();
        Self { rows, number, rng, values: 0, running, finishing: false, orders }
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
                // The parent is gone.
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
                Err(RemoteError::Verb(_)) => {
                    // The fence came before its order. Or this worker was taken for dead, and is
                    // killed.
                    let order = self.orders.recv().unwrap();
                    self.obey(&order);
                }
                Err(why) => panic!("{why}"),
            }
            if !self.rows.is_ready() {
                self.rows.fabric().wait();
            }
        }
        self.rows.end_leases().unwrap();
        while !self.rows.is_quiet() {
            self.rows.poll(&mut events).unwrap();
            self.rows.fabric().wait();
        }
        println!("ended");
        // A killed parent, or one that has seen all.
        while self.orders.recv().is_ok() {}
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
        println!("holds {}", joined(self.rows.pause().iter().flat_map(HeldLock::to_words)));
        let go = self.orders.recv().unwrap();
        let told = words(go.strip_prefix("go ").unwrap());
        let (keys, committed) = told.split_at(OWNERS as usize);
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

    fn handle(&mut self, event: Event) {
        match event {
            Event::Locked(txn, row) => {
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
            Event::Committed(txn) => {
                println!("committed {} {}", self.session(txn), now_ns());
                self.running.remove(&txn);
                if !self.finishing {
                    self.begin();
                }
            }
            Event::Aborted(txn, start, _) => {
                self.running.remove(&txn);
                if !self.finishing {
                    let txn = self.rows.restart(start).unwrap();
                    self.go_on_with(txn);
                }
            }
            Event::Peeked(..) | Event::Released(..) => unreachable!("nobody asks for it"),
        }
    }
}
