//! Devices, and the set-up of a queue pair between two nodes.

use super::node::VerbsConfig;
use crate::FabricError;
use clearway_env::{Entropy, OsEntropy};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{AtomicCapability, DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicQueuePair, QueuePair, QueuePairAttribute, QueuePairState};
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Limit of incomplete requests, and of RECVs, of a queue pair.
pub(super) const QUEUE_DEPTH: usize = 128;
/// READs and atomics in flight at a queue pair; every device supports this many.
const READS: u8 = 4;
/// Bytes in which an end describes itself.
const ENDPOINT_BYTES: usize = 26;
/// InfiniBand's codes: a reply is late after 67 ms and retried 7 times. A receiver may be unready
/// indefinitely; the sender retries every 0.64 ms.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;
const UNREADY_RETRIES: u8 = 7;
const UNREADY_TIMER: u8 = 12;

fn refused(what: &str, why: impl Display) -> FabricError {
    FabricError::Io(io::Error::other(format!("could not {what}: {why}")))
}

/// An opened device.
pub(super) struct Device {
    context: Arc<DeviceContext>,
    pub domain: Arc<ProtectionDomain>,
    port: u8,
    gid_index: u8,
    lid: u16,
    gid: Gid,
    mtu: Mtu,
    /// The device's atomics exclude those of the CPU.
    pub cpu_atomics: bool,
}

/// A queue pair and its completion queue.
pub(super) struct Link {
    pub pair: BasicQueuePair,
    pub completions: Arc<BasicCompletionQueue>,
}

/// The address of a queue pair's end.
struct Endpoint {
    number: u32,
    sequence: u32,
    lid: u16,
    gid: Gid,
}

impl Endpoint {
    fn to_bytes(&self) -> [u8; ENDPOINT_BYTES] {
        let mut bytes = [0; ENDPOINT_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_le_bytes());
        bytes[10..].copy_from_slice(&self.gid.raw);
        bytes
    }

    fn read(mut stream: &TcpStream) -> io::Result<Self> {
        let (mut number, mut sequence, mut lid, mut raw) = ([0; 4], [0; 4], [0; 2], [0; 16]);
        stream.read_exact(&mut number)?;
        stream.read_exact(&mut sequence)?;
        stream.read_exact(&mut lid)?;
        stream.read_exact(&mut raw)?;
        let (number, sequence) = (u32::from_le_bytes(number), u32::from_le_bytes(sequence));
        Ok(Self { number, sequence, lid: u16::from_le_bytes(lid), gid: Gid { raw } })
    }
}

impl Device {
    pub fn open(config: &VerbsConfig) -> Result<Self, FabricError> {
        let list = DeviceList::new().map_err(|why| FabricError::NoDevice(full(&why)))?;
        let wanted = |name: &str| config.device.as_ref().is_none_or(|wanted| wanted == name);
        let device = list.iter().find(|device| wanted(&device.name()));
        let device = device.ok_or_else(|| match &config.device {
            Some(name) => FabricError::NoDevice(format!("none is called {name}")),
            None => FabricError::NoDevice("the system has none".into()),
        })?;
        let context = device.open().map_err(|why| refused("open the device", full(&why)))?;
        let domain =
            context.alloc_pd().map_err(|why| refused("allocate a protection domain", why))?;
        let port = context.query_port(config.port).map_err(|why| refused("query the port", why))?;
        let gid = context
            .query_gid(config.port, config.gid_index.into())
            .map_err(|why| refused("query the GID", why))?;
        let attributes = context.query_device().map_err(|why| refused("query the device", why))?;
        Ok(Self {
            domain,
            port: config.port,
            gid_index: config.gid_index,
            lid: port.lid(),
            gid,
            mtu: port.active_mtu(),
            cpu_atomics: matches!(attributes.atomic_capability(), AtomicCapability::Global),
            context,
        })
    }

    /// Creates a queue pair, exchanges addresses with the peer over `stream`, and connects it.
    pub fn connect(&self, mut stream: &TcpStream) -> Result<Link, FabricError> {
        let mut builder = self.context.create_cq_builder();
        let completions = builder.setup_cqe(2 * QUEUE_DEPTH as u32).build();
        let completions = completions.map_err(|why| refused("create a completion queue", why))?;
        let mut builder = self.domain.create_qp_builder();
        builder.setup_send_cq(Arc::clone(&completions)).setup_recv_cq(Arc::clone(&completions));
        builder.setup_max_send_wr(QUEUE_DEPTH as u32).setup_max_recv_wr(QUEUE_DEPTH as u32);
        builder.setup_max_send_sge(1).setup_max_recv_sge(1);
        let mut pair = builder.build().map_err(|why| refused("create a queue pair", why))?;
        let sequence = OsEntropy.u64() as u32 & 0x00ff_ffff;
        let own = Endpoint { number: pair.qp_number(), sequence, lid: self.lid, gid: self.gid };
        self.initialise(&mut pair)?;
        stream.write_all(&own.to_bytes())?;
        let peer = Endpoint::read(stream)?;
        self.direct(&mut pair, &own, &peer)?;
        Ok(Link { pair, completions })
    }

    fn initialise(&self, pair: &mut BasicQueuePair) -> Result<(), FabricError> {
        let access = AccessFlags::LocalWrite
            | AccessFlags::RemoteRead
            | AccessFlags::RemoteWrite
            | AccessFlags::RemoteAtomic;
        let mut attribute = QueuePairAttribute::new();
        attribute.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(self.port);
        attribute.setup_access_flags(access);
        pair.modify(&attribute).map_err(|why| refused("initialise the queue pair", why))
    }

    fn direct(
        &self,
        pair: &mut BasicQueuePair,
        own: &Endpoint,
        peer: &Endpoint,
    ) -> Result<(), FabricError> {
        let mut path = AddressHandleAttribute::new();
        path.setup_dest_lid(peer.lid).setup_port(self.port).setup_grh_src_gid_index(self.gid_index);
        path.setup_grh_dest_gid(&peer.gid).setup_grh_hop_limit(64);
        let mut receive = QueuePairAttribute::new();
        receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(self.mtu)
            .setup_dest_qp_num(peer.number);
        receive
            .setup_rq_psn(peer.sequence)
            .setup_max_dest_read_atomic(READS)
            .setup_min_rnr_timer(UNREADY_TIMER);
        receive.setup_address_vector(&path);
        pair.modify(&receive)
            .map_err(|why| refused("make the queue pair ready to receive", why))?;
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(own.sequence)
            .setup_timeout(TIMEOUT);
        send.setup_retry_cnt(RETRIES).setup_rnr_retry(UNREADY_RETRIES).setup_max_read_atomic(READS);
        pair.modify(&send).map_err(|why| refused("make the queue pair ready to send", why))
    }
}

/// Formats an error with its causes.
fn full(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text = format!("{text}: {why}");
        cause = why.source();
    }
    text
}
