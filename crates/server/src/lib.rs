//! The Clearway server: workers, sessions and configuration.
//!
//! [`Server::start`] opens the engine, starts one thread per worker and listens. [`Server::stop`]
//! stops everything in order.
//!
//! Must not know: how a statement is parsed, planned or executed.

#![forbid(unsafe_code)]

mod activity;
pub mod backup;
pub mod check;
pub mod cli;
mod client;
pub mod config;
mod connections;
mod control;
mod counters;
mod descriptors;
mod doorbell;
pub mod exit;
mod group_commit;
mod io;
pub mod latches;
mod latency;
mod locks;
mod long_waits;
mod memory;
pub mod metrics;
mod net;
pub mod output;
mod page_io;
mod plans;
mod polling;
pub mod serve;
mod session;
mod sessions;
mod settings;
mod shared;
mod site;
mod socket_file;
mod timers;
pub mod top;
mod turn_clock;
mod worker;

pub use config::Config;

use activity::Observed;
use clearway_coordinator::{Engine, EngineConfig, Limits, NodeConfig, Waker, caught};
use clearway_env::{Clock, Disk, OsClock, OsEntropy};
use clearway_latch::lockstat;
use config::{DirectIo, IoEngine};
use doorbell::{Doorbell, EventLoop};
use exit::{ExitCode, ExitFailure};
use latches::Latches;
use metrics::Endpoint;
use net::Listener;
use page_io::PageIo;
use shared::Shared;
use socket_file::SocketFile;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

/// A worker's stack, in bytes. Expressions are walked recursively, as deep as the planner allows.
/// Only touched pages take memory.
const WORKER_STACK: usize = 16 << 20;

/// Partitions per core in a new data directory.
const PARTITIONS_PER_CORE: u16 = 4;

/// The parts of the environment that a test can replace.
pub struct World {
    /// The disk for data and log.
    pub disk: Arc<dyn Disk>,
    /// The clock behind now(). Deadlines use the system's monotonic clock.
    pub clock: Arc<dyn Clock>,
}

/// A running server.
pub struct Server {
    engine: Arc<Engine>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    address: SocketAddr,
    socket: Option<SocketFile>,
    metrics: Option<Endpoint>,
    /// True if this start created the data directory.
    fresh: bool,
}

fn cannot(what: impl Display) -> impl FnOnce(std::io::Error) -> ExitFailure {
    move |e| ExitFailure::new(ExitCode::Other, format!("cannot {what}: {e}"))
}

impl Server {
    /// Opens the data directory and serves it. An error says in one line what failed.
    pub fn start(mut config: Config) -> Result<Self, ExitFailure> {
        let page_io = PageIo::choose(&mut config)?;
        let world = World { disk: page_io.disk.clone(), clock: Arc::new(OsClock) };
        let server = Self::start_in(world, config)?;
        tracing::info!("{}", page_io.describe(&server.engine.registered()));
        Ok(server)
    }

