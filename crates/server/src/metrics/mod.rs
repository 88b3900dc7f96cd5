//! The metrics endpoint: `GET /metrics` over HTTP, in Prometheus' text format, by a thread of its
//! own.
//!
//! Invariants
//! 1. No worker does anything for it: the page is made in the endpoint's thread from counters that
//!    workers keep anyway.
//! 2. There are at most [`MAX_CONNECTIONS`] at a time; a further one is closed at once.
//! 3. A connection is closed after [`PATIENCE`], whatever its client does or leaves.
//!
//! Locking: none. A crash leaves nothing.

pub mod http;
mod text;

use crate::activity::Observed;
use crate::shared::Shared;
use clearway_coordinator::Engine;
use clearway_latch::lockstat;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time.
pub const MAX_CONNECTIONS: usize = 16;
/// How long a connection lasts at most.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes behind the request that are read before a connection is closed all the same.
const MAX_REST: usize = 64 << 10;
/// How long nothing is accepted after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(usize::MAX);
const STOP: Token = Token(usize::MAX - 1);

/// The endpoint and its thread.
pub(crate) struct Endpoint {
    address: SocketAddr,
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl Endpoint {
    /// Serves the metrics on this listener.
    pub(crate) fn start(
        listener: TcpListener,
        shared: Arc<Shared>,
        engine: Arc<Engine>,
        observed: Observed,
    ) -> io::Result<Self> {
        let page =
            move || text::page(&observed.activity(), &shared.latches, &lockstat::contention());
        Self::start_with(listener, engine, page)
    }

    /// A panic of `page`, or of anything else in the thread, fails the engine: it may have left a
    /// latch of the engine's held.
    fn start_with(
        mut listener: TcpListener,
        engine: Arc<Engine>,
        page: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let mut server =
            Server { poll, listener, connections: Slab::new(), accept_after: None, page };
        // Acquire: pairs with the Release in `stop`.
        let serve = move || while server.turn() && !stopping.load(Ordering::Acquire) {};
        let run = move || engine.watch("metrics", serve);
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(run)?;
        Ok(Self { address, thread, stop, waker })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the thread, and the connections with it.
    pub(crate) fn stop(self) {
        // Release: pairs with the Acquire in the thread, which the waker makes look.
        self.stop.store(true, Ordering::Release);
        let woken = self.waker.wake();
        if woken.is_err() || self.thread.join().is_err() {
            tracing::error!("the metrics' thread has not ended well");
        }
    }
}

struct Server<F> {
    poll: Poll,
    listener: TcpListener,
    connections: Slab<Connection>,
    accept_after: Option<Instant>,
    page: F,
}

impl<F: Fn() -> String> Server<F> {
    /// Waits for news and attends to it; false if there can be no more.
    fn turn(&mut self) -> bool {
        let mut events = Events::with_capacity(MAX_CONNECTIONS + 2);
        let next = self.connections.iter().map(|(_, c)| c.until).chain(self.accept_after).min();
        let wait = next
            .map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_micros(999));
        match self.poll.poll(&mut events, wait) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                tracing::error!("no more metrics: their event loop fails: {e}");
                return false;
            }
            _ => {}
        }
        for event in &events {
            match event.token() {
                LISTENER => self.accept(),
                STOP => {}
                Token(at) => self.drive(at),
            }
        }
        let now = Instant::now();
        self.connections.retain(|_, connection| connection.until > now);
        if self.accept_after.is_some_and(|at| at <= now) {
            self.accept_after = None;
            self.accept();
        }
        true
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.open(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) => {
                    tracing::warn!("a connection for metrics could not be accepted: {e}");
                    self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn open(&mut self, mut stream: TcpStream) {
        if self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        let entry = self.connections.vacant_entry();
        let at = entry.key();
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, Token(at), both).is_ok() {
            entry.insert(Connection {
                stream,
                state: State::Request(Vec::new()),
                until: Instant::now() + PATIENCE,
            });
            self.drive(at);
        }
    }

    fn drive(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        match connection.advance(&self.page) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Over, or the client is gone. Closing takes it out of the event loop, too.
            _ => drop(self.connections.remove(at)),
        }
    }
}

struct Connection {
    stream: TcpStream,
    state: State,
    until: Instant,
}

enum State {
    /// The request, as far as it has come.
    Request(Vec<u8>),
    /// The answer, and how much of it has gone.
    Answer(Vec<u8>, usize),
    /// All has been said: what the client still sends, so many bytes up to now, is read, since
    /// closing before that could take the answer from it.
    Said(usize),
}

impl Connection {
    /// Goes on as far as possible: `WouldBlock` if there is more to come, else it is over.
    fn advance(&mut self, page: impl Fn() -> String) -> io::Result<()> {
        let mut chunk = [0; 2048];
        loop {
            match &mut self.state {
                State::Request(received) => {
                    let n = some(retry(|| self.stream.read(&mut chunk))?)?;
                    received.extend_from_slice(&chunk[..n]);
                    if let Some(answer) = http::answer(received, &page) {
                        self.state = State::Answer(answer, 0);
                    }
                }
                State::Answer(answer, sent) if *sent < answer.len() => {
                    *sent += some(retry(|| self.stream.write(&answer[*sent..]))?)?;
                }
                State::Answer(..) => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = State::Said(0);
                }
                State::Said(rest) if *rest >= MAX_REST => return Ok(()),
                State::Said(rest) => *rest += some(retry(|| self.stream.read(&mut chunk))?)?,
            }
        }
    }
}

/// An error if nothing was moved: the other side has closed.
fn some(n: usize) -> io::Result<usize> {
    if n == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(n) }
}

fn retry(mut f: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_coordinator::{EngineConfig, NodeConfig};
    use clearway_env::MemDisk;
    use std::path::Path;

    /// As a panic of any other thread that looks into the engine: the process ends with its
    /// message.
    #[test]
    fn panic_of_the_metrics_thread_fails_the_engine() {
        let node = NodeConfig {
            partitions: Some(1),
            frames: 64,
            wal_segment_size: 1 << 20,
            ..NodeConfig::default()
        };
        let config = EngineConfig { node, ..EngineConfig::default() };
        let disk = MemDisk::new();
        let engine =
            Engine::open(Arc::new(disk.clone()), Path::new("/data"), config, Vec::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoint =
            Endpoint::start_with(listener, engine.clone(), || panic!("planted in the page"))
                .unwrap();
        let mut client = std::net::TcpStream::connect(endpoint.address()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // It ends or is reset.
        let ended = client.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{ended:?}");
        endpoint.stop();
        let expected = "thread metrics panicked: planted in the page".to_owned();
        assert_eq!(engine.failed(), Some(expected.clone()));
        assert_eq!(engine.shutdown(), Err(expected), "no last checkpoint");
    }
}
