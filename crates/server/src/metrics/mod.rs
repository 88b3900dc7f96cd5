//! The metrics endpoint: `GET /metrics` over HTTP in Prometheus' text format, served by its own
//! thread.
//!
//! Invariants
//! 1. Workers do nothing for it: the endpoint's thread produces the page from counters that workers
//!    keep anyway.
//! 2. At most [`MAX_CONNECTIONS`] are open; further ones are closed at once.
//! 3. A connection is closed after [`MAX_LIFETIME`], whatever its client does.
//!
//! Locking: none of its own. A crash leaves nothing.

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

/// Maximum number of open connections.
pub const MAX_CONNECTIONS: usize = 16;
/// Maximum lifetime of a connection.
pub const MAX_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum number of bytes read and discarded after the request before the connection is closed.
const MAX_REST: usize = 64 << 10;
/// Pause of accepting after an error, such as too many open files.
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
    /// Serves the metrics on a listener.
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

    /// Like [`Endpoint::start`], for a page from `page`. A panic of `page`, or of anything else in
    /// the thread, fails the engine: it may have left one of the engine's latches held.
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

    /// Returns the address of the listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the thread and closes its connections.
    pub(crate) fn stop(self) {
        // Release: pairs with the Acquire in `start_with`'s thread; the waker makes it check.
        self.stop.store(true, Ordering::Release);
        let woken = self.waker.wake();
        if woken.is_err() || self.thread.join().is_err() {
            tracing::error!("the metrics thread did not end cleanly");
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
    /// Waits for events and handles them. Returns false if the event loop has failed.
    fn turn(&mut self) -> bool {
        let mut events = Events::with_capacity(MAX_CONNECTIONS + 2);
        let next = self.connections.iter().map(|(_, c)| c.until).chain(self.accept_after).min();
        let wait = next
            .map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_micros(999));
        match self.poll.poll(&mut events, wait) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                tracing::error!("the metrics endpoint stops: its event loop failed: {e}");
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
                    tracing::warn!("cannot accept a connection for metrics: {e}");
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
                until: Instant::now() + MAX_LIFETIME,
            });
            self.drive(at);
        }
    }

    fn drive(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        match connection.advance(&self.page) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Finished, or the client is gone. Closing also deregisters the socket.
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
    /// The part of the request that has arrived.
    Request(Vec<u8>),
    /// The answer, and how many of its bytes have been sent.
    Answer(Vec<u8>, usize),
    /// The answer has been sent. Counts the bytes that the client still sends: they are read and
    /// discarded, since closing earlier could reset the connection before the answer arrives.
    Drain(usize),
}

impl Connection {
    /// Proceeds as far as possible. Returns `WouldBlock` if it must wait, otherwise the connection
    /// is finished.
    fn advance(&mut self, page: impl Fn() -> String) -> io::Result<()> {
        let mut chunk = [0; 2048];
        loop {
            match &mut self.state {
                State::Request(received) => {
                    let n = progress(retry(|| self.stream.read(&mut chunk))?)?;
                    received.extend_from_slice(&chunk[..n]);
                    if let Some(answer) = http::answer(received, &page) {
                        self.state = State::Answer(answer, 0);
                    }
                }
                State::Answer(answer, sent) if *sent < answer.len() => {
                    *sent += progress(retry(|| self.stream.write(&answer[*sent..]))?)?;
                }
                State::Answer(..) => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = State::Drain(0);
                }
                State::Drain(rest) if *rest >= MAX_REST => return Ok(()),
                State::Drain(rest) => *rest += progress(retry(|| self.stream.read(&mut chunk))?)?,
            }
        }
    }
}

/// Returns an error if no byte was transferred: the other side has closed.
fn progress(n: usize) -> io::Result<usize> {
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
    use clearway_testkit::MemDisk;
    use std::path::Path;

    /// As for a panic of any other thread that reads the engine, the process ends with the message.
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
        // The connection ends or is reset.
        let ended = client.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{ended:?}");
        endpoint.stop();
        let expected = "thread metrics panicked: planted in the page".to_owned();
        assert_eq!(engine.failed(), Some(expected.clone()));
        assert_eq!(engine.shutdown(), Err(expected), "no last checkpoint");
    }
}
