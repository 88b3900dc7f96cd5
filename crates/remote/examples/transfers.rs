//! Accounts in shared memory: threads transfer money between them and open and close accounts. No
//! thread serves requests.
//!
//! `cargo run --release -p clearway-remote --example transfers [THREADS] [TRANSACTIONS]`: each
//! thread is a node with a share of the accounts, and commits that many transactions. The example
//! fails if the sum of all accounts has changed.

use clearway_env::SeededEntropy;
use clearway_fabric::shm::{ShmConfig, ShmFabric, ShmRegion, ShmSegment, ShmWorker};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, Region, WorkerAddr};
use clearway_remote::{
    Mode, Owner, RowClient, RowWorker, StoreAnswer, StoreEvent, StoreKey, StoreLayout, StoreWorker,
    Table,
};
use std::error::Error;
use std::time::{Duration, Instant};

const ACCOUNTS: u64 = 1_000;
const OPENED_WITH: u64 = 100;
/// A get of two accounts, an insert or delete of one, and a put of the other.
const OPERATIONS: usize = 4;

type Store<'a> = StoreWorker<RowWorker<'a, ShmWorker>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let threads = args.next().map_or(Ok(2), |n| n.parse::<u32>())?;
    let transactions = args.next().map_or(Ok(2_000), |n| n.parse::<u64>())?;
    let buckets = (ACCOUNTS as u32 / threads).max(1);
    let layout = StoreLayout { mode: Mode::ONE_ROUND, value_words: 1, buckets, entries: 4 };
    let config = ShmConfig {
        nodes: threads as usize,
        workers: threads as usize + 1,
        regions: threads as usize,
        queue_pairs: (threads * (threads + 1)) as usize,
        ring_words: 4,
        heap_words: layout.region_words() * threads as usize,
    };
    let segment = ShmSegment::create(config)?;
    let mut nodes = Vec::new();
    let mut regions: Vec<ShmRegion> = Vec::new();
    for number in 0..threads {
        nodes.push(segment.node(FabricNode(number), Duration::ZERO)?);
        regions.push(nodes[number as usize].register(layout.region_words())?);
    }
    let owner = |(number, region): (u32, &ShmRegion)| Owner {
        address: WorkerAddr { node: FabricNode(number), port: 0 },
        region: region.key(),
    };
    let table = layout.table((0..).zip(&regions).map(owner).collect());
    let mut main = store(&nodes[0], 1, &regions[0], layout, &table, threads as u16)?;
    for key in 1..=ACCOUNTS {
        let account = StoreKey::new(key).expect("counted from 1");
        run(&mut main, |call| call.insert(account, &[OPENED_WITH]).map(drop))?;
    }
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (number, (node, region)) in (0..).zip(nodes.iter().zip(&regions)) {
            let table = &table;
            scope.spawn(move || {
                let mut store =
                    store(node, 0, region, layout, table, number).expect("there is room");
                work(&mut store, number.into(), transactions).expect("shared memory does not fail");
                println!("{:?}", store.stats());
                println!("{:?}", store.rows().stats());
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut sum = 0;
    for key in 1..=ACCOUNTS {
        let account = StoreKey::new(key).expect("counted from 1");
        sum += run(&mut main, |call| Ok(call.get(account)?.unwrap_or(0)))?;
    }
    let committed = transactions * u64::from(threads);
    println!("{committed} transactions in {seconds:.2} s, sum of all accounts {sum}");
    if sum == ACCOUNTS * OPENED_WITH {
        Ok(())
    } else {
        Err("the sum of all accounts has changed".into())
    }
}

/// Creates the worker of a thread.
fn store<'a>(
    node: &ShmFabric,
    port: u32,
    local: &'a ShmRegion,
    layout: StoreLayout,
    table: &Table,
    number: u16,
) -> Result<Store<'a>, Box<dyn Error>> {
    let limits = layout.limits(1, OPERATIONS);
    let fabric = node.worker(port, limits.scratch_words(table.longest_payload()))?;
    let rows = RowWorker::new(fabric, table.clone(), number, limits, Some(local))?;
    Ok(StoreWorker::new(rows, layout, ACCOUNTS as usize))
}

