//! The cost of a page miss, with threads and with io_uring, with buffered and with direct I/O.
//!
//! `cargo bench -p clearway-buffer --bench page_miss -- --dir DIR --pages N [--frames N] [--millis N] [--rounds N] [--write-percent N] [--only "cold direct 64"] [--second-level DIR [--second-level-pages N]]`.
//! Each number is the median of the rounds, in which the engines take turns. Several chains of
//! fetches of random pages run at the same time. Each page is fetched from the callback of the
//! previous one, as the partitions' transactions do. First a page is read into every frame, so that
//! no engine pays for the first access to its memory. Then `cold` drops the files from the system's
//! cache, and `warm` loads them into it. With `--second-level` a miss is looked up there first. The
//! level is filled for the length of a run before each measurement, and reads of both files count.
//! Without arguments a tiny run checks only that the benchmark works.

use clearway_buffer::{
    Files, MissingPage, NoLog, PAGE_SIZE, PageError, PageIo, Pin, Pool, PoolConfig, SecondLevel,
    SecondLevelConfig, Stats, seal, set_kind,
};
use clearway_env::{DirectDisk, Disk, Entropy, IoPool, OsDisk, SeededEntropy};
use clearway_types::{PageId, PartitionId};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const PARTITIONS: u16 = 4;

struct Args {
    dir: PathBuf,
    pages: u32,
    frames: u32,
    run: Duration,
    rounds: u64,
    write_percent: u64,
    only: String,
    second_level: Option<SecondLevelConfig>,
}

fn args() -> Args {
    let given: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| given.iter().position(|arg| arg == name).and_then(|at| given.get(at + 1));
    let number =
        |name: &str, default: u64| value(name).map_or(default, |v| v.parse().expect("a number"));
    let pages = number("--pages", 512);
    let size = number("--second-level-pages", pages) * PAGE_SIZE as u64;
    Args {
        second_level: value("--second-level")
            .map(|dir| SecondLevelConfig { dir: dir.into(), size }),
        dir: value("--dir").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from),
        pages: pages as u32,
        frames: number("--frames", 128) as u32,
        run: Duration::from_millis(number("--millis", 20)),
        rounds: number("--rounds", 1).max(1),
        write_percent: number("--write-percent", 0),
        only: value("--only").cloned().unwrap_or_default(),
    }
}

fn page(n: u64) -> PageId {
    PageId::new(PartitionId((n % u64::from(PARTITIONS)) as u16), (n / u64::from(PARTITIONS)) as u32)
}

fn fill(dir: &Path, pages: u32) -> Result<(), PageError> {
    let files = Files::open(&OsDisk, dir, PARTITIONS)?;
    let mut all: Vec<PageId> = (0..u64::from(pages)).map(page).collect();
    all.sort_unstable();
    for ids in all.chunks(256) {
        let sealed: Vec<_> = ids
            .iter()
            .map(|&id| {
                let mut bytes = [7; PAGE_SIZE];
                set_kind(&mut bytes, 1);
                seal(&mut bytes, id);
                (id, bytes)
            })
            .collect();
        files.write(&sealed.iter().map(|(id, bytes)| (*id, bytes)).collect::<Vec<_>>())?;
    }
    files.sync()
}

/// Returns the process's CPU time in seconds, including its kernel threads.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn cache(dir: &Path, warm: bool) {
    for partition in 0..PARTITIONS {
        let file = std::fs::File::open(dir.join(format!("p{partition:04}.data"))).expect("there");
        if warm {
            std::io::copy(&mut &file, &mut std::io::sink()).expect("read");
        } else {
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(&file, 0, None, advice).expect("advised");
        }
    }
}

struct Chain {
    pool: Arc<Pool>,
    random: SeededEntropy,
    pages: u64,
    write_percent: u64,
    stop: Arc<AtomicBool>,
    fetched: Arc<AtomicU64>,
    _ended: mpsc::Sender<()>,
}

impl Chain {
    fn step(self: Box<Self>) {
        if self.stop.load(Relaxed) {
            return;
        }
        let id = page(self.random.below(self.pages));
        let pool = self.pool.clone();
        pool.fetch(MissingPage::Page(id), Box::new(move |result| self.fetched(id, result)));
    }

    fn fetched(self: Box<Self>, id: PageId, result: Result<Pin, PageError>) {
        let pin = result.expect("a page");
        if self.random.below(100) < self.write_percent
            && let Ok(mut page) = self.pool.write(id)
        {
            page.mark_dirty_begin();
            page[100] ^= 1;
        }
        drop(pin);
        self.fetched.fetch_add(1, Relaxed);
        // A hit calls back at once, on this stack. With a pool that is small relative to the data,
        // few hits follow each other.
        self.step();
    }
}

/// Rates per second, the CPU time of a read, and the share of reads served by the second level.
struct Figures {
    reads: f64,
    cpu_us: f64,
    writes: f64,
    second_percent: f64,
}

fn reads(stats: &Stats) -> u64 {
    stats.reads + stats.second_level.hits
}

/// The I/O engine.
#[derive(Clone, Copy)]
enum Engine {
    Threads,
    Ring,
    Registered,
}

impl Engine {
    const ALL: [Self; 3] = [Self::Threads, Self::Ring, Self::Registered];

