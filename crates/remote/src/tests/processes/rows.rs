//! Random transactions on the rows of a table.

use super::worker::Load;
use super::{OWNERS, PAYLOAD, ROWS, Shape, TRANSACTIONS, now_ns};
use crate::{RemoteError, RowClient, RowId, RowWorker, TxnHandle, WorkerEvent, WorkerLimits};
use clearway_env::SeededEntropy;
use clearway_fabric::FabricWorker;
use std::collections::BTreeMap;

struct Running {
    begun_ns: u64,
    plan: Vec<(RowId, bool)>,
    ops: String,
}

pub struct RowLoad<W> {
    rows: RowWorker<'static, W>,
    limits: WorkerLimits,
    number: u16,
    rng: SeededEntropy,
    values: u64,
    running: BTreeMap<TxnHandle, Running>,
    finishing: bool,
}

impl<W: FabricWorker> Load<W> for RowLoad<W> {
    fn new(rows: RowWorker<'static, W>, shape: Shape, number: u16) -> Self {
        let rng = SeededEntropy::new(number.into());
        let (limits, values, running, finishing) = (shape.limits(), 0, BTreeMap::new(), false);
        Self { rows, limits, number, rng, values, running, finishing }
    }

    fn rows(&mut self) -> &mut RowWorker<'static, W> {
        &mut self.rows
    }

    fn begin(&mut self) {
        let txn = self.rows.begin().unwrap();
        self.go_on_with(txn);
    }

    fn poll(&mut self) -> Result<(), RemoteError> {
        let mut events = Vec::new();
        self.rows.poll(&mut events)?;
        events.into_iter().for_each(|event| self.handle(event));
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.rows.is_ready()
    }

    fn finish(&mut self) {
        self.finishing = true;
    }

    fn has_ended(&self) -> bool {
        self.finishing && self.running.is_empty()
    }
}

impl<W: FabricWorker> RowLoad<W> {
    fn go_on_with(&mut self, txn: TxnHandle) {
        let draw = |n: u32| self.rng.below(n.into()) as u32;
        let row = |_| (RowId { owner: draw(OWNERS), index: draw(ROWS) }, draw(3) > 0);
        let plan = (0..=draw(self.limits.rows as u32 - 1)).map(row).collect();
        self.running.insert(txn, Running { begun_ns: now_ns(), plan, ops: String::new() });
        self.go_on(txn);
    }

    fn session(&self, txn: TxnHandle) -> usize {
        usize::from(self.number) * TRANSACTIONS + txn.slot
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