/// Transfers money from one account to another. Closes an empty account and opens a missing one.
fn work(store: &mut Store<'_>, seed: u64, transactions: u64) -> Result<(), Box<dyn Error>> {
    let rng = SeededEntropy::new(seed);
    for _ in 0..transactions {
        let draw = || StoreKey::new(1 + rng.below(ACCOUNTS)).expect("counted from 1");
        let (from, to, wanted) = (draw(), draw(), 1 + rng.below(OPENED_WITH));
        run(store, |call| {
            let Some(money) = call.get(from)? else { return Ok(()) };
            if from == to {
                return Ok(());
            }
            let moved = wanted.min(money);
            match call.get(to)? {
                Some(there) => call.put(to, &[there + moved])?,
                // If the index is full, the money stays where it is.
                None if call.insert(to, &[moved])? == StoreAnswer::NoRoom => return Ok(()),
                None => {}
            }
            if moved == money { call.delete(from) } else { call.put(from, &[money - moved]) }
        })?;
    }
    Ok(())
}

/// Why a transaction stopped.
enum Stop {
    /// It was aborted and must be restarted.
    Aborted(clearway_remote::StartTimestamp),
    Failed(clearway_remote::RemoteError),
}

impl From<clearway_remote::RemoteError> for Stop {
    fn from(why: clearway_remote::RemoteError) -> Self {
        Self::Failed(why)
    }
}

/// A transaction that waits for each of its calls. A worker with several transactions would run the
/// others in the meantime.
struct Call<'s, 'a> {
    store: &'s mut Store<'a>,
    txn: clearway_remote::TxnHandle,
}

impl Call<'_, '_> {
    fn get(&mut self, key: StoreKey) -> Result<Option<u64>, Stop> {
        self.store.get(self.txn, key, true)?;
        let mut value = [0];
        Ok((self.wait()? == StoreAnswer::Present && self.store.value(self.txn, key, &mut value))
            .then_some(value[0]))
    }

    fn put(&mut self, key: StoreKey, value: &[u64]) -> Result<(), Stop> {
        self.store.put(self.txn, key, value)?;
        self.wait().map(drop)
    }

    fn insert(&mut self, key: StoreKey, value: &[u64]) -> Result<StoreAnswer, Stop> {
        self.store.insert(self.txn, key, value)?;
        self.wait()
    }

    fn delete(&mut self, key: StoreKey) -> Result<(), Stop> {
        self.store.delete(self.txn, key)?;
        self.wait().map(drop)
    }

    fn wait(&mut self) -> Result<StoreAnswer, Stop> {
        let mut events = Vec::new();
        loop {
            self.store.poll(&mut events)?;
            match events.pop() {
                Some(StoreEvent::Done(_, _, answer)) => return Ok(answer),
                Some(StoreEvent::Committed(_)) => return Ok(StoreAnswer::Present),
                Some(StoreEvent::Aborted(_, start, _)) => return Err(Stop::Aborted(start)),
                None if self.store.is_ready() => {}
                None => self.store.rows().fabric().wait(),
            }
        }
    }
}

/// Runs a transaction until it commits.
fn run<T>(
    store: &mut Store<'_>,
    body: impl Fn(&mut Call<'_, '_>) -> Result<T, Stop>,
) -> Result<T, Box<dyn Error>> {
    let mut txn = store.begin().ok_or("a transaction is already running")?;
    loop {
        let mut call = Call { store, txn };
        let result = body(&mut call).and_then(|found| {
            call.store.commit(txn)?;
            call.wait()?;
            Ok(found)
        });
        match result {
            Ok(found) => return Ok(found),
            Err(Stop::Aborted(start)) => {
                // The holder of the row may have been preempted.
                std::thread::yield_now();
                txn = store.restart(start).ok_or("a transaction is already running")?;
            }
            Err(Stop::Failed(why)) => return Err(why.into()),
        }
    }
}
