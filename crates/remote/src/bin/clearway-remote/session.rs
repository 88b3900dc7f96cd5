//! The parent's orders to a connected process.

use crate::keys::Keys;
use crate::load::{Duty, Load};
use crate::options::Options;
use crate::parent::{Parent, Res, print, rest_of};
use clearway_env::SeededEntropy;
use clearway_remote::ycsb::PAYLOAD_WORDS;
use clearway_remote::{RowClient, StoreAnswer, StoreEvent, StoreKey, StoreWorker, TxnHandle};
use std::time::Duration;

/// Runs a node's transactions when the parent says so, and serves others until `check`.
pub fn run_node<C: RowClient>(
    client: C,
    duty: &mut impl Duty<C>,
    options: &Options,
    keys: &Keys,
    parent: &Parent,
) -> Res<()> {
    let cached = options.cached.unwrap_or_else(|| keys.places());
    let mut store = StoreWorker::new(client, options.layout(), cached);
    keys.teach(&mut store);
    print("connected")?;
    let time = next(&mut store, duty, parent, "run")?;
    let time = Duration::from_millis(time.parse()?);
    let rng = SeededEntropy::new(options.seed << 8 | u64::from(options.node));
    let (plans, transactions) = (options.plans(), options.transactions);
    let mut load = Load { store: &mut store, keys, plans, rng, transactions };
    let done = load.run(time, duty)?;
    print(&format!("result {done}"))?;
    next(&mut store, duty, parent, "check").map(drop)
}

/// Waits for a line that begins with `word`, and returns the rest. Serves others meanwhile.
fn next<C: RowClient>(
    store: &mut StoreWorker<C>,
    duty: &mut impl Duty<C>,
    parent: &Parent,
    word: &str,
) -> Res<String> {
    let line = parent.next_line(|| {
        let serves = duty.serve()?;
        if serves {
            duty.wait(store.rows())?;
        }
        Ok(serves)
    })?;
    rest_of(&line.ok_or("the parent closed standard input")?, word)
}

/// Runs the transactions that the parent sends, until the end of input.
pub fn run_client<C: RowClient>(
    client: C,
    duty: &mut impl Duty<C>,
    options: &Options,
    parent: &Parent,
) -> Res<()> {
    let cached = options.cached.unwrap_or(CLIENT_PLACES);
    let mut store = StoreWorker::new(client, options.layout(), cached);
    print("connected")?;
    while let Some(line) = parent.next_line(|| Ok(false))? {
        let calls = match parse(&rest_of(&line, "txn")?, options.operations) {
            Ok(calls) => calls,
            Err(why) => {
                print(&format!("invalid {why}"))?;
                continue;
            }
        };
        let answers = Caller { store: &mut store, duty }.commit(&calls)?;
        print(&["committed".to_owned()].into_iter().chain(answers).collect::<Vec<_>>().join(" "))?;
    }
    Ok(())
}

/// Locations that a client caches by default.
const CLIENT_PLACES: usize = 4096;

/// An operation of a client. A number is a value: each of its words is that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Get(StoreKey),
    Put(StoreKey, u64),
    Insert(StoreKey, u64),
    Delete(StoreKey),
}

/// Parses the operations of one transaction.
fn parse(line: &str, limit: usize) -> Result<Vec<Call>, String> {
    let mut words = line.split_whitespace();
    let mut calls = Vec::new();
    while let Some(name) = words.next() {
        let mut number = |what: &str| {
            let word = words.next().ok_or_else(|| format!("`{name}` requires a {what}"))?;
            word.parse::<u64>().map_err(|why| format!("{what} `{word}`: {why}"))
        };
        let key = StoreKey::new(number("key")?).ok_or("key 0")?;
        calls.push(match name {
            "get" => Call::Get(key),
            "put" => Call::Put(key, number("value")?),
            "insert" => Call::Insert(key, number("value")?),
            "delete" => Call::Delete(key),
            _ => return Err(format!("operation `{name}`")),
        });
    }
    if calls.len() <= limit {
        Ok(calls)
    } else {
        Err(format!("transaction: more than {limit} operations"))
    }
}

/// Waits for each call. A worker with several transactions would run the others in the meantime.
struct Caller<'a, C, D> {
    store: &'a mut StoreWorker<C>,
    duty: &'a mut D,
}

impl<C: RowClient, D: Duty<C>> Caller<'_, C, D> {
    /// Runs a transaction until it commits. Returns the answers to its operations.
    fn commit(&mut self, calls: &[Call]) -> Res<Vec<String>> {
        let mut txn = self.store.begin().ok_or("a transaction is already running")?;
        loop {
            match self.attempt(txn, calls)? {
                Ok(answers) => return Ok(answers),
                Err(start) => {
                    // The row's holder may be waiting for the core.
                    std::thread::yield_now();
                    txn = self.store.restart(start).ok_or("a transaction is already running")?;
                }
            }
        }
    }

    /// Returns the answers, or the start timestamp if the transaction was aborted.
    fn attempt(&mut self, txn: TxnHandle, calls: &[Call]) -> Res<Attempt> {
        let mut answers = Vec::new();
        for call in calls {
            let value = |number| [number; PAYLOAD_WORDS];
            match *call {
                Call::Get(key) => self.store.get(txn, key, false)?,
                Call::Put(key, number) => self.store.put(txn, key, &value(number))?,
                Call::Insert(key, number) => self.store.insert(txn, key, &value(number))?,
                Call::Delete(key) => self.store.delete(txn, key)?,
            }
            match self.event()? {
                StoreEvent::Aborted(_, start, _) => return Ok(Err(start)),
                StoreEvent::Done(_, key, StoreAnswer::Present) if *call == Call::Get(key) => {
                    let mut value = [0; PAYLOAD_WORDS];
                    self.store.value(txn, key, &mut value);
                    answers.push(value[0].to_string());
                }
                StoreEvent::Done(_, _, StoreAnswer::Present) => answers.push("present".into()),
                StoreEvent::Done(_, _, StoreAnswer::Absent) => answers.push("absent".into()),
                StoreEvent::Done(_, _, StoreAnswer::NoRoom) => answers.push("no-room".into()),
                StoreEvent::Committed(_) => unreachable!("no commit is requested"),
            }
        }
        self.store.commit(txn)?;
        Ok(match self.event()? {
            StoreEvent::Aborted(_, start, _) => Err(start),
            _ => Ok(answers),
        })
    }

    fn event(&mut self) -> Res<StoreEvent> {
        let mut events = Vec::new();
        loop {
            self.store.poll(&mut events)?;
            if let Some(event) = events.pop() {
                return Ok(event);
            }
            if !self.store.is_ready() {
                self.duty.wait(self.store.rows())?;
            }
        }
    }
}

type Attempt = Result<Vec<String>, clearway_remote::StartTimestamp>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_parsed() {
        let key = |number| StoreKey::new(number).unwrap();
        let calls = [
            Call::Get(key(1)),
            Call::Put(key(2), 0),
            Call::Insert(key(3), 7),
            Call::Delete(key(4)),
        ];
        assert_eq!(parse("get 1 put 2 0  insert 3 7 delete 4", 4), Ok(calls.to_vec()));
        for line in ["get", "get 0", "get x", "put 1", "fetch 1", "get 1 get 1 get 1 get 1 get 1"] {
            assert!(parse(line, 4).is_err(), "{line}");
        }
    }
}
