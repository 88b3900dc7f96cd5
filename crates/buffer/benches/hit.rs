//! The cost of a hit: a bare lookup in the page table, a pin with its latch, and an optimistic
//! read, by one thread and by two, on the same hot pages and on disjoint ones.
//!
//! `cargo bench -p clearway-buffer --bench hit -- [--pages N] [--replacement HOW] [--threads N] [--millis N] [--rounds N]`.
//! Times are CPU times of the threads. The ways take turns in rounds, and medians are printed, so
//! that other load on the machine has little effect. A line for each bar follows, `ok` or `short`.
//! The CPU time of two threads shows what they cost each other in the caches, not whether two cores
//! were available. The instructions of each way, and of a change, are counted by single-stepping.
//! Without arguments a tiny run checks only that the benchmark works.

#[path = "../../latch/benches/steps/mod.rs"]
mod steps;

use clearway_buffer::{Files, MissingPage, NoLog, Pool, PoolConfig};
use clearway_env::{Disk, IoPool, SeededEntropy};
use clearway_replacement::ReplacementKind;
use clearway_testkit::MemDisk;
use clearway_types::{PageId, PartitionId};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Default number of pages in the pool.
const PAGES: u64 = 4096;
/// The use count at which further uses are not counted.
const UNTIL_HOT: u32 = 64;
/// Number of pages that all threads read if they share them.
const HOT: u32 = 8;

/// Maximum cost of an optimistic read relative to the lookup, and minimum throughput of two threads
/// relative to one.
const BARS: (f64, f64) = (1.3, 1.8);
/// Shorter runs are meaningless.
const JUDGED_MILLIS: u64 = 20;

type Hit = fn(&Pool, PageId) -> u64;

/// The ways to find a resident page; the others are compared with the lookup. They do not read the
/// page, which costs the same cache misses for each of them.
const WAYS: [(&str, Hit); 3] = [
    ("lookup", |pool, id| u64::from(pool.is_resident(id))),
    ("pin and latch", |pool, id| u64::from(pool.read(id).is_ok())),
    ("optimistic", |pool, id| u64::from(pool.read_optimistic(id, |_| ()).is_ok())),
];

fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Returns the calling thread's CPU time in nanoseconds.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Returns the mean CPU time of a hit in nanoseconds if all threads run at the same time.
fn cost(pool: &Pool, hit: Hit, ids: &[Vec<PageId>], run: Duration) -> f64 {
    let stop = AtomicBool::new(false);
    let work = |ids: &[PageId]| {
        let (mut hits, mut sum, began) = (0_u64, 0_u64, cpu_ns());
        while !stop.load(Relaxed) {
            for &id in ids {
                sum = sum.wrapping_add(hit(pool, id));
            }
            hits += ids.len() as u64;
        }
        black_box(sum);
        (cpu_ns() - began) / hits.max(1) as f64
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = ids.iter().map(|ids| scope.spawn(|| work(ids))).collect();
        // Nothing is ever sent: this only waits for the time to pass.
        let (_sender, over) = mpsc::channel::<()>();
        let _ = over.recv_timeout(run);
        stop.store(true, Relaxed);
        let sum: f64 =
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
        sum / ids.len() as f64
    })
}

/// Prints the instructions of each way, and of an exclusive latch, for a hot page in the first
/// frame of its chain.
fn count_instructions(pool: &Pool) {
    const CHANGE: (&str, Hit) = ("exclusive latch", |pool, id| u64::from(pool.write(id).is_ok()));
    for (way, hit) in WAYS.into_iter().chain([CHANGE]) {
        let counts = (0..HOT).filter_map(|no| {
            let hit = black_box(hit);
            (0..UNTIL_HOT).for_each(|_| _ = black_box(hit(pool, page(no))));
            steps::of(&|| _ = black_box(hit(pool, page(no))))
        });
        match counts.min() {
            Some(least) => println!("{way}: {least} instructions"),
            None => println!("{way}: instructions cannot be counted here (no single-stepping)"),
        }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| given.iter().position(|arg| arg == name).and_then(|at| given.get(at + 1));
    let number =
        |name: &str, default: u64| value(name).map_or(default, |v| v.parse().expect("a number"));
    let run = Duration::from_millis(number("--millis", 2));
    let (rounds, many) = (number("--rounds", 1), number("--threads", 2) as usize);
    let pages = number("--pages", PAGES) as u32;
    let replacement: ReplacementKind =
        value("--replacement").map_or(Ok(ReplacementKind::default()), |how| how.parse())?;

    let (disk, dir) = (MemDisk::new(), Path::new("/hit"));
    disk.create_dir_all(dir)?;
    let io_pool = Arc::new(IoPool::new(1, "bench")?);
    let files = Arc::new(Files::open(&disk, dir, 1)?);
    let config = PoolConfig { frames: pages + pages / 4, replacement, ..PoolConfig::default() };
    let pool = Pool::new(config, files, Arc::new(NoLog), io_pool)?;
    for no in 0..pages {
        pool.fetch_blocking(MissingPage::Page(page(no)))?;
    }

    count_instructions(&pool);
    let random = SeededEntropy::new(1);
    let among = |from: u32, of: u32| -> Vec<PageId> {
        (0..pages).map(|_| page(from + random.below(u64::from(of)) as u32)).collect()
    };
    let share = pages / many as u32;
    let works: [(&str, Vec<Vec<PageId>>); 3] = [
        ("one thread", vec![among(0, pages)]),
        ("the same hot pages", (0..many).map(|_| among(0, HOT)).collect()),
        ("disjoint pages", (0..many as u32).map(|thread| among(thread * share, share)).collect()),
    ];
    println!(
        "{replacement}, {pages} pages, {many} threads or one, medians of {rounds} rounds of {run:?}"
    );
    let mut bars = Vec::new();
    println!(
        "| work | way | ns per hit | relative to the lookup | throughput relative to one thread |"
    );
    println!("|---|---|---|---|---|");
    for (work, ids) in &works {
        let mut costs = WAYS.map(|_| (Vec::new(), Vec::new()));
        for _ in 0..rounds {
            for ((_, hit), (together, alone)) in WAYS.iter().zip(&mut costs) {
                together.push(cost(&pool, *hit, ids, run));
                alone.push(cost(&pool, *hit, &ids[..1], run));
            }
        }
        let costs = costs.map(|(together, alone)| (median(together), median(alone)));
        for ((way, _), (together, alone)) in WAYS.iter().zip(costs) {
            let scaling = ids.len() as f64 * alone / together;
            let ratio = together / costs[0].0;
            println!("| {work} | {way} | {together:.1} | {ratio:.2} | {scaling:.2} |");
            if *way == WAYS[2].0 && ids.len() == 1 {
                bars.push((
                    ratio <= BARS.0,
                    format!("{work}: {ratio:.2} of the lookup, bar at most {}", BARS.0),
                ));
            } else if *way == WAYS[2].0 && ids.len() == 2 {
                bars.push((
                    scaling >= BARS.1,
                    format!("{work}: {scaling:.2} of one, bar at least {}", BARS.1),
                ));
            }
        }
    }
    for (ok, line) in bars.iter().filter(|_| run.as_millis() >= u128::from(JUDGED_MILLIS)) {
        println!("{:<8} {}, {line}", if *ok { "ok" } else { "short" }, WAYS[2].0);
    }
    Ok(())
}
