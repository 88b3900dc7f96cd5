//! The software adapter: one thread per node.

use super::frame::{self, SendStatus, TcpFrame};
use super::handshake::{self, HELLO_BYTES, Hello, NONCE_BYTES, Nonce, PROOF_BYTES, Role, WELCOME};
use super::mailbox::{Mail, Mailbox};
use super::memory::RegionServer;
use super::node::NodeState;
use super::peer::Peer;
use super::{MAX_UNPROVEN, QUEUE_DEPTH};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Event numbers that do not belong to a connection.
const LISTENER: u64 = 0;
const BELL: u64 = 1;
const FIRST_PEER: u64 = 2;

/// Bytes read from a connection at a time.
const READ_BYTES: usize = 1 << 16;
/// Events fetched at a time.
const EVENTS: usize = 64;
/// How long the adapter accepts no connections after a shortage of descriptors or memory. The
/// waiting connection would otherwise wake it again at once.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The epoll instance that watches all connections.
#[derive(Clone)]
pub(super) struct Watch(Arc<OwnedFd>);

impl Watch {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)))
    }

    pub fn add(&self, stream: &TcpStream, id: u64) -> io::Result<()> {
        Ok(epoll::add(&*self.0, stream, EventData::new_u64(id), EventFlags::IN)?)
    }

    /// Sets whether to wait for room in the peer's socket and whether for requests.
    pub fn change(&self, peer: &Peer, room: bool, requests: bool) {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::OUT, room);
        flags.set(EventFlags::IN, requests);
        // Fails only if the connection has been forgotten.
        let _ = epoll::modify(&*self.0, &peer.stream, EventData::new_u64(peer.id), flags);
    }
}

/// Stops the adapter's thread.
#[derive(Clone)]
pub(super) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

enum Phase {
    Hello,
    Proof(Box<(Hello, Nonce)>),
    Member { mailbox: Arc<Mailbox>, port: u32 },
}

struct Connection {
    peer: Arc<Peer>,
    phase: Phase,
    input: Vec<u8>,
    server: RegionServer,
    /// A verb was refused; later requests are not executed.
    refused: bool,
}

/// The thread's state.
pub(super) struct Adapter {
    node: Arc<NodeState>,
    listener: TcpListener,
    watch: Watch,
    connections: BTreeMap<u64, Connection>,
    next_id: u64,
    output: Vec<u8>,
    /// Accepts no connections for [`PAUSE`].
    paused: bool,
}

