//! Plain TCP: the baseline without a fabric.
//!
//! A message is its number of words in 4 bytes, followed by the words, little-endian. Peers are not
//! authenticated: use this only for experiments on trusted networks.

use super::link::{Incoming, Link};
use crate::RemoteError;
use clearway_fabric::FabricError;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The longest time that [`TcpLink::wait`] blocks.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Bytes read at a time.
const CHUNK: usize = 1 << 16;

struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes that the system has not accepted yet; bounded by the requests that a peer may have in
    /// flight.
    output: Vec<u8>,
    gone: bool,
}

/// Messages over TCP connections.
pub struct TcpLink {
    listener: Option<TcpListener>,
    peers: Vec<Peer>,
    max_peers: usize,
    message_words: usize,
}

impl TcpLink {
    /// Creates a link without a listener, which only connects.
    pub fn new(message_words: usize) -> Self {
        Self { listener: None, peers: Vec::new(), max_peers: 0, message_words }
    }

    /// Creates a link that accepts at most `max_peers`.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if the address cannot be used.
    pub fn listen(
        address: SocketAddr,
        max_peers: usize,
        message_words: usize,
    ) -> Result<Self, RemoteError> {
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener: Some(listener), max_peers, ..Self::new(message_words) })
    }

    /// Returns the listener's address.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if there is no listener.
    pub fn address(&self) -> Result<SocketAddr, RemoteError> {
        let listener =
            self.listener.as_ref().ok_or(RemoteError::Fabric(FabricError::UnknownPeer))?;
        listener.local_addr().map_err(failed)
    }

    /// Connects to the next peer.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if it cannot be reached.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<(), RemoteError> {
        let stream = TcpStream::connect(peer).map_err(failed)?;
        self.add(stream)
    }

    /// Waits for a bounded time until something may have arrived or can be sent.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if the system call fails.
    pub fn wait(&self) -> Result<(), RemoteError> {
        let listener = self.listener.iter().map(|listener| PollFd::new(listener, PollFlags::IN));
        let peers = self.peers.iter().filter(|peer| !peer.gone).map(|peer| {
            let room = if peer.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&peer.stream, PollFlags::IN | room)
        });
        let mut watched: Vec<PollFd<'_>> = listener.chain(peers).collect();
        match rustix::event::poll(&mut watched, Some(&WAIT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(failed(why.into())),
        }
    }

    fn add(&mut self, stream: TcpStream) -> Result<(), RemoteError> {
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
        self.peers.push(Peer { stream, input: Vec::new(), output: Vec::new(), gone: false });
        Ok(())
    }

    fn accept(&mut self) -> Result<(), RemoteError> {
        while self.peers.len() < self.max_peers
            && let Some(listener) = &self.listener
        {
            match listener.accept() {
                Ok((stream, _)) => self.add(stream)?,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The peer closed the connection before it was accepted.
                Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(failed(why)),
            }
        }
        Ok(())
    }
}

impl Peer {
    /// Sends as much as the system accepts. Returns false if the connection is broken.
    fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return false,
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return true,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads what is available. Returns false if the connection has ended.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return true,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Extracts whole messages. Returns false if one is too long.
    fn take_messages(&mut self, most_words: usize, mut found: impl FnMut(Vec<u64>)) -> bool {
        let mut taken = 0;
        while let Some((length, rest)) = self.input[taken..].split_first_chunk::<4>() {
            let words = u32::from_le_bytes(*length) as usize;
            if words > most_words {
                return false;
            }
            let Some(bytes) = rest.get(..words * 8) else { break };
            found(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect());
            taken += 4 + words * 8;
        }
        self.input.drain(..taken);
        true
    }
}

impl Link for TcpLink {
    fn send(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError> {
        let to = &mut self.peers[peer];
        if !to.gone {
            to.output.extend_from_slice(&(words.len() as u32).to_le_bytes());
            to.output.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            // `poll` notices a broken connection.
            let _ = to.flush();
        }
        Ok(())
    }

    fn poll(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), RemoteError> {
        self.accept()?;
        for (number, peer) in self.peers.iter_mut().enumerate().filter(|(_, peer)| !peer.gone) {
            let open = peer.flush() && peer.fill();
            let sound = peer.take_messages(self.message_words, |words| {
                incoming.push(Incoming::Message(number, words))
            });
            if !(open && sound) {
                peer.gone = true;
                // Notifies the other end if it is still alive.
                let _ = peer.stream.shutdown(std::net::Shutdown::Both);
                incoming.push(Incoming::Gone(number));
            }
        }
        Ok(())
    }
}

fn failed(why: std::io::Error) -> RemoteError {
    RemoteError::Fabric(FabricError::Io(why))
}
