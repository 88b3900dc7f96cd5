//! The server's settings: one table, filled from the command line and a TOML file. Flags take
//! precedence over the file.

mod file;
mod table;
mod values;

pub use values::{Address, DirectIo, HotRows, IoEngine, Level, LogLockWaits, Size, Switch};

use crate::latches::{LatchChoice, LatchSpins};
use clap::Args;
use clearway_coordinator::{SchemeKind, SecondLevelConfig};
use clearway_ir::statement::Isolation;
use clearway_replacement::ReplacementKind;
use file::File;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use values::{Bound, Number};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Default size of the second level, in multiples of the buffer pool.
const SECOND_LEVEL_POOLS: u64 = 8;

table::settings! {
    /// Directory for data and log; created if it does not exist [default: ./clearway-data]
    data("DIR"): PathBuf => PathBuf = PathBuf::from("./clearway-data");
    /// Address or host name, and port, to listen on. Port 0 lets the system choose. A name is
    /// resolved once, and IPv4 addresses are preferred. There is no authentication: anyone who
    /// connects is let in as any user, without a password [default: 127.0.0.1:5432]
    listen("ADDR"): Address => SocketAddr = SocketAddr::from(([127, 0, 0, 1], 5432));
    /// Name of the database. `postgres`, `clearway` and the name of the user also connect to it;
    /// any other name is refused (3D000) [default: postgres]
    database("NAME"): String => String = "postgres".to_owned();
    /// Directory for a Unix socket, `.s.PGSQL.PORT`, to listen on as well [default: none]
    unix_socket("DIR"): PathBuf => Option<PathBuf> = None;
    /// Partitions of a new data directory, 1 to 1024. An existing directory keeps its number
    /// [default: 4 per core]
    partitions("N"): u16 => Option<u16> = None, in 1..=1024;
    /// Memory for data pages, in bytes or with KiB, MiB, GiB or TiB, 1MiB to 16TiB
    /// [default: 128MiB]
    buffer_pool("SIZE"): Size => u64 = 128 * MIB, in MIB..=16 * TIB;
    /// Directory on a local SSD for a file that caches pages evicted from the buffer pool. The file
    /// is emptied at each start [default: none]
    second_level("DIR"): PathBuf => Option<PathBuf> = None;
    /// Size of that file, 1MiB to 4TiB. Also uses 0.25 to 0.3 % of this size in memory [default: 8
    /// times the buffer pool]
    second_level_size("SIZE"): Size => Option<u64> = None, in MIB..=4 * TIB;
    /// Worker threads, 1 to 256 [default: 1 per core]
    workers("N"): u16 => u16 = cores(), in 1..=256;
    /// Whether COMMIT waits until the log is on disk: on or off. A session can SET its own value
    /// [default: on]
    synchronous_commit("ON|OFF"): Switch => bool = true;
    /// Isolation level of transactions that do not ask for one: read committed, repeatable read or
    /// serializable. A session can SET its own value [default: read committed]
    default_transaction_isolation("LEVEL"): Level => Isolation = Isolation::default();
    /// How transactions share rows that many of them change: off, or a comma-separated list.
    /// increments: transactions that only add to integers of a row do not wait for each other.
    /// whole: transactions that arrive in one query or one pipeline run without row locks. retire:
    /// the next transaction changes a contended row before the previous one commits [default:
    /// increments]
    hot_rows("LIST"): HotRows => HotRows = HotRows::default();
    /// Concurrency control of statements outside a block that change or lock rows of several
    /// partitions: hybrid, blocking, speculative, locking or optimistic. hybrid: they have their
    /// partitions to themselves if no lock is held there, otherwise they lock rows. blocking: they
    /// wait for that, unless a transaction with locks there may wait for its client. speculative:
    /// like blocking, but statements run behind one that has finished and is undecided, and again
    /// if it aborts. locking: they lock rows. optimistic: they run without locks, are validated,
    /// and run again as under blocking if they are invalid. SELECT clearway.set_scheme(PARTITION,
    /// HOW) changes it at run time, until the next start [default: hybrid]
    scheme("HOW"): SchemeKind => SchemeKind = SchemeKind::default();
    /// Seconds between checkpoints, 1 to 86400 [default: 60]
    checkpoint_interval_s("SECONDS"): u64 => u64 = 60, in 1..=86_400;
    /// Growth of the log that starts a checkpoint early, 1MiB to 16TiB. Bounds the size of the log
    /// and the recovery time [default: 1GiB]
    checkpoint_log("SIZE"): Size => u64 = GIB, in MIB..=16 * TIB;
    /// Maximum size of a temporary file in the data directory for old row versions that open
    /// snapshots need and that do not fit in memory, 1MiB to 16TiB; 0 means no file. If it is full,
    /// the oldest snapshot fails with 72000 [default: 1GiB]
    version_spill("SIZE"): Size => u64 = GIB;
    /// Memory that one statement can use for rows, groups and sort keys, 1MiB to 16TiB. A statement
    /// that needs more fails with 53200 [default: an eighth of the memory: the machine's, or the
    /// process's cgroup limit if that is lower]
    query_memory("SIZE"): Size => u64 = (crate::memory::memory() / 8).max(MIB), in MIB..=16 * TIB;
    /// Size of a log segment file, a multiple of 4KiB, 1MiB to 1TiB [default: 64MiB]
    log_segment("SIZE"): Size => u64 = 64 * MIB, in MIB..=TIB;
    /// Size of the log's buffer in memory, 1MiB to 64GiB [default: 16MiB]
    log_buffer("SIZE"): Size => u64 = 16 * MIB, in MIB..=64 * GIB;
    /// Replacement policy of the buffer pool: s3-fifo for most loads, clock-sweep for the cheapest
    /// hits, lirs or clock-pro for loops larger than the pool, arbiter for changing loads, or
    /// another policy of docs/policies.md; also lru/multilist and arc/multilist [default: s3-fifo]
    replacement("HOW"): ReplacementKind => ReplacementKind = ReplacementKind::default();
    /// I/O engine for pages. uring: io_uring; the server does not start without it. threads: a pool
    /// of threads. auto: io_uring if the kernel allows it, otherwise threads [default: auto]
    io_engine("HOW"): IoEngine => IoEngine = IoEngine::Auto;
    /// Whether pages bypass the operating system's cache. on: yes; the server does not start if the
    /// file system does not support it. off: no. auto: yes if the buffer pool has at least half of
    /// the memory (the machine's, or the process's cgroup limit if that is lower) and the file
    /// system supports it [default: auto]
    direct_io("HOW"): DirectIo => DirectIo = DirectIo::Auto;
    /// Maximum number of connections, 1 to 1048576, without those of the control socket. Further
    /// connections are refused with 53300. The start lowers it, with a warning, to what the limit
    /// on open files permits [default: 10000]
    max_connections("N"): usize => usize = 10_000, in 1..=1 << 20;
    /// Milliseconds that a new connection has to send its startup packet, and that a client which
    /// has closed its side may take to read more of its replies, 10 to 600000. The connection is
    /// closed afterwards [default: 60000]
    startup_timeout_ms("MILLISECONDS"): u64 => u64 = 60_000, in 10..=600_000;
    /// Microseconds that a worker with active sessions polls before it sleeps, unless another
    /// program uses its core, 0 to 10000; 0 sleeps at once [default: 50]
    spin_us("MICROSECONDS"): u64 => u64 = 50, in 0..=10_000;
    /// Address and port of a metrics endpoint for Prometheus, `http://ADDR/metrics`. Port 0 lets
    /// the system choose [default: none]
    metrics("ADDR"): Address => Option<SocketAddr> = None;
    /// Instructions that acquire latches: `auto` measures at startup and uses the fastest;
    /// otherwise a name from `clearway.latch_calibration` [default: auto]
    latch("HOW"): LatchChoice => LatchChoice = LatchChoice::Auto;
    /// Spins before a waiting thread yields or sleeps, 0 to 100000, doubled for latches that are
    /// mostly held briefly; 0 sleeps at once. `auto` calibrates at startup [default: auto]
    latch_spins("N"): LatchSpins => LatchSpins = LatchSpins::Auto;
    /// Whether requests and waits for latches and locks are counted for `clearway.contention`: on
    /// or off [default: on]
    lockstat("ON|OFF"): Switch => bool = true;
    /// Time after which a wait for a lock is logged, with its blockers and both statements, and
    /// again when it ends: 1ms to 24h, in milliseconds or with ms, s, min or h; or off [default:
    /// off]
    log_lock_waits("DURATION"): LogLockWaits => LogLockWaits = LogLockWaits::default();
    /// What to log: error, warn, info, debug, trace, or a filter in the syntax of tracing's
    /// EnvFilter [default: info]
    log_filter("FILTER"): String => String = "info".to_owned();
}

