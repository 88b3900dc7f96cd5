//! What a hit costs: a bare lookup in the page table, a pin with its latch, an optimistic read; by
//! one thread and by two, on the same hot pages and on disjoint ones.
//!
//! `cargo bench -p clearway-buffer --bench hit -- [--pages N] [--replacement HOW] [--threads N] [--millis N] [--rounds N]`.
//! Times are of the threads' processor time, rounds of all ways follow one another, and the medians
//! are told, so that what else the machine does counts little. Then a line for each bar, `ok` or
//! `short`. Processor time says of two threads what they take from each other in the caches, not
//! that there are two cores for them. Instructions of each way, and of a change, are counted one by
//! one. Without arguments it runs tiny, and judges nothing: to be sure that it runs.

#[path = "../../latch/benches/steps/mod.rs"]
mod steps;

use clearway_buffer::{Files, MissingPage, Pool, PoolConfig, WalBarrier};
use clearway_env::{Disk, IoPool, MemDisk, SeededEntropy};
use clearway_replacement::ReplacementKind;
use clearway_types::{Lsn, PageId, PartitionId};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Pages in the pool, if nothing else is said.
const PAGES: u64 = 4096;
/// Uses after which one more is not counted.
const UNTIL_HOT: u32 = 64;
/// Pages that everyone reads where they are the same.
const HOT: u32 = 8;

/// No page is changed here.
struct NoWal;

impl WalBarrier for NoWal {
    fn ensure_durable(&self, _: Lsn) -> std::io::Result<()> {
        Ok(())
    }
    fn durable(&self) -> Lsn {
        Lsn(u64::MAX)
    }
    fn appended(&self) -> Lsn {
        Lsn(0)
    }
}

/// The most that an optimistic read may cost, against the lookup, and the least throughput of two
/// threads against one's.
const BARS: (f64, f64) = (1.3, 1.8);
/// Shorter runs mean nothing.
const JUDGED_MILLIS: u64 = 20;

type Hit = fn(&Pool, PageId) -> u64;

/// The ways to find a resident page; the lookup is what the others are held against. They do not
/// look into the page: that costs the same cache misses whoever has found it.
const WAYS: [(&str, Hit); 3] = [
    ("lookup", |pool, id| u64::from(pool.is_resident(id))),
    ("pin and latch", |pool, id| u64::from(pool.read(id).is_ok())),
    ("optimistic", |pool, id| u64::from(pool.read_optimistic(id, |_| ()).is_ok())),
];

fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Nanoseconds of processor time that this thread has taken.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Nanoseconds a hit, of a thread in the mean, if all run at once.
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
        // Nothing is ever sent: it waits for the time to be over.
        let (_sender, over) = mpsc::channel::<()>();
        let _ = over.recv_timeout(run);
        stop.store(true, Relaxed);
        let sum: f64 =
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
        sum / ids.len() as f64
    })
}

/// Instructions of each way, and of an exclusive latch, at a hot page in the first frame of its
/// chain.
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
            None => println!("{way}: instructions are not counted here, no trap after each"),
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
    let pool = Pool::new(config, files, Arc::new(NoWal), io_pool)?;
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
        "{replacement}, {pages} pages, {many} threads where not one, medians of {rounds} rounds of {run:?}"
    );
    let mut bars = Vec::new();
    println!("| work | way | ns a hit | against the lookup | threads' throughput against one's |");
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