    /// Like [`Server::start`], with the caller's disk and clock. Pages are read by threads unless
    /// the configuration asks for io_uring.
    ///
    /// # Errors
    /// Like [`Server::start`].
    pub fn start_in(world: World, mut config: Config) -> Result<Self, ExitFailure> {
        descriptors::raise_limit();
        check_memory(&config)?;
        let latches = Latches::set_up(config.latch, config.latch_spins);
        lockstat::set_counting(config.lockstat);
        let mut polls = Vec::new();
        let mut bells = Vec::new();
        for _ in 0..config.workers {
            let poll = mio::Poll::new().map_err(cannot("create an event loop"))?;
            let waker =
                mio::Waker::new(poll.registry(), worker::BELL).map_err(cannot("create a waker"))?;
            bells.push(Arc::new(Doorbell::new(EventLoop(waker))));
            polls.push(poll);
        }
        let (mut listeners, address, socket) = listen(&config)?;
        let metrics = config.metrics.map(listen_for_metrics).transpose()?;
        // If this fails, opening the directory reports why.
        let fresh = world.disk.exists(&config.data.join("control")).is_ok_and(|there| !there);
        let engine = open_engine(world.disk.clone(), &config, fresh, &bells)?;
        config.max_connections = descriptors::fit(config.max_connections)?;
        match control::listen(&config.data) {
            Ok(listener) => listeners.push(Listener::Control(listener)),
            Err(e) => {
                tracing::warn!("no control socket, so the running server cannot be backed up: {e}")
            }
        }
        let shared =
            Arc::new(Shared::new(config, latches, world.clock, Arc::new(OsEntropy), bells));
        let observed = Observed::new(&shared, &engine, world.disk);
        engine.set_system(Box::new(observed.clone()));
        let mut threads = Vec::new();
        let mut listeners = Some(listeners);
        for (id, poll) in polls.into_iter().enumerate() {
            let (shared, engine) = (shared.clone(), engine.clone());
            let listeners = listeners.take().unwrap_or_default();
            let name = format!("worker-{id}");
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .stack_size(WORKER_STACK)
                .spawn(move || {
                    engine.watch(&name, || {
                        match Worker::new(id as u16, shared, &engine, poll, listeners) {
                            Ok(worker) => worker.run(),
                            Err(e) => tracing::error!("worker {id} cannot start: {e}"),
                        }
                    });
                });
            threads.push(thread.map_err(cannot("start a thread"))?);
        }
        let serve = |listener| Endpoint::start(listener, shared.clone(), engine.clone(), observed);
        let metrics = metrics.map(serve).transpose();
        let metrics = metrics.map_err(cannot("serve metrics"))?;
        tracing::info!("{}", shared.latches.describe());
        tracing::info!(
            "no authentication: every connection is accepted as any user, without a password"
        );
        Ok(Self { engine, shared, threads, address, socket, metrics, fresh })
    }

    /// Returns the address that accepts TCP connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address that serves metrics, if any.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Endpoint::address)
    }

    /// Returns the line to print when the server is ready.
    pub fn banner(&self) -> String {
        let config = &self.shared.config;
        let recovery = match self.fresh {
            true => "a new data directory".to_owned(),
            false => format!("recovery took {} ms", self.engine.report().took.as_millis()),
        };
        let socket = self
            .socket
            .as_ref()
            .map_or_else(String::new, |s| format!(" and {}", s.path().display()));
        let metrics = self
            .metrics_address()
            .map_or_else(String::new, |a| format!(", metrics on http://{a}/metrics"));
        format!(
            "clearway {} listens on {}{socket}: {} partitions, buffer pool {} MiB, {recovery}{metrics}",
            env!("CARGO_PKG_VERSION"),
            self.address,
            self.engine.partitions(),
            config.buffer_pool >> 20,
        )
    }

    /// Returns the reason why nothing can be committed any more, if there is one. The process must
    /// then end.
    pub fn failed(&self) -> Option<String> {
        // The engine's failure first: it may be why a worker ended.
        let ended = || {
            self.threads
                .iter()
                .any(JoinHandle::is_finished)
                .then(|| "a worker thread ended".to_owned())
        };
        self.engine.failed().or_else(ended)
    }

    /// Stops accepting, ends the sessions, aborts running transactions and writes a checkpoint.
    ///
    /// # Errors
    /// Says why there is no checkpoint; the next start recovers from the log.
    pub fn stop(self) -> Result<(), String> {
        drop(self.socket);
        if let Err(e) = control::remove(&self.shared.config.data) {
            tracing::warn!("cannot remove the control socket: {e}");
        }
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        self.shared.stop();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        self.engine.shutdown()
    }
}

/// Checks that the operating system would grant the configured memory. If it refused an allocation
/// later, the process would end.
fn check_memory(config: &Config) -> Result<(), ExitFailure> {
    // A frame and its table entries take a few hundred bytes more.
    let wanted = (config.buffer_pool + config.buffer_pool / 64).saturating_add(config.log_buffer);
    let granted = usize::try_from(wanted)
        .is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if granted {
        return Ok(());
    }
    let message = format!(
        "the system refuses to allocate {} MiB for a buffer pool of {} MiB and a log buffer of {} MiB",
        wanted >> 20,
        config.buffer_pool >> 20,
        config.log_buffer >> 20
    );
    let hint = "Choose a smaller --buffer-pool, for example half of the machine's memory.";
    Err(ExitFailure { hint: Some(hint), ..ExitFailure::new(ExitCode::Usage, message) })
}

