//! A node: its device, its regions, and the thread that answers peers who connect.

use super::memory::Memory;
use super::setup::{Device, Link, QUEUE_DEPTH};
use super::worker::VerbsWorker;
use crate::tcp::handshake;
use crate::words::region_in_memory;
use crate::{Fabric, FabricError, FabricNode, Guarantees, Region, RegionKey, WorkerAddr};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The longest READ, WRITE or message, in words.
const MAX_WORDS: usize = 1 << 20;

/// The configuration of a node.
#[derive(Clone)]
pub struct VerbsConfig {
    /// This node's number.
    pub node: FabricNode,
    /// The device's name, for example `mlx5_0`; `None` selects the first one.
    pub device: Option<String>,
    /// The device's port, from 1.
    pub port: u8,
    /// Index of the port's address; for RoCE, one of version 2.
    pub gid_index: u8,
    /// The TCP address at which peers set up queue pairs.
    pub listen: SocketAddr,
    /// The secret shared by all members: at least 16 random bytes.
    pub secret: Vec<u8>,
}

/// A port: whether a worker owns it, and queue pairs that the worker has not accepted.
#[derive(Default)]
struct Port {
    owned: bool,
    links: VecDeque<(Link, WorkerAddr)>,
}

pub(super) struct NodeState {
    // Dropped before the device.
    ports: Mutex<HashMap<u32, Port>>,
    peers: Mutex<BTreeMap<FabricNode, SocketAddr>>,
    pub device: Device,
    node: FabricNode,
    secret: Vec<u8>,
    stop: OwnedFd,
}

impl NodeState {
    fn ports(&self) -> MutexGuard<'_, HashMap<u32, Port>> {
        // A panic under this lock leaves the map intact; the same applies below.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<FabricNode, SocketAddr>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn accepted(&self, port: u32) -> Option<(Link, WorkerAddr)> {
        self.ports().get_mut(&port)?.links.pop_front()
    }

    pub fn free(&self, port: u32) {
        self.ports().remove(&port);
    }

    pub fn connect(&self, from: WorkerAddr, to: WorkerAddr) -> Result<Link, FabricError> {
        let address = self.peers().get(&to.node).copied().ok_or(FabricError::UnknownPeer)?;
        let stream = TcpStream::connect_timeout(&address, handshake::TIME)?;
        handshake::connect(&stream, &self.secret, from, to)?;
        self.device.connect(&stream)
    }

    pub fn guarantees(&self) -> Guarantees {
        Guarantees {
            cpu_atomics: self.device.cpu_atomics,
            writes_exclude_atomics: false,
            writes_ordered: false,
            reads_follow_atomics: false,
            inline_words: 0,
            queue_depth: QUEUE_DEPTH,
            max_words: MAX_WORDS,
            // A reliable connection notices a dead peer only when it sends.
            recvs_end_with_peer: false,
        }
    }

    /// Answers peers until stopped, one at a time, each within a bounded time.
    fn answer(&self, listener: &TcpListener) {
        loop {
            let mut ready =
                [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            let waited = rustix::event::poll(&mut ready, None);
            if waited.is_ok() && !ready[0].revents().is_empty() {
                return;
            }
            // A peer whose handshake fails finds its connection closed.
            if let Ok((stream, _)) = listener.accept() {
                let _ = self.answer_one(&stream);
            }
        }
    }

    fn answer_one(&self, stream: &TcpStream) -> Result<(), FabricError> {
        stream.set_nonblocking(false)?;
        let (from, to) = handshake::accept(stream, &self.secret, self.node)?;
        let link = self.device.connect(stream)?;
        self.ports().entry(to.port).or_default().links.push_back((link, from));
        Ok(())
    }
}

/// A node of a fabric of InfiniBand or RoCE devices.
///
/// Only the guarantee about CPU atomics is queried from the device. All others have their weakest
/// values.
#[derive(Clone)]
pub struct VerbsFabric(Arc<Attachment>);

pub(super) struct Attachment {
    pub state: Arc<NodeState>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The counter is 0, so the write cannot overflow it.
        let _ = rustix::io::write(&self.state.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl VerbsFabric {
    /// Opens the device and starts to answer peers.
    ///
    /// # Errors
    /// Returns [`FabricError::NoDevice`] with the reason if there is no such device or no
    /// libibverbs, and [`FabricError::Io`] if the device or the address cannot be used.
    pub fn open(config: VerbsConfig) -> Result<Self, FabricError> {
        let device = Device::open(&config)?;
        let listener = TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let peers = Mutex::new(BTreeMap::from([(config.node, address)]));
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let (node, secret, ports) = (config.node, config.secret, Mutex::default());
        let state = Arc::new(NodeState { ports, peers, device, node, secret, stop });
        let of_thread = Arc::clone(&state);
        let name = format!("fabric-verbs-{}", node.0);
        let thread =
            thread::Builder::new().name(name).spawn(move || of_thread.answer(&listener))?;
        Ok(Self(Arc::new(Attachment { state, address, thread: Some(thread) })))
    }

    /// Returns the address at which this node answers peers.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Sets the address of another node.
    pub fn add_peer(&self, node: FabricNode, address: SocketAddr) {
        self.0.state.peers().insert(node, address);
    }
}

impl Fabric for VerbsFabric {
    type Region = VerbsRegion;
    type Worker = VerbsWorker;

    fn node(&self) -> FabricNode {
        self.0.state.node
    }

    fn guarantees(&self) -> Guarantees {
        self.0.state.guarantees()
    }

    fn register(&self, words: usize) -> Result<VerbsRegion, FabricError> {
        if words == 0 {
            return Err(FabricError::Limit("words"));
        }
        let memory = Memory::new(&self.0.state.device.domain, words, true)?;
        Ok(VerbsRegion { memory, _attachment: Arc::clone(&self.0) })
    }

    fn worker(&self, port: u32, scratch_words: usize) -> Result<VerbsWorker, FabricError> {
        let scratch = Memory::new(&self.0.state.device.domain, scratch_words.max(1), false)?;
        if std::mem::replace(&mut self.0.state.ports().entry(port).or_default().owned, true) {
            return Err(FabricError::Limit("workers of one port"));
        }
        let address = WorkerAddr { node: self.0.state.node, port };
        Ok(VerbsWorker::new(Arc::clone(&self.0), address, scratch))
    }
}

/// A region registered with a device.
pub struct VerbsRegion {
    memory: Memory,
    _attachment: Arc<Attachment>,
}

impl VerbsRegion {
    fn memory(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

impl Region for VerbsRegion {
    fn key(&self) -> RegionKey {
        let (key, base) = self.memory.key();
        RegionKey { key: key.into(), base }
    }

    region_in_memory!();
}