    fn start(self) -> std::io::Result<IoPool> {
        match self {
            Self::Threads => IoPool::new(8, "bench"),
            Self::Ring => IoPool::with_ring(8, "bench"),
            Self::Registered => Ok(IoPool::with_ring(8, "bench")?.with_registered_buffers()),
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Threads => "8 threads",
            Self::Ring => "io_uring, plain buffers",
            Self::Registered => "io_uring, registered buffers",
        }
    }
}

/// Reads a page into every frame. Pins all of them until the last has arrived, so that none
/// replaces another.
fn touch_all_frames(pool: &Pool, args: &Args) {
    let (sender, fetched) = mpsc::channel();
    for n in 0..u64::from(args.frames.min(args.pages)) {
        let sender = sender.clone();
        // The receiver waits for all.
        pool.fetch(MissingPage::Page(page(n)), Box::new(move |result| drop(sender.send(result))));
    }
    drop(sender);
    let kept: Vec<Pin> = fetched.iter().map(|result| result.expect("a page")).collect();
    drop(kept);
}

fn run(
    args: &Args,
    disk: &dyn Disk,
    engine: Engine,
    chains: u64,
    warm: bool,
) -> Result<Figures, Box<dyn std::error::Error>> {
    let io_pool = Arc::new(engine.start()?);
    let files = Arc::new(Files::open(disk, &args.dir, PARTITIONS)?.with_io_pool(io_pool.clone()));
    let config = PoolConfig { frames: args.frames, ..PoolConfig::default() };
    let second =
        args.second_level.as_ref().map(|config| SecondLevel::open(disk, config)).transpose()?;
    let pool = Pool::with_second_level(config, files, Arc::new(NoLog), io_pool, second)?;
    touch_all_frames(&pool, args);
    cache(&args.dir, warm);
    let (stop, fetched) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (ended, all_ended) = mpsc::channel();
    for seed in 0..chains {
        let random = SeededEntropy::new(seed ^ SeededEntropy::new(chains).u64());
        let (pool, stop, fetched) = (pool.clone(), stop.clone(), fetched.clone());
        let (pages, write_percent) = (u64::from(args.pages), args.write_percent);
        Box::new(Chain {
            pool,
            random,
            pages,
            write_percent,
            stop,
            fetched,
            _ended: ended.clone(),
        })
        .step();
    }
    drop(ended);
    // Nothing is ever sent: this only waits for the time to pass.
    if args.second_level.is_some() {
        let _ = all_ended.recv_timeout(args.run);
    }
    let (began, cpu, before) = (Instant::now(), cpu_s(), pool.stats());
    let _ = all_ended.recv_timeout(args.run);
    let (seconds, cpu, stats) = (began.elapsed().as_secs_f64(), cpu_s() - cpu, pool.stats());
    stop.store(true, Relaxed);
    let _ = all_ended.recv();
    let made = (reads(&stats) - reads(&before)) as f64;
    let hits = (stats.second_level.hits - before.second_level.hits) as f64;
    Ok(Figures {
        reads: made / seconds,
        cpu_us: cpu / made * 1e6,
        writes: (stats.writes - before.writes) as f64 / seconds,
        second_percent: 100.0 * hits / made,
    })
}

fn median(of: &[Figures], what: impl Fn(&Figures) -> f64) -> f64 {
    let mut all: Vec<f64> = of.iter().map(what).collect();
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = args();
    args.dir = args.dir.join(format!("page-miss-{}", std::process::id()));
    std::fs::create_dir_all(&args.dir)?;
    fill(&args.dir, args.pages)?;
    println!(
        "{} pages, {} frames, {}% of the fetched pages are changed",
        args.pages, args.frames, args.write_percent
    );
    println!(
        "| cache and files | concurrent fetches | engine | page reads/s | second level | CPU us/read | page writes/s |"
    );
    println!("|---|---|---|---|---|---|---|");
    let engines = Engine::ALL.into_iter().filter(|engine| match engine.start() {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED {}: {error}", engine.describe());
            false
        }
    });
    let engines: Vec<Engine> = engines.collect();
    for (name, warm, direct) in [
        ("cold buffered", false, false),
        ("cold direct", false, true),
        ("warm buffered", true, false),
    ] {
        for chains in
            [1, 8, 64].into_iter().filter(|chains| format!("{name} {chains}").contains(&args.only))
        {
            let directly = DirectDisk::new(false);
            let disk: &dyn Disk = if direct { &directly } else { &OsDisk };
            let mut figures: Vec<Vec<Figures>> = engines.iter().map(|_| Vec::new()).collect();
            for _ in 0..args.rounds {
                for (engine, figures) in engines.iter().zip(&mut figures) {
                    figures.push(run(&args, disk, *engine, chains, warm)?);
                }
            }
            let refused = if directly.refused() { " (refused)" } else { "" };
            for (engine, figures) in engines.iter().zip(&figures) {
                let of = |what: fn(&Figures) -> f64| median(figures, what);
                let (reads, second) = (of(|f| f.reads), of(|f| f.second_percent));
                let (cpu, writes) = (of(|f| f.cpu_us), of(|f| f.writes));
                let how = format!("{name}{refused} | {chains} | {}", engine.describe());
                println!("| {how} | {reads:.0} | {second:.0}% | {cpu:.2} | {writes:.0} |");
            }
        }
    }
    std::fs::remove_dir_all(&args.dir)?;
    Ok(())
}
