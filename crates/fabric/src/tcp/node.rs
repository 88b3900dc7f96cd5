//! A node: its regions, its workers' mailboxes, its peers' addresses, and the adapter's thread.

use super::adapter::{Adapter, Bell};
use super::mailbox::{Mail, Mailbox};
use super::memory::Regions;
use super::peer::Peer;
use super::worker::TcpWorker;
use super::{QUEUE_DEPTH, frame};
use crate::words::region_in_memory;
use crate::{Fabric, FabricError, FabricNode, Guarantees, Region, RegionKey, WorkerAddr};
use clearway_env::{Entropy, OsEntropy};
use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The shortest secret, in bytes.
const MIN_SECRET: usize = 16;
/// The largest region, in words.
const MAX_REGION: usize = 1 << 34;

/// The configuration of a node.
#[derive(Clone)]
pub struct TcpConfig {
    /// This node's number.
    pub node: FabricNode,
    /// The address at which the node listens.
    pub listen: SocketAddr,
    /// The secret shared by all members: at least 16 random bytes.
    pub secret: Vec<u8>,
}

/// State shared by the adapter and the workers of a node.
pub(super) struct NodeState {
    pub node: FabricNode,
    pub secret: Vec<u8>,
    pub regions: Regions,
    /// Mailboxes by port. A mailbox without a worker keeps its mail for the future worker.
    ports: Mutex<HashMap<u32, Arc<Mailbox>>>,
    peers: Mutex<BTreeMap<FabricNode, SocketAddr>>,
}

impl NodeState {
    /// Creates the state of a node that listens on `address`.
    pub fn new(node: FabricNode, secret: Vec<u8>, address: SocketAddr) -> Self {
        let peers = Mutex::new(BTreeMap::from([(node, address)]));
        Self { node, secret, regions: Regions::default(), ports: Mutex::default(), peers }
    }

    fn ports(&self) -> MutexGuard<'_, HashMap<u32, Arc<Mailbox>>> {
        // A panic under this lock leaves the map intact.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<FabricNode, SocketAddr>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner) // As in `ports`.
    }

    /// Announces a new connection to the worker of its port, or to the future worker.
    pub fn announce(
        &self,
        peer: &Arc<Peer>,
        from: WorkerAddr,
        to: WorkerAddr,
    ) -> std::io::Result<Arc<Mailbox>> {
        let mut ports = self.ports();
        let mailbox = match ports.get(&to.port) {
            Some(mailbox) => Arc::clone(mailbox),
            None => Arc::new(Mailbox::new()?),
        };
        ports.insert(to.port, Arc::clone(&mailbox));
        // A closed mailbox is not in the map: see `close`.
        let _ = mailbox.push(Mail::Connected(Arc::clone(peer), from));
        Ok(mailbox)
    }

    /// Removes a mailbox without a worker when its last connection is gone.
    pub fn forget_unowned(&self, port: u32, mailbox: Arc<Mailbox>) {
        let mut ports = self.ports();
        // Two references: the map's and this one.
        if !mailbox.is_owned() && Arc::strong_count(&mailbox) == 2 {
            ports.remove(&port);
        }
    }

    /// Closes the mailbox of a worker that ends. Returns the mail that was not taken.
    pub fn close(&self, port: u32, mailbox: &Mailbox) -> impl Iterator<Item = Mail> + use<> {
        self.ports().remove(&port);
        mailbox.close().into_iter()
    }

    pub fn peer(&self, node: FabricNode) -> Option<SocketAddr> {
        self.peers().get(&node).copied()
    }
}

/// Returns the guarantees of every node: its CPU executes the verbs with its own atomics.
pub(super) fn guarantees() -> Guarantees {
    Guarantees {
        cpu_atomics: true,
        writes_exclude_atomics: true,
        writes_ordered: true,
        reads_follow_atomics: true,
        inline_words: frame::MAX_WORDS,
        queue_depth: QUEUE_DEPTH,
        max_words: frame::MAX_WORDS,
        recvs_end_with_peer: true,
    }
}

/// A node of a fabric over TCP. Its adapter runs until the last handle, worker and region is
/// dropped.
#[derive(Clone)]
pub struct TcpFabric(Arc<Attachment>);

pub(super) struct Attachment {
    pub state: Arc<NodeState>,
    address: SocketAddr,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl TcpFabric {
    /// Listens, and starts the adapter's thread.
    ///
    /// # Errors
    /// Returns [`FabricError::Io`] if the secret is too short, or if the address cannot be used.
    pub fn bind(config: TcpConfig) -> Result<Self, FabricError> {
        if config.secret.len() < MIN_SECRET {
            let why = format!("the secret is shorter than {MIN_SECRET} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why).into());
        }
        let listener = TcpListener::bind(config.listen)?;
        let address = listener.local_addr()?;
        let state = Arc::new(NodeState::new(config.node, config.secret, address));
        let (adapter, bell) = Adapter::new(Arc::clone(&state), listener)?;
        let name = format!("fabric-tcp-{}", config.node.0);
        let thread = Some(thread::Builder::new().name(name).spawn(move || adapter.run())?);
        Ok(Self(Arc::new(Attachment { state, address, bell, thread })))
    }

    /// Returns the address at which this node listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Sets the address of another node.
    pub fn add_peer(&self, node: FabricNode, address: SocketAddr) {
        self.0.state.peers().insert(node, address);
    }
}

impl Fabric for TcpFabric {
    type Region = TcpRegion;
    type Worker = TcpWorker;

    fn node(&self) -> FabricNode {
        self.0.state.node
    }

    fn guarantees(&self) -> Guarantees {
        guarantees()
    }

    fn register(&self, words: usize) -> Result<TcpRegion, FabricError> {
        if !(1..=MAX_REGION).contains(&words) {
            return Err(FabricError::Limit("words"));
        }
        // 64 random bits: a collision is unlikely before some billions of regions.
        let key = OsEntropy.u64();
        let memory = self.0.state.regions.add(key, words);
        Ok(TcpRegion { attachment: Arc::clone(&self.0), key, memory })
    }

    fn worker(&self, port: u32, scratch_words: usize) -> Result<TcpWorker, FabricError> {
        let address = WorkerAddr { node: self.0.state.node, port };
        let mut ports = self.0.state.ports();
        let mailbox = match ports.get(&port) {
            Some(mailbox) => Arc::clone(mailbox),
            None => Arc::new(Mailbox::new()?),
        };
        if !mailbox.own() {
            return Err(FabricError::Limit("workers of one port"));
        }
        ports.insert(port, Arc::clone(&mailbox));
        Ok(TcpWorker::new(Arc::clone(&self.0), address, mailbox, scratch_words))
    }
}

/// A registered region of a node.
pub struct TcpRegion {
    attachment: Arc<Attachment>,
    key: u64,
    memory: Arc<[AtomicU64]>,
}

impl TcpRegion {
    fn memory(&self) -> &[AtomicU64] {
        &self.memory
    }
}

impl Drop for TcpRegion {
    fn drop(&mut self) {
        self.attachment.state.regions.remove(self.key);
    }
}

impl Region for TcpRegion {
    fn key(&self) -> RegionKey {
        RegionKey { key: self.key, base: 0 }
    }

    fn fence(&mut self) -> Result<(), FabricError> {
        let key = OsEntropy.u64(); // As in `register`.
        self.attachment.state.regions.rekey(self.key, key);
        self.key = key;
        Ok(())
    }

    region_in_memory!();
}
