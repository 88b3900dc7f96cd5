//! The server's configuration: one value, made of a TOML file and the command line, which has the last word.

mod values;

pub use values::{Address, DirectIo, DispatchChoice, HotRows, IoEngine, Level, LogLockWaits, Size, Switch};

use crate::latches::{LatchChoice, LatchSpins, TextOrNumber};
use clap::Args;
use clearway_coordinator::{ReplacementKind, SecondLevelConfig};
use clearway_plan::statement::Isolation;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Flags of `serve`; each has a key of the same name in the configuration file, with `_` for `-`; both take both.
#[derive(Debug, Default, Args)]
#[command(next_line_help = true)]
pub struct Flags {
    /// Directory of data and log; made if it does not exist [default: ./clearway-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address or host name, and port, to listen on; port 0 lets the system choose. A name is looked up once, and an IPv4 address is
    /// preferred. There is no authentication: whoever connects is let in as the user named, without a password [default: 127.0.0.1:5432]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<Address>,
    /// Name of the database, which is also known as `postgres`, as `clearway`, and by the name of the user; others do not exist (3D000)
    /// [default: postgres]
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// Directory of a Unix socket `.s.PGSQL.PORT` to listen on as well [default: none]
    #[arg(long, value_name = "DIR")]
    pub unix_socket: Option<PathBuf>,
    /// Partitions of a new data directory, 1 to 1024; an existing one keeps its number [default: 4 a core]
    #[arg(long, value_name = "N")]
    pub partitions: Option<u16>,
    /// Memory for data pages, in bytes or with KiB, MiB, GiB; at least 1MiB [default: 128MiB]
    #[arg(long, value_name = "SIZE")]
    pub buffer_pool: Option<Size>,
    /// Directory on a local SSD for a file of copies of pages that leave the buffer pool, where a miss looks first; the file is emptied at
    /// every start [default: none]
    #[arg(long, value_name = "DIR")]
    pub second_level: Option<PathBuf>,
    /// Size of that file, 1MiB to 4TiB; it takes a 400th to a 340th of it in memory, too [default: 8 times the buffer pool]
    #[arg(long, value_name = "SIZE")]
    pub second_level_size: Option<Size>,
    /// Worker threads, 1 to 256 [default: one a core]
    #[arg(long, value_name = "N")]
    pub workers: Option<u16>,
    /// Who runs a partition: whichever worker has work for it (baton), or always the same one (pinned) [default: baton]
    #[arg(long, value_name = "HOW")]
    pub dispatch: Option<DispatchChoice>,
    /// Whether COMMIT waits until the log is on disk: on or off; a session may SET its own [default: on]
    #[arg(long, value_name = "ON|OFF")]
    pub synchronous_commit: Option<Switch>,
    /// The isolation level of transactions that ask for none; a session may SET its own [default: read committed]
    #[arg(long, value_name = "LEVEL")]
    pub default_transaction_isolation: Option<Level>,
    /// How transactions share rows that many of them change: a list of mechanisms separated by commas, or off. increments: transactions that
    /// only add to integers of a row do so at the same time; whole: transactions that arrive in one query or one pipeline run without row
    /// locks; retire: the next transaction changes a contended row before the last one that has changed it commits [default: increments]
    #[arg(long, value_name = "LIST")]
    pub hot_rows: Option<HotRows>,
    /// Seconds between checkpoints [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub checkpoint_interval_s: Option<u64>,
    /// A checkpoint is made, also before its time, when the log has grown by so much since the last: bounds the log on disk and the
    /// time of a recovery [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub checkpoint_log: Option<Size>,
    /// Size of the temporary file, in the data directory, for old versions of rows that open
    /// snapshots need and that do not fit in memory. When it is full, the oldest snapshot fails with
    /// 72000. In bytes or with KiB, MiB or GiB, 1MiB to 16TiB; 0: no file [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub version_spill: Option<Size>,
    /// Memory that one statement may take for rows, groups and sort keys; beyond it the statement fails with 53200. In bytes or with KiB, MiB
    /// or GiB, from 1MiB on [default: an eighth of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    pub query_memory: Option<Size>,
    /// Size of a log segment file, a multiple of 4KiB, at least 1MiB [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub log_segment: Option<Size>,
    /// Size of the log's buffer in memory [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    pub log_buffer: Option<Size>,
    /// How the buffer pool chooses the pages that leave: clock-sweep, or a policy, or POLICY/WRAPPER, as lru/locked [default: s3-fifo]
    #[arg(long, value_name = "HOW")]
    pub replacement: Option<ReplacementKind>,
    /// Who reads and writes pages: the kernel's io_uring (uring), threads, or the first if the kernel lets us (auto) [default: auto]
    #[arg(long, value_name = "HOW")]
    pub io_engine: Option<IoEngine>,
    /// Whether pages bypass the operating system's cache: on, off, or if the buffer pool has half of the memory (auto) [default: auto]
    #[arg(long, value_name = "HOW")]
    pub direct_io: Option<DirectIo>,
    /// Connections at most; more are refused with SQLSTATE 53300 [default: 10000]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// Milliseconds that a new connection may take to send its startup packet, 10 to 600000; it is closed after that [default: 60000]
    #[arg(long, value_name = "MILLISECONDS")]
    pub startup_timeout_ms: Option<u64>,
    /// Microseconds that a worker looks for news before it sleeps, while few sessions are active; 0: sleep at once [default: 50]
    #[arg(long, value_name = "MICROSECONDS")]
    pub spin_us: Option<u64>,
    /// Address and port of a metrics endpoint for Prometheus, `http://ADDR/metrics`; port 0 lets the system choose [default: none]
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<Address>,
    /// By which instructions latches are taken: by those measured to be the best at the start (auto), or by these, if the processor has
    /// them; `clearway.latch_calibration` lists what there is [default: auto]
    #[arg(long, value_name = "HOW")]
    pub latch: Option<LatchChoice>,
    /// How often a thread pauses at a held latch before it yields its core or sleeps, twice as often at a latch that is mostly held
    /// briefly: as measured at the start (auto), or so often; 0: sleep at once [default: auto]
    #[arg(long, value_name = "N")]
    pub latch_spins: Option<LatchSpins>,
    /// Whether requests and waits for latches and locks are counted, which `clearway.contention` shows; off to see what it costs
    /// [default: on]
    #[arg(long, value_name = "ON|OFF")]
    pub lockstat: Option<Switch>,
    /// Time after which a wait for a lock is logged, with who blocks it and both statements, and its end as well: milliseconds, or with ms, s,
    /// min or h, 1ms to 24h, or off [default: off]
    #[arg(long, value_name = "DURATION")]
    pub log_lock_waits: Option<LogLockWaits>,
    /// What to log: error, warn, info, debug, trace, or a filter as of tracing's EnvFilter [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// TOML file with any of these settings; flags win over it [default: none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    data: Option<PathBuf>,
    listen: Option<Address>,
    database: Option<String>,
    #[serde(alias = "unix-socket")]
    unix_socket: Option<PathBuf>,
    partitions: Option<u16>,
    #[serde(alias = "buffer-pool")]
    buffer_pool: Option<FileSize>,
    #[serde(alias = "second-level")]
    second_level: Option<PathBuf>,
    #[serde(alias = "second-level-size")]
    second_level_size: Option<FileSize>,
    workers: Option<u16>,
    dispatch: Option<DispatchChoice>,
    #[serde(alias = "synchronous-commit")]
    synchronous_commit: Option<Switch>,
    #[serde(alias = "default-transaction-isolation")]
    default_transaction_isolation: Option<Level>,
    #[serde(alias = "hot-rows")]
    hot_rows: Option<TextOrNumber>,
    #[serde(alias = "checkpoint-interval-s")]
    checkpoint_interval_s: Option<u64>,
    #[serde(alias = "checkpoint-log")]
    checkpoint_log: Option<FileSize>,
    #[serde(alias = "version-spill")]
    version_spill: Option<FileSize>,
    #[serde(alias = "query-memory")]
    query_memory: Option<FileSize>,
    #[serde(alias = "log-segment")]
    log_segment: Option<FileSize>,
    #[serde(alias = "log-buffer")]
    log_buffer: Option<FileSize>,
    replacement: Option<TextOrNumber>,
    #[serde(alias = "io-engine")]
    io_engine: Option<IoEngine>,
    #[serde(alias = "direct-io")]
    direct_io: Option<DirectIo>,
    #[serde(alias = "max-connections")]
    max_connections: Option<usize>,
    #[serde(alias = "startup-timeout-ms")]
    startup_timeout_ms: Option<u64>,
    #[serde(alias = "spin-us")]
    spin_us: Option<u64>,
    metrics: Option<Address>,
    latch: Option<TextOrNumber>,
    #[serde(alias = "latch-spins")]
    latch_spins: Option<TextOrNumber>,
    lockstat: Option<Switch>,
    #[serde(alias = "log-lock-waits")]
    log_lock_waits: Option<TextOrNumber>,
    #[serde(alias = "log-filter")]
    log_filter: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FileSize {
    Bytes(u64),
    Text(String),
}

impl FileSize {
    fn size(self) -> Result<Size, String> {
        match self {
            Self::Bytes(n) => Ok(Size(n)),
            Self::Text(text) => text.parse(),
        }
    }
}

/// The configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Directory of data and log.
    pub data: PathBuf,
    /// Where TCP connections are taken.
    pub listen: SocketAddr,
    /// Name of the database.
    pub database: String,
    /// Directory of the Unix socket.
    pub unix_socket: Option<PathBuf>,
    /// Partitions of a new directory; `None`: what there is, or 4 a core.
    pub partitions: Option<u16>,
    /// Bytes of the buffer pool.
    pub buffer_pool: u64,
    /// Where copies of pages that leave the pool are.
    pub second_level: Option<SecondLevelConfig>,
    /// Worker threads.
    pub workers: u16,
    /// Who runs a partition.
    pub dispatch: DispatchChoice,
    /// Whether COMMIT waits for the disk, unless a session says otherwise.
    pub synchronous_commit: bool,
    /// The isolation level of transactions that ask for none, unless a session says otherwise.
    pub default_transaction_isolation: Isolation,
    /// How transactions share rows that many of them change.
    pub hot_rows: HotRows,
    /// Seconds between checkpoints.
    pub checkpoint_interval_s: u64,
    /// Bytes of log between checkpoints at most, about.
    pub checkpoint_log: u64,
    /// Bytes of the temporary file for old versions of rows, at most; 0: there is none.
    pub version_spill: u64,
    /// Bytes of memory that one statement may take for rows, groups and sort keys.
    pub query_memory: u64,
    /// Bytes of a log segment.
    pub log_segment: u64,
    /// Bytes of the log's buffer.
    pub log_buffer: u64,
    /// How the buffer pool chooses the pages that leave.
    pub replacement: ReplacementKind,
    /// Who reads and writes pages.
    pub io_engine: IoEngine,
    /// Whether pages bypass the operating system's cache.
    pub direct_io: DirectIo,
    /// Connections at most.
    pub max_connections: usize,
    /// Milliseconds that a connection may take to send its startup packet.
    pub startup_timeout_ms: u64,
    /// Microseconds of spinning before sleep.
    pub spin_us: u64,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// By which instructions latches are taken.
    pub latch: LatchChoice,
    /// How often a thread pauses at a held latch before it yields or sleeps.
    pub latch_spins: LatchSpins,
    /// Whether requests and waits for latches and locks are counted.
    pub lockstat: bool,
    /// After which time waits for locks are logged.
    pub log_lock_waits: LogLockWaits,
    /// The log's filter.
    pub log_filter: String,
}