/// Returns the number of cores that this process may use, at most 256.
pub fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(256) as u16)
}

impl Config {
    /// Reads the configuration file that the flags name. Flags take precedence over it.
    pub fn load(flags: Flags) -> Result<Self, String> {
        let Some(path) = flags.config.clone() else { return Self::parse(flags, "") };
        let in_file = |e: String| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|e| in_file(e.to_string()))?;
        Self::parse(flags, &text).map_err(in_file)
    }

    /// Parses the text of a configuration file. Flags take precedence over it.
    pub fn parse(flags: Flags, text: &str) -> Result<Self, String> {
        let config = Self::merge(flags, File::parse(text)?)?;
        config.check()?;
        Ok(config)
    }

    /// Returns the defaults for a data directory.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self { data: data.into(), ..Self::defaults() }
    }

    /// Returns the file that caches pages evicted from the buffer pool, if it is configured.
    pub fn second_level(&self) -> Option<SecondLevelConfig> {
        let dir = self.second_level.clone()?;
        let default = self.buffer_pool.saturating_mul(SECOND_LEVEL_POOLS).min(4 * TIB);
        Some(SecondLevelConfig { dir, size: self.second_level_size.unwrap_or(default) })
    }

    fn check(&self) -> Result<(), String> {
        self.check_ranges()?;
        let directories = [
            ("data", Some(&self.data)),
            ("unix_socket", self.unix_socket.as_ref()),
            ("second_level", self.second_level.as_ref()),
        ];
        for (key, directory) in directories {
            if directory.is_some_and(|path| path.as_os_str().is_empty()) {
                return Err(format!("{key} must not be empty: name a directory"));
            }
        }
        if self.version_spill > 0 {
            check_range::<Size>("version_spill", self.version_spill.into(), MIB..=16 * TIB)?;
        }
        if !self.log_segment.is_multiple_of(4096) {
            return Err("log_segment must be a multiple of 4KiB".to_owned());
        }
        if self.second_level.is_none() && self.second_level_size.is_some() {
            return Err("second_level_size requires second_level".to_owned());
        }
        Ok(())
    }
}

/// Checks a number or size that is written like `T`.
fn check_range<T: Bound>(
    key: &str,
    value: Number,
    range: RangeInclusive<u64>,
) -> Result<(), String> {
    match value.0 {
        Some(value) if !range.contains(&value) => {
            let [low, high, value] = [*range.start(), *range.end(), value].map(T::show);
            Err(format!("{key} must be between {low} and {high}, not {value}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
