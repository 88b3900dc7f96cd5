//! The cost of a wait among many waiters, in instructions instead of time.

use crate::driver::Driver;
use crate::sql::{Find, Stmt, table};
use crate::trees::MemTrees;
use crate::units::{add, driver, numbers};
use clearway_partition::{Body, FragmentOrigin, Message, Out, Partition, Stake};
use clearway_types::{Lsn, TxnId};
use std::cell::{Cell, RefCell};

#[path = "../../../latch/benches/steps/mod.rs"]
mod steps;

const FEW: u32 = 10;
const MANY: u32 = 10_000;

/// Transactions at a partition, without a driver, whose bookkeeping would count, too.
struct Waiters {
    partition: RefCell<Partition<MemTrees>>,
    out: RefCell<Vec<Out>>,
    next: Cell<u64>,
}

impl Waiters {
    fn new() -> Self {
        let Driver { partition, .. } = driver(&numbers(20));
        let out = RefCell::new(Vec::with_capacity(1024));
        Self { partition: RefCell::new(partition), out, next: Cell::new(1 << 32) }
    }

    /// Sends a message; returns true if the transaction waits afterwards.
    fn send(&self, txn: TxnId, body: Body) -> bool {
        let mut out = self.out.borrow_mut();
        out.clear();
        let message =
            Message { txn, stake: Stake::Rows(0), origin: FragmentOrigin::default(), body };
        self.partition.borrow_mut().on_message(message, &mut out);
        out.iter().any(|o| matches!(o, Out::Waits { txn: waits, .. } if *waits == txn))
    }

    /// Starts a new transaction with a statement that waits or does not.
    fn start(&self, stmt: &Stmt, waits: bool) -> TxnId {
        let txn = TxnId(self.next.replace(self.next.get() + 1));
        assert_eq!(self.send(txn, stmt.statement(&table())), waits, "{txn} {stmt:?}");
        txn
    }

    /// Ends a transaction; returns the one that continues then.
    fn end(&self, txn: TxnId) -> Option<TxnId> {
        self.send(txn, Body::Finish { commit: Some(Lsn(900)) });
        self.out.borrow().iter().find_map(|o| {
            if let Out::Over { txn, granted: true, .. } = o { Some(*txn) } else { None }
        })
    }
}

fn ids(low: i32, high: i32) -> Find {
    Find::Ids { low: Some(low), high: Some(high), reverse: false }
}

fn update(find: Find) -> Stmt {
    Stmt::Add { find, column: 1, by: 1 }
}

fn read(find: Find) -> Stmt {
    Stmt::Select { find, limit: None, lock: None }
}

/// All transactions want what `of` returns for their number. Measures one wait, one grant and one
/// end among `waiters` others.
fn in_turn(waiters: u32, of: impl Fn(i32) -> Stmt) -> Option<u64> {
    let all = Waiters::new();
    let holder = Cell::new(all.start(&of(0), false));
    let next = Cell::new(0);
    let join = || {
        next.set(next.get() + 1);
        all.start(&of(next.get()), true);
    };
    (0..waiters).for_each(|_| join());
    steps::of(&|| {
        join();
        holder.set(all.end(holder.get()).expect("the next in line"));
    })
}

/// Measures one wait by itself, while others wait for as many other places.
fn apart(waiters: u32, wanted: impl Fn(i32) -> Stmt) -> Option<u64> {
    let all = Waiters::new();
    let meet = |n: i32| (all.start(&add(key(n)), false), all.start(&wanted(n), true));
    for n in 1..=waiters {
        meet(n as i32);
    }
    steps::of(&|| {
        let (holder, waiter) = meet(0);
        assert_eq!(all.end(holder), Some(waiter));
        all.end(waiter);
    })
}

/// No row has such a key: work on rows would hide the work on locks.
fn key(n: i32) -> i32 {
    -2 * n - 100
}

/// The cost may at most double.
#[test]
fn wait_costs_do_not_grow_with_the_number_of_waiters() {
    type Case = (&'static str, fn(u32) -> Option<u64>);
    let cases: [Case; 6] = [
        ("one key", |waiters| in_turn(waiters, |_| add(key(0)))),
        ("one range", |waiters| in_turn(waiters, |_| update(ids(key(1), key(0))))),
        ("ranges in one another", |waiters| in_turn(waiters, |n| update(ids(key(n), key(0))))),
        ("a key and ranges around it", |waiters| {
            in_turn(waiters, |n| if n % 2 == 0 { add(key(0)) } else { update(ids(key(n), key(0))) })
        }),
        ("many keys", |waiters| apart(waiters, |n| add(key(n)))),
        ("many ranges", |waiters| apart(waiters, |n| read(ids(key(n), key(n) + 1)))),
    ];
    let mut short = Vec::new();
    for (name, cost) in cases {
        let (Some(few), Some(many)) = (cost(FEW), cost(MANY)) else {
            println!("SKIPPED: this system does not deliver the traps that count instructions");
            return;
        };
        println!("{name}: {few} instructions among {FEW}, {many} among {MANY}");
        if many > 2 * few {
            short.push((name, few, many));
        }
    }
    assert!(short.is_empty(), "{short:?}");
}
