//! Flips bits of pages and checks what a database with damaged pages answers.
//!
//! Fault budget: up to [`MOST_HITS`] pages of a copy of what a life has left, recovered or just
//! crashed, get one flipped bit each. In the last life up to ten pages do, each when it is read (a
//! rule of the life's fault plan), and what that life leaves is checked in the same way. What the
//! engine must do:
//! 1. `clearway check` names each damaged page, except those that the next start repairs from their
//!    copies.
//! 2. The directory opens, or the error names a damaged page that recovery or the catalog needs.
//! 3. Every statement gives the model's answer, or XX001 and the name of a damaged page; a refused
//!    statement changes nothing.
//! 4. It shuts down in order: damage to a page never stops the server. Exception: a page that is
//!    read before its write is known to be synced, because the write may be lost.
//! 5. While bits flip, XX001 always names a damaged page and everything else is answered. A
//!    transaction that cannot be rolled back blocks nobody.

use super::Story;
use crate::answers;
use crate::model::{Answer, Model};
use crate::session::Shared;
use crate::sql::{A, D, K, Pred, Row, Set, Stmt, U};
use crate::worker::Reader;
use clearway_buffer::PAGE_SIZE;
use clearway_env::{Disk, Open};
use clearway_testkit::MemDisk;
use clearway_types::{PageId, PartitionId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of damaged pages.
const MOST_HITS: u64 = 4;
/// Errors of a change that have a cause other than damage: more than the pool holds, too long, a
/// duplicate key.
const OTHER_CAUSES: [&str; 3] = ["53200", "54000", "23505"];

/// A page with a flipped bit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rotten {
    path: PathBuf,
    no: u64,
}

impl Rotten {
    /// Creates the page with this number in the file.
    pub fn new(path: PathBuf, no: u64) -> Self {
        Self { path, no }
    }
    /// Returns the page's name in error messages.
    fn name(&self) -> String {
        format!("partition {} page {} in ", self.partition(), self.no)
    }
    /// Returns true if the error names this page.
    pub fn explains(&self, error: &str) -> bool {
        error.contains(&self.name())
    }
    fn partition(&self) -> u16 {
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy();
        name.trim_start_matches('p').parse().unwrap_or(u16::MAX)
    }
    /// Reads the page; zeros beyond the end of the file.
    fn read(&self, disk: &MemDisk) -> Result<[u8; PAGE_SIZE], String> {
        let mut page = [0; PAGE_SIZE];
        let file = disk.open(&self.path, Open::Existing).map_err(|e| e.to_string())?;
        file.read_zero_filled_at(&mut page, self.no * PAGE_SIZE as u64)
            .map_err(|e| e.to_string())?;
        Ok(page)
    }
    /// Returns true if the page is still damaged: it may have been rewritten.
    fn is_damaged(&self, page: &[u8; PAGE_SIZE]) -> bool {
        let id = PageId::new(PartitionId(self.partition()), self.no as u32);
        clearway_buffer::verify(page, id, &"".into()).is_err()
    }
}

/// Damaged pages, each with its flipped bit.
type Hits = BTreeMap<Rotten, [u8; PAGE_SIZE]>;

/// Returns true if the error names one of the damaged pages.
fn is_explained<'a>(error: &str, mut rotten: impl Iterator<Item = &'a Rotten>) -> bool {
    rotten.any(|page| page.explains(error))
}

