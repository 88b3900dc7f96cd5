//! Readers under snapshots in random histories: each reply reflects the state in which its snapshot
//! was opened.

use crate::driver::{Answer, Driver, Paged};
use crate::sql::{Find, Model, Stmt, as_expected};
use clearway_ir::TableDef;
use clearway_partition::{Batch, Body, Opening, Reply, Snapshot};
use clearway_testkit::Rng;
use clearway_types::{Lsn, TxnId};
use std::sync::Arc;

/// Maximum number at a time.
const READERS: usize = 3;

struct Reader {
    txn: TxnId,
    snapshot: Phase,
    pending: Option<(u32, Option<Stmt>)>,
}

enum Phase {
    Opening(Option<Opening>),
    /// With the state that it sees.
    Open(Snapshot, Box<Model>),
    /// It is closed, and its transaction is ending.
    Over,
}

pub struct Readers {
    readers: Vec<Reader>,
    seed: u64,
    pub seen: crate::history::Seen,
}

impl Readers {
    pub fn new(seed: u64) -> Self {
        Self { readers: Vec::new(), seed, seen: Default::default() }
    }

    /// Returns true if the reply is for a reader.
    pub fn is_awaited(&self, seq: u32) -> bool {
        self.readers.iter().any(|reader| reader.pending.as_ref().is_some_and(|(s, _)| *s == seq))
    }

    /// Makes a reader's next call, or creates a reader.
    pub fn step<T: Paged>(
        &mut self,
        d: &mut Driver<T>,
        rng: &mut Rng,
        now: &Model,
        find: Find,
        table: &Arc<TableDef>,
    ) {
        let at = rng.below(READERS as u64) as usize;
        let Some(reader) = self.readers.get_mut(at) else { return self.begin(d, now) };
        if reader.pending.is_some() {
            return;
        }
        let Phase::Open(snapshot, _) = &reader.snapshot else { return };
        if rng.below(8) == 0 {
            return self.end(d, at);
        }
        let stmt = Stmt::Select { find, limit: None, lock: None };
        let Body::Statement { program, env, .. } = stmt.statement(table) else { return };
        let body = Body::StatementAt {
            at: snapshot.lsn(),
            repeatable: true,
            program,
            env,
            rows: None,
            batch: Batch::ALL,
        };
        reader.pending = Some((d.send(reader.txn, body), Some(stmt)));
    }

    fn begin<T: Paged>(&mut self, d: &mut Driver<T>, now: &Model) {
        let (txn, opening) = (d.txn(), d.snapshots.begin());
        let Some(generation) = opening.generation() else {
            let snapshot = Phase::Open(d.open(opening), Box::new(now.clone()));
            self.seen.snapshots += 1;
            return self.readers.push(Reader { txn, snapshot, pending: None });
        };
        let pending = Some((d.send(txn, Body::KeepVersions(generation)), None));
        self.readers.push(Reader { txn, snapshot: Phase::Opening(Some(opening)), pending });
    }

    /// Closes the snapshot, and ends the reader.
    fn end<T: Paged>(&mut self, d: &mut Driver<T>, at: usize) {
        self.readers[at].snapshot = Phase::Over;
        let seq = d.send(self.readers[at].txn, Body::Finish { commit: Some(Lsn(0)) });
        self.readers[at].pending = Some((seq, None));
    }

    /// Closes the first open snapshot; returns false if there is none.
    pub fn close<T: Paged>(&mut self, d: &mut Driver<T>) -> bool {
        let idle = self.readers.iter().position(|reader| reader.pending.is_none());
        idle.map(|at| self.end(d, at)).is_some()
    }

    /// Handles a reply; `now` is the committed state.
    pub fn answered<T: Paged>(
        &mut self,
        d: &mut Driver<T>,
        now: &Model,
        seq: u32,
        answer: &Answer,
    ) {
        let awaits = |reader: &Reader| reader.pending.as_ref().is_some_and(|(s, _)| *s == seq);
        let at = self.readers.iter().position(awaits).expect("the reply of a known call");
        let stmt = self.readers[at].pending.take().and_then(|(_, stmt)| stmt);
        match (&mut self.readers[at].snapshot, stmt) {
            (Phase::Opening(opening), _) => {
                let Ok(Reply { count, .. }) = answer else {
                    panic!("seed {}: {answer:?}", self.seed)
                };
                let opening = opening.take().filter(|_| *count == 1);
                let Some(opening) = opening else {
                    self.seen.refused += 1;
                    return self.end(d, at);
                };
                self.seen.snapshots += 1;
                self.readers[at].snapshot = Phase::Open(d.open(opening), Box::new(now.clone()));
            }
            (Phase::Open(_, then), Some(stmt)) => {
                let (got, expected) = (as_expected(answer), then.clone().run(&stmt));
                assert_eq!(
                    got, expected,
                    "seed {}: {stmt:?} on {then:?}, and now {now:?}",
                    self.seed
                );
                self.seen.reads += 1;
                self.seen.old += u64::from(now.clone().run(&stmt) != expected);
            }
            (Phase::Open(..), None) => panic!("a reply without a call"),
            (Phase::Over, _) => {
                self.readers.remove(at);
            }
        }
    }
}