fn open_engine(
    disk: Arc<dyn Disk>,
    config: &Config,
    fresh: bool,
    bells: &[Arc<Doorbell>],
) -> Result<Arc<Engine>, ExitFailure> {
    let wakers = bells.iter().map(|bell| {
        let bell = bell.clone();
        Arc::new(move || bell.ring()) as Waker
    });
    let partitions = config.partitions.or(fresh.then(|| config::cores() * PARTITIONS_PER_CORE));
    let engine_config = EngineConfig {
        node: NodeConfig {
            partitions,
            frames: (config.buffer_pool / 8192) as u32,
            wal_segment_size: config.log_segment,
            wal_buffer_size: config.log_buffer as usize,
            replacement: config.replacement,
            second_level: config.second_level(),
            version_spill: config.version_spill,
            io_ring: config.io_engine == IoEngine::Uring,
            // Buffered I/O copies pages. Only direct I/O makes the kernel pin their memory, so only
            // then does registering it pay.
            io_registered: config.direct_io == DirectIo::On,
            ..NodeConfig::default()
        },
        partition: Limits {
            increments: config.hot_rows.increments,
            retire: config.hot_rows.retire,
            scheme: config.scheme,
            ..Limits::default()
        },
        checkpoint_interval: Duration::from_secs(config.checkpoint_interval_s),
        checkpoint_log: config.checkpoint_log,
        ..EngineConfig::default()
    };
    let doing = format!("cannot open {}", config.data.display());
    match caught(|| Engine::open(disk, &config.data, engine_config, wakers.collect())) {
        Ok(opened) => opened.map_err(|e| ExitFailure::open(format!("{doing}: {e}"), e.kind())),
        // The process ends: nobody uses the partly opened engine.
        Err(message) => Err(ExitFailure::panicked(&doing, &message)),
    }
}

fn listen(config: &Config) -> Result<(Vec<Listener>, SocketAddr, Option<SocketFile>), ExitFailure> {
    let cannot = |what: &dyn Display| {
        let what = format!("cannot {what}");
        move |e: std::io::Error| ExitFailure::new(ExitCode::Listen, format!("{what}: {e}"))
    };
    warn_beyond_loopback(config.listen, "read and change everything");
    let what = format!("listen on {}", config.listen);
    let tcp = mio::net::TcpListener::bind(config.listen).map_err(cannot(&what))?;
    let address = tcp.local_addr().map_err(cannot(&what))?;
    net::lengthen_backlog(&tcp).map_err(cannot(&what))?;
    let mut listeners = vec![Listener::Tcp(tcp)];
    let mut socket = None;
    if let Some(dir) = &config.unix_socket {
        let path = dir.join(format!(".s.PGSQL.{}", address.port()));
        let what = format!("listen on {}", path.display());
        let (unix, file) = SocketFile::listen(path).map_err(|e| {
            let in_use = e.kind() == std::io::ErrorKind::AddrInUse;
            let hint = in_use.then_some("Choose another --unix-socket or another port.");
            ExitFailure { hint, ..cannot(&what)(e) }
        })?;
        net::lengthen_backlog(&unix).map_err(cannot(&what))?;
        listeners.push(Listener::Unix(unix));
        socket = Some(file);
    }
    Ok((listeners, address, socket))
}

fn listen_for_metrics(address: SocketAddr) -> Result<mio::net::TcpListener, ExitFailure> {
    warn_beyond_loopback(address, "see what the server does");
    let refused = |e| {
        ExitFailure::new(ExitCode::Listen, format!("cannot listen for metrics on {address}: {e}"))
    };
    mio::net::TcpListener::bind(address).map_err(refused)
}

fn warn_beyond_loopback(address: SocketAddr, what: &str) {
    if !address.ip().is_loopback() {
        tracing::warn!(
            "listening on {address}: there is no TLS and no authentication yet, so anyone who can reach it can {what}"
        );
    }
}