impl Story<'_> {
    /// Damages pages of `disk`, whose contents match the model, and checks the answers.
    pub(super) fn rot(&mut self, disk: &MemDisk) -> Result<(), String> {
        let hits = self.hit(disk)?;
        self.look(disk, &hits, None)
    }

    /// Checks what a life leaves in which bits have flipped.
    pub(super) fn look_after(&mut self, disk: &MemDisk, shared: &Shared) -> Result<(), String> {
        let mut hits = Hits::new();
        for page in shared.rotten() {
            let bytes = page.read(disk)?;
            if page.is_damaged(&bytes) {
                hits.insert(page, bytes);
            }
        }
        self.look(disk, &hits, Some(shared))
    }

    fn look(&mut self, disk: &MemDisk, hits: &Hits, life: Option<&Shared>) -> Result<(), String> {
        let names: Vec<String> = hits.keys().map(Rotten::name).collect();
        self.note(&format!("bits have flipped: {names:?}"));
        let named: Vec<bool> = match self.report(disk) {
            Ok(report) => {
                let is_named = |hit: &Rotten| {
                    let file = format!(
                        "data/{}",
                        hit.path.file_name().unwrap_or_default().to_string_lossy()
                    );
                    let page = u32::try_from(hit.no).ok();
                    report
                        .storage
                        .findings
                        .iter()
                        .any(|found| found.file == file && found.page == page)
                };
                hits.keys().map(is_named).collect()
            }
            // The start needed the damaged page.
            Err(error) if is_explained(&error, hits.keys()) => vec![true; hits.len()],
            Err(error) => return Err(format!("{error} (bits flipped in {names:?})")),
        };
        let (engine, bells) = match self.open(disk) {
            Ok(opened) => opened,
            Err(error) if is_explained(&error.to_string(), hits.keys()) => return Ok(()),
            Err(error) => {
                return Err(format!("it cannot be opened: {error} (bits flipped in {names:?})"));
            }
        };
        for ((page, bytes), named) in hits.iter().zip(named) {
            if !named && page.read(disk)? == *bytes {
                return Err(format!("check has not found the bit that flipped in {}", page.name()));
            }
        }
        if let Some(shared) = life {
            shared.history.settle(&mut self.model, engine.report().log_end)?;
        }
        let mut reader = Reader::new(&engine, bells[0].clone());
        let mut model = self.model.clone();
        for name in self.model.tables.keys() {
            for stmt in statements(name, self.world.mix.keys) {
                self.answer(&mut reader, &mut model, &stmt, hits)?;
            }
        }
        for name in self.model.tables.keys() {
            let all = Stmt::Select { table: name.clone(), pred: Pred::All, lock: None };
            self.answer(&mut reader, &mut model, &all, hits)?;
        }
        reader.close();
        engine
            .shutdown()
            .map_err(|e| format!("an orderly shutdown failed: {e} (bits flipped in {names:?})"))
    }

    /// Flips a bit in several used pages.
    fn hit(&mut self, disk: &MemDisk) -> Result<Hits, String> {
        let dir = Path::new("/db/data");
        let mut hits = Hits::new();
        let files: Vec<String> = disk.list(dir).map_err(|e| e.to_string())?;
        let files: Vec<&String> = files.iter().filter(|name| name.starts_with('p')).collect();
        for _ in 0..1 + self.rng.below(MOST_HITS) {
            let path = dir.join(files[self.rng.below(files.len() as u64) as usize]);
            let len = disk
                .open(&path, Open::Existing)
                .and_then(|file| file.len())
                .map_err(|e| e.to_string())?;
            let no = self.rng.below(len / PAGE_SIZE as u64);
            let seed = self.rng.u64();
            let page = Rotten::new(path, no);
            if len < PAGE_SIZE as u64 || hits.contains_key(&page) {
                continue;
            }
            if page.read(disk)?.iter().all(|byte| *byte == 0) {
                // This page was never written.
                continue;
            }
            let bytes = no * PAGE_SIZE as u64..(no + 1) * PAGE_SIZE as u64;
            disk.flip_bits(&page.path, bytes, 1, seed).map_err(|e| e.to_string())?;
            let now = page.read(disk)?;
            hits.insert(page, now);
        }
        Ok(hits)
    }

    /// Runs a statement in the engine, and in the model unless damage prevents it.
    fn answer(
        &self,
        reader: &mut Reader,
        model: &mut Model,
        stmt: &Stmt,
        hits: &Hits,
    ) -> Result<(), String> {
        let answer =
            reader.outcome(&stmt.to_string()).and_then(|outcome| answers::answer(stmt, &outcome));
        self.watch.progress.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.contains(": 23505 ") => Answer::Duplicate,
            Err(error) if error.contains(": 23514 ") => Answer::Violated,
            // A sum may be out of range; the model decides.
            Err(error)
                if error.contains(": 22003 ")
                    && matches!(model.execute(stmt), Ok(Answer::Refused(_))) =>
            {
                return Ok(());
            }
            Err(error) if error.contains(": XX001 ") && is_explained(&error, hits.keys()) => {
                return Ok(());
            }
            Err(error)
                if stmt.writes()
                    && OTHER_CAUSES.iter().any(|c| error.contains(&format!(": {c} "))) =>
            {
                return Ok(());
            }
            Err(error) => return Err(format!("an error without a cause: {error}")),
        };
        model.replay(&[(stmt.clone(), answer)], &[]).map_err(|why| {
            let names: Vec<String> = hits.keys().map(Rotten::name).collect();
            format!("{why} (bits flipped in {names:?})")
        })
    }
}

/// Returns reads and changes of every kind.
fn statements(table: &str, keys: i32) -> Vec<Stmt> {
    let table = || table.to_owned();
    let select = |pred| Stmt::Select { table: table(), pred, lock: None };
    let new = |k| Row { n: [Some(1), Some(k), Some(1), Some(k)], v: "new".into() };
    let equal = |c, n| Pred::Equal(vec![(c, n)]);
    let mut all = vec![select(Pred::All), Stmt::Sum { table: table(), pred: Pred::All }];
    all.extend((0..keys.min(20)).map(|k| select(equal(K, k))));
    all.extend([select(Pred::Between(U, 0, keys / 2)), select(equal(A, 3))]);
    all.extend((0..3).map(|n| Stmt::Insert { table: table(), rows: vec![new(1_000_000 + n)] }));
    all.extend((0..keys.min(20)).map(|k| Stmt::Update {
        table: table(),
        set: Set::Add(A, 1),
        pred: equal(K, k),
    }));
    all.push(Stmt::Update { table: table(), set: Set::Add(A, 1), pred: Pred::All });
    all.push(Stmt::Delete { table: table(), pred: equal(D, 3) });
    all.push(Stmt::Delete { table: table(), pred: Pred::All });
    all
}