/// Cores that this process may use.
pub fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(256) as u16)
}

impl Config {
    /// Reads the file that the flags name, and lets the flags win.
    pub fn load(flags: Flags) -> Result<Self, String> {
        let Some(path) = flags.config.clone() else { return Self::merge(flags, File::default()) };
        let in_file = |e: String| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|e| in_file(e.to_string()))?;
        Self::parse(flags, &text).map_err(in_file)
    }

    /// Reads a file's text, and lets the flags win.
    pub fn parse(flags: Flags, text: &str) -> Result<Self, String> {
        Self::merge(flags, toml::from_str(text).map_err(|e| e.to_string())?)
    }

    /// The defaults, for a data directory.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 5432)),
            database: "postgres".to_owned(),
            unix_socket: None,
            partitions: None,
            buffer_pool: 128 << 20,
            second_level: None,
            workers: cores(),
            dispatch: DispatchChoice::Baton,
            synchronous_commit: true,
            default_transaction_isolation: Isolation::default(),
            hot_rows: HotRows::default(),
            checkpoint_interval_s: 60,
            checkpoint_log: 1 << 30,
            version_spill: 1 << 30,
            query_memory: (crate::page_io::memory() / 8).max(1 << 20),
            log_segment: 64 << 20,
            log_buffer: 16 << 20,
            replacement: ReplacementKind::default(),
            io_engine: IoEngine::Auto,
            direct_io: DirectIo::Auto,
            max_connections: 10_000,
            startup_timeout_ms: 60_000,
            spin_us: 50,
            metrics: None,
            latch: LatchChoice::Auto,
            latch_spins: LatchSpins::Auto,
            lockstat: true,
            log_lock_waits: LogLockWaits::default(),
            log_filter: "info".to_owned(),
        }
    }

    fn merge(flags: Flags, file: File) -> Result<Self, String> {
        fn told<T: Default + FromStr<Err = String>>(
            key: &str,
            flag: Option<T>,
            file: Option<TextOrNumber>,
        ) -> Result<T, String> {
            match (flag, file) {
                (Some(value), _) => Ok(value),
                (None, Some(value)) => value.parse().map_err(|e| format!("{key}: {e}")),
                (None, None) => Ok(T::default()),
            }
        }
        let size = |flag: Option<Size>, file: Option<FileSize>, key: &str, default: u64| match (flag, file) {
            (Some(s), _) => Ok(s.0),
            (None, Some(s)) => s.size().map(|s| s.0).map_err(|e| format!("{key}: {e}")),
            (None, None) => Ok(default),
        };
        let d = Self::new(flags.data.or(file.data).unwrap_or_else(|| PathBuf::from("./clearway-data")));
        let buffer_pool = size(flags.buffer_pool, file.buffer_pool, "buffer_pool", d.buffer_pool)?;
        let second_level_size = match (flags.second_level_size, file.second_level_size) {
            (None, None) => None,
            (flag, file) => Some(size(flag, file, "second_level_size", 0)?),
        };
        let second_level = match (flags.second_level.or(file.second_level), second_level_size) {
            (Some(dir), size) => {
                Some(SecondLevelConfig { dir, size: size.unwrap_or(buffer_pool.saturating_mul(8).min(1 << 42)) })
            }
            (None, None) => None,
            (None, Some(_)) => return Err("second_level_size needs second_level: in which directory?".to_owned()),
        };
        let config = Self {
            listen: flags.listen.or(file.listen).map_or(d.listen, |address| address.0),
            database: flags.database.or(file.database).unwrap_or(d.database),
            unix_socket: flags.unix_socket.or(file.unix_socket),
            partitions: flags.partitions.or(file.partitions),
            buffer_pool,
            second_level,
            workers: flags.workers.or(file.workers).unwrap_or(d.workers),
            dispatch: flags.dispatch.or(file.dispatch).unwrap_or(d.dispatch),
            synchronous_commit: flags.synchronous_commit.or(file.synchronous_commit) != Some(Switch::Off),
            default_transaction_isolation: flags
                .default_transaction_isolation
                .or(file.default_transaction_isolation)
                .map_or(d.default_transaction_isolation, Isolation::from),
            hot_rows: told("hot_rows", flags.hot_rows, file.hot_rows)?,
            checkpoint_interval_s: flags
                .checkpoint_interval_s
                .or(file.checkpoint_interval_s)
                .unwrap_or(d.checkpoint_interval_s),
            checkpoint_log: size(flags.checkpoint_log, file.checkpoint_log, "checkpoint_log", d.checkpoint_log)?,
            version_spill: size(flags.version_spill, file.version_spill, "version_spill", d.version_spill)?,
            query_memory: size(flags.query_memory, file.query_memory, "query_memory", d.query_memory)?,
            log_segment: size(flags.log_segment, file.log_segment, "log_segment", d.log_segment)?,
            log_buffer: size(flags.log_buffer, file.log_buffer, "log_buffer", d.log_buffer)?,
            replacement: told("replacement", flags.replacement, file.replacement)?,
            io_engine: flags.io_engine.or(file.io_engine).unwrap_or(d.io_engine),
            direct_io: flags.direct_io.or(file.direct_io).unwrap_or(d.direct_io),
            max_connections: flags.max_connections.or(file.max_connections).unwrap_or(d.max_connections),
            startup_timeout_ms: flags.startup_timeout_ms.or(file.startup_timeout_ms).unwrap_or(d.startup_timeout_ms),
            spin_us: flags.spin_us.or(file.spin_us).unwrap_or(d.spin_us),
            metrics: flags.metrics.or(file.metrics).map(|address| address.0),
            latch: told("latch", flags.latch, file.latch)?,
            latch_spins: told("latch_spins", flags.latch_spins, file.latch_spins)?,
            lockstat: flags.lockstat.or(file.lockstat) != Some(Switch::Off),
            log_lock_waits: told("log_lock_waits", flags.log_lock_waits, file.log_lock_waits)?,
            log_filter: flags.log_filter.or(file.log_filter).unwrap_or(d.log_filter),
            data: d.data,
        };
        config.check()
    }

    fn check(self) -> Result<Self, String> {
        let range = |key: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{key} must be between {low} and {high}, not {value}"))
        };
        range("partitions", self.partitions.unwrap_or(1).into(), 1, 1024)?;
        range("workers", self.workers.into(), 1, 256)?;
        range("buffer_pool", self.buffer_pool, 1 << 20, 1 << 44)?;
        range("second_level_size", self.second_level.as_ref().map_or(1 << 20, |second| second.size), 1 << 20, 1 << 42)?;
        range("log_segment", self.log_segment, 1 << 20, 1 << 40)?;
        range("log_buffer", self.log_buffer, 1 << 20, 1 << 36)?;
        range("checkpoint_interval_s", self.checkpoint_interval_s, 1, 86_400)?;
        range("checkpoint_log", self.checkpoint_log, 1 << 20, 1 << 44)?;
        if self.version_spill > 0 {
            range("version_spill", self.version_spill, 1 << 20, 1 << 44)?;
        }
        range("query_memory", self.query_memory, 1 << 20, 1 << 44)?;
        range("max_connections", self.max_connections as u64, 1, 1 << 20)?;
        range("startup_timeout_ms", self.startup_timeout_ms, 10, 600_000)?;
        range("spin_us", self.spin_us, 0, 10_000)?;
        if !self.log_segment.is_multiple_of(4096) {
            return Err("log_segment must be a multiple of 4KiB".to_owned());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