impl Adapter {
    pub fn new(node: Arc<NodeState>, listener: TcpListener) -> io::Result<(Self, Bell)> {
        listener.set_nonblocking(true)?;
        let watch = Watch::new()?;
        let bell = Bell(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        epoll::add(&*watch.0, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&*watch.0, &*bell.0, EventData::new_u64(BELL), EventFlags::IN)?;
        let (connections, next_id, output) = (BTreeMap::new(), FIRST_PEER, Vec::new());
        Ok((Self { node, listener, watch, connections, next_id, output, paused: false }, bell))
    }

    /// Serves until the bell rings.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut bytes = vec![0; READ_BYTES];
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&*self.watch.0, room, self.paused.then_some(&PAUSE)) {
                // Other events end the pause early, but at most as often as they occur.
                Ok(_) if self.paused => self.pause(false),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Only an invalid descriptor fails here, and the thread owns this one.
                Err(why) => unreachable!("epoll: {why}"),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    BELL => return,
                    id => self.ready(id, event.flags, &mut bytes),
                }
            }
        }
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(why) if is_shortage(&why) => return self.pause(true),
                // No more connections, or one ended before it was accepted.
                Err(_) => return,
            };
            let id = self.next_id;
            let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            let set_up = set_up.and_then(|()| handshake::watch_peer(&stream));
            if set_up.and_then(|()| self.watch.add(&stream, id)).is_err() {
                continue;
            }
            self.next_id += 1;
            let peer = Arc::new(Peer::new(id, stream, self.watch.clone()));
            let (input, server) = (Vec::new(), RegionServer::default());
            self.connections.insert(
                id,
                Connection { peer, phase: Phase::Hello, input, server, refused: false },
            );
            self.limit_unproven();
        }
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
        let flags = if paused { EventFlags::empty() } else { EventFlags::IN };
        // Fails only for an invalid descriptor, and the thread owns both.
        let _ = epoll::modify(&*self.watch.0, &self.listener, EventData::new_u64(LISTENER), flags);
    }

    fn limit_unproven(&mut self) {
        let unproven =
            self.connections.iter().filter(|(_, c)| !matches!(c.phase, Phase::Member { .. }));
        let unproven: Vec<u64> = unproven.map(|(id, _)| *id).collect();
        if unproven.len() > MAX_UNPROVEN {
            self.forget(unproven[0]);
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let _ = epoll::delete(&*self.watch.0, &connection.peer.stream);
        connection.peer.close();
        if let Phase::Member { mailbox, port } = connection.phase {
            mailbox.end(id);
            self.node.forget_unowned(port, mailbox);
        }
    }

    fn ready(&mut self, id: u64, flags: EventFlags, bytes: &mut [u8]) {
        // The connection may have been forgotten earlier in this batch of events.
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if flags.contains(EventFlags::OUT) {
            connection.peer.flush();
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            match (&connection.peer.stream).read(bytes) {
                Ok(0) => return self.forget(id),
                Ok(count) => connection.input.extend_from_slice(&bytes[..count]),
                Err(why)
                    if matches!(
                        why.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) => {}
                Err(_) => return self.forget(id),
            }
        }
        if connection.work(&self.node, &mut self.output).is_err() {
            self.forget(id);
        }
    }
}

/// Returns true if a connection waits that cannot be accepted now.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// The connection must be closed.
struct Close;

impl Connection {
    /// Handles all complete frames that have been read.
    fn work(&mut self, node: &NodeState, output: &mut Vec<u8>) -> Result<(), Close> {
        while !matches!(self.phase, Phase::Member { .. }) {
            if !self.shake_hands(node)? {
                return Ok(());
            }
        }
        if self.peer.is_clogged() {
            return Ok(());
        }
        let mut done = 0;
        let input = std::mem::take(&mut self.input);
        output.clear();
        let mut result = Ok(());
        while let Some((request, length)) = frame::decode(&input[done..]).map_err(|_| Close)? {
            done += length;
            result = self.serve(node, request, output);
            if result.is_err()
                || (output.len() > super::HIGH_WATER / 2 && self.send_and_is_clogged(output))
            {
                break;
            }
        }
        if !output.is_empty() {
            self.peer.send(output);
        }
        self.input = input;
        self.input.drain(..done);
        result
    }

    fn send_and_is_clogged(&self, output: &mut Vec<u8>) -> bool {
        self.peer.send(output);
        output.clear();
        self.peer.is_clogged()
    }

