//! Measures the duration of a recovery against the bytes of log that it must read, on a real
//! directory.
//!
//! `cargo bench -p clearway-storage --bench recovery [-- --quick]`
//!
//! Each run creates a table and takes a checkpoint. It then changes rows at random until the log
//! has grown by the given amount, and stops with an open transaction and without another
//! checkpoint. Then it opens the directory. Rows have 80 bytes, of which changes modify 8. One in
//! ten changes inserts or deletes; half of the changes belong to general transactions of ten
//! changes each. The measurement covers the whole open, including the checkpoint at its end. The
//! files are in the operating system's cache.

use clearway_env::{Entropy, OsDisk, SeededEntropy};
use clearway_storage::{
    Blocked, Node, NodeConfig, Store, Trees, TxnLog, TxnMode, rowid_key as key,
};
use clearway_types::TreeId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BAR_MB_S: f64 = 100.0;
const TREE: TreeId = TreeId(1);
const PARTITIONS: u16 = 4;

struct Case {
    /// A note on the table's size.
    what: &'static str,
    rows: u64,
    frames: u32,
    log_mb: u64,
}

fn config(case: &Case) -> NodeConfig {
    NodeConfig { partitions: Some(PARTITIONS), frames: case.frames, ..NodeConfig::default() }
}

fn row(n: u64) -> [u8; 80] {
    let mut row = [n as u8; 80];
    row[..8].copy_from_slice(&n.to_le_bytes());
    row
}

fn below(random: &SeededEntropy, n: u64) -> u64 {
    random.u64() % n
}

/// A directory below the build directory, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the benchmark");
        Self(dir)
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}

/// Returns true if only the shortest run is wanted, also under `cargo test --benches`.
fn quick() -> bool {
    let args: Vec<String> = std::env::args().collect();
    args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench")
}

/// Fetches and retries, as the engine does.
fn run<T>(
    node: &Node,
    store: &mut Store,
    mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>,
) -> T {
    let mut kept = Vec::new();
    loop {
        match attempt(store) {
            Ok(value) => return value,
            Err(Blocked::Failed(error)) => panic!("{error}"),
            Err(Blocked::Log(read)) => read.run(),
            Err(Blocked::MissingPage(wants)) => {
                let fetched = wants
                    .into_iter()
                    .map(|want| node.pool().fetch_blocking(want).expect("a page"))
                    .collect();
                drop(std::mem::replace(&mut kept, fetched));
            }
        }
    }
}

/// Creates a directory with `log_mb` of log after its last checkpoint.
fn prepare(dir: &Dir, case: &Case) {
    // The pool holds everything, so that creating the log is fast.
    let config = NodeConfig { frames: 1 << 16, ..config(case) };
    let mut node = Node::open(Arc::new(OsDisk), dir.path(), config).expect("a directory");
    let mut stores = node.take_stores();
    for store in &mut stores {
        run(&node, store, |s| s.create_tree(TREE));
    }
    for n in 0..case.rows {
        let store = &mut stores[(n % u64::from(PARTITIONS)) as usize];
        run(&node, store, |s| s.insert_autocommit(TREE, &key(n), &row(n)));
    }
    node.checkpoint().expect("a checkpoint");
    let random = SeededEntropy::new(1);
    let until = node.wal().appended().0 + (case.log_mb << 20);
    let mut open = None;
    while node.wal().appended().0 < until {
        let partition = below(&random, u64::from(PARTITIONS));
        let store = &mut stores[partition as usize];
        let mut txn = TxnLog::new(node.alloc_txn_id());
        let general = below(&random, 20) == 0;
        for _ in 0..10 {
            let n = below(&random, case.rows / u64::from(PARTITIONS)) * u64::from(PARTITIONS)
                + partition;
            let (key, mut row) = (key(n), row(n));
            row[40..48].copy_from_slice(&below(&random, u64::MAX).to_le_bytes());
            match (below(&random, 10), general) {
                (0, false) => {
                    if run(&node, store, |s| s.delete_autocommit(TREE, &key)).is_none() {
                        run(&node, store, |s| s.insert_autocommit(TREE, &key, &row));
                    }
                }
                (_, false) => drop(run(&node, store, |s| s.update_autocommit(TREE, &key, &row))),
                (_, true) => drop(run(&node, store, |s| {
                    s.update(&mut txn, TxnMode::Logged, TREE, &key, &row)
                })),
            }
        }
        if general {
            store.commit_local(txn);
        }
        if open.is_none() {
            let mut txn = TxnLog::new(node.alloc_txn_id());
            let n = case.rows + partition;
            run(&node, store, |s| s.insert(&mut txn, TxnMode::Logged, TREE, &key(n), &row(n)));
            open = Some(txn);
        }
    }
    node.wal().wait_durable(node.wal().appended()).expect("the log");
    node.shutdown();
}

fn main() {
    let sizes: &[u64] = if quick() { &[4] } else { &[64, 256] };
    println!("recovery: the whole open, against the log read; bar {BAR_MB_S} MB/s");
    println!(
        "{:<24} {:>8} {:>9} {:>9} {:>9} {:>8}",
        "table", "log MB", "seconds", "MB/s", "records", ""
    );
    let mut short = false;
    let shapes: [(&'static str, u64, u32); 2] =
        [("in the pool (128 MiB)", 400_000, 16384), ("four times the pool", 1_600_000, 4096)];
    for (what, rows, frames) in shapes {
        for &log_mb in sizes {
            let rows = if quick() { rows / 100 } else { rows };
            let frames = if quick() { frames / 32 } else { frames };
            let case = Case { what, rows, frames, log_mb };
            let dir = Dir::new("bench-recovery");
            prepare(&dir, &case);
            let node = Node::open(Arc::new(OsDisk), dir.path(), config(&case)).expect("recovery");
            let report = node.recovery();
            assert_eq!(report.undone, 1, "the open transaction is undone");
            assert!(report.log_bytes >= log_mb << 20);
            let (mb, seconds) = (report.log_bytes as f64 / 1e6, report.took.as_secs_f64());
            let verdict = if mb / seconds >= BAR_MB_S { "ok" } else { "short" };
            short |= verdict == "short";
            let Case { what, .. } = case;
            println!(
                "{what:<24} {mb:>8.1} {seconds:>9.3} {:>9.1} {:>9} {verdict:>8}",
                mb / seconds,
                report.redone
            );
            node.shutdown();
        }
    }
    // A tiny run says nothing about speed, but shows that the benchmark works.
    if short && !quick() {
        println!("short of the bar");
    }
}
