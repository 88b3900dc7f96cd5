//! Random transactions on the keys of a store.

use super::worker::Load;
use super::{Shape, TRANSACTIONS, layout, now_ns};
use crate::tests::store_client::StoreClient;
use crate::{RemoteError, RowWorker, StoreEvent, StoreWorker, TxnHandle};
use clearway_env::SeededEntropy;
use clearway_fabric::FabricWorker;
use std::collections::BTreeMap;

/// Locations that a worker caches: fewer than there are keys.
const CACHED: usize = 4;

struct Running {
    begun_ns: u64,
    client: StoreClient,
}

pub struct StoreLoad<W> {
    store: StoreWorker<RowWorker<'static, W>>,
    number: u16,
    rng: SeededEntropy,
    /// The last value written; unique among all workers.
    values: u64,
    running: BTreeMap<TxnHandle, Running>,
    finishing: bool,
}

impl<W: FabricWorker> Load<W> for StoreLoad<W> {
    fn new(rows: RowWorker<'static, W>, shape: Shape, number: u16) -> Self {
        let store = StoreWorker::new(rows, layout(shape.mode()), CACHED);
        let (rng, values) = (SeededEntropy::new(number.into()), u64::from(number + 1) << 32);
        Self { store, number, rng, values, running: BTreeMap::new(), finishing: false }
    }

    fn rows(&mut self) -> &mut RowWorker<'static, W> {
        self.store.rows()
    }

    fn begin(&mut self) {
        let txn = self.store.begin().unwrap();
        self.go_on_with(txn);
    }

    fn poll(&mut self) -> Result<(), RemoteError> {
        let mut events = Vec::new();
        self.store.poll(&mut events)?;
        events.into_iter().for_each(|event| self.handle(event));
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.store.is_ready()
    }

    fn finish(&mut self) {
        self.finishing = true;
    }

    fn has_ended(&self) -> bool {
        self.finishing && self.running.is_empty()
    }
}

impl<W: FabricWorker> StoreLoad<W> {
    fn go_on_with(&mut self, txn: TxnHandle) {
        let client = StoreClient::new(&self.rng);
        self.running.insert(txn, Running { begun_ns: now_ns(), client });
        self.go_on(txn);
    }

    fn session(&self, txn: TxnHandle) -> usize {
        usize::from(self.number) * TRANSACTIONS + txn.slot
    }

    /// Requests the next operation, or the end. A commit is reported before it is requested.
    fn go_on(&mut self, txn: TxnHandle) {
        let session = self.session(txn);
        let Running { begun_ns, client } = self.running.get_mut(&txn).unwrap();
        let report = |ops: &[_]| {
            let ops: Vec<String> = ops.iter().map(|op| format!(" {op}")).collect();
            println!("commit {session} {begun_ns}{}", ops.concat());
        };
        client.go_on(&mut self.store, txn, &self.rng, &mut self.values, report).unwrap();
    }

    fn handle(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Done(txn, key, answer) => {
                let client = &mut self.running.get_mut(&txn).unwrap().client;
                client.record(&mut self.store, txn, key, answer, &mut self.values).unwrap();
                self.go_on(txn);
            }
            StoreEvent::Committed(txn) => {
                println!("committed {} {}", self.session(txn), now_ns());
                self.running.remove(&txn);
                if !self.finishing {
                    self.begin();
                }
            }
            StoreEvent::Aborted(txn, start, _) => {
                self.running.remove(&txn);
                if !self.finishing {
                    let txn = self.store.restart(start).unwrap();
                    self.go_on_with(txn);
                }
            }
        }
    }
}