    /// Performs one step of the handshake. Returns false if bytes are missing.
    fn shake_hands(&mut self, node: &NodeState) -> Result<bool, Close> {
        match &self.phase {
            Phase::Hello => {
                let Some((hello, rest)) = self.input.split_first_chunk::<HELLO_BYTES>() else {
                    return Ok(false);
                };
                let (hello, nonce, rest) = (*hello, handshake::nonce(), rest.to_vec());
                let (_, to) = handshake::addresses(&hello).ok_or(Close)?;
                if to.node != node.node {
                    return Err(Close);
                }
                let mut answer = [0; NONCE_BYTES + PROOF_BYTES];
                answer[..NONCE_BYTES].copy_from_slice(&nonce);
                answer[NONCE_BYTES..].copy_from_slice(&handshake::proof(
                    &node.secret,
                    Role::Accept,
                    &hello,
                    &nonce,
                ));
                self.peer.send(&answer);
                self.input = rest;
                self.phase = Phase::Proof(Box::new((hello, nonce)));
            }
            Phase::Proof(seen) => {
                let (hello, nonce) = &**seen;
                let Some((proof, rest)) = self.input.split_first_chunk::<PROOF_BYTES>() else {
                    return Ok(false);
                };
                if !handshake::is_proven(&node.secret, Role::Connect, hello, nonce, proof) {
                    return Err(Close);
                }
                let (from, to) = handshake::addresses(hello).ok_or(Close)?;
                let rest = rest.to_vec();
                // Announce before the welcome, so that a worker finds the connection when it polls
                // after its peer has connected.
                let mailbox = node.announce(&self.peer, from, to).map_err(|_| Close)?;
                self.peer.send(&[WELCOME]);
                self.input = rest;
                self.phase = Phase::Member { mailbox, port: to.port };
            }
            Phase::Member { .. } => {}
        }
        Ok(true)
    }

    fn serve(
        &mut self,
        node: &NodeState,
        request: TcpFrame<'_>,
        output: &mut Vec<u8>,
    ) -> Result<(), Close> {
        if self.refused {
            return Ok(());
        }
        match request {
            TcpFrame::Read { .. }
            | TcpFrame::Write { .. }
            | TcpFrame::Cas { .. }
            | TcpFrame::Faa { .. } => {
                if !self.server.serve(&node.regions, request, output) {
                    frame::refused(output);
                    self.refused = true;
                    // A worker that is gone need not know; the same applies below.
                    let _ = self.mail(Mail::Closed(self.peer.id));
                }
            }
            TcpFrame::Send(words) => {
                if self.peer.count_message() > QUEUE_DEPTH {
                    return Err(Close);
                }
                if self.mail(Mail::Message(self.peer.id, words.values().collect())).is_err() {
                    self.peer.message_ended();
                    frame::send_done(output, SendStatus::Gone);
                }
            }
            TcpFrame::SendDone(status) => {
                if !self.peer.send_ended() {
                    return Err(Close);
                }
                let _ = self.mail(Mail::SendDone(self.peer.id, status));
            }
            // Replies to requests that this side never sends.
            _ => return Err(Close),
        }
        Ok(())
    }

    /// Puts mail into the mailbox of the connection's worker. Returns it if the worker is gone.
    fn mail(&self, mail: Mail) -> Result<(), Mail> {
        match &self.phase {
            Phase::Member { mailbox, .. } => mailbox.push(mail),
            _ => Err(mail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FabricNode;
    use rustix::io::Errno;

    #[test]
    fn only_a_shortage_pauses() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(is_shortage(&errno.into()), "{errno}");
        }
        for errno in [Errno::AGAIN, Errno::CONNABORTED, Errno::INTR, Errno::PROTO] {
            assert!(!is_shortage(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn paused_adapter_is_not_woken_by_a_waiting_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let secret = b"sixteen bytes or more".to_vec();
        let node = Arc::new(NodeState::new(FabricNode(0), secret, address));
        let (mut adapter, bell) = Adapter::new(node, listener).unwrap();
        let _waiting = TcpStream::connect(address).unwrap();
        let woken = |adapter: &Adapter| {
            let (mut events, now) = (Vec::with_capacity(4), Timespec { tv_sec: 0, tv_nsec: 0 });
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&*adapter.watch.0, room, Some(&now)).unwrap();
            events.iter().map(|event| event.data.u64()).collect::<Vec<_>>()
        };
        adapter.pause(true);
        assert_eq!(woken(&adapter), []);
        adapter.pause(false);
        assert_eq!(woken(&adapter), [LISTENER]);
        adapter.accept();
        assert_eq!((adapter.connections.len(), adapter.paused), (1, false));
        bell.ring();
        assert_eq!(woken(&adapter), [BELL]);
    }
}
