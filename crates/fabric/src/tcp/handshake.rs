//! The handshake in which two nodes prove to each other that they know the shared secret.
//!
//! | from | bytes | contents |
//! |---|---|---|
//! | connecting side | 56 | "CLWYTCP1", a nonce of 32 bytes, the addresses of both workers (node and port, 4 bytes each, little-endian) |
//! | accepting side | 64 | a nonce of 32 bytes, HMAC-SHA-256 under the secret of "accept", the 56 bytes and the nonce |
//! | connecting side | 32 | HMAC-SHA-256 of "connect", the 56 bytes and the accepting side's nonce |
//! | accepting side | 1 | 1: welcome |
//!
//! The secret itself is never sent. A recorded handshake is useless, because both nonces are new. A
//! member may claim to be any node. Later traffic is neither encrypted nor authenticated: the
//! network between members must be trusted not to change it.

use crate::{FabricError, FabricNode, WorkerAddr};
use clearway_env::{Entropy, OsEntropy};
use hmac::{Hmac, KeyInit, Mac};
use rustix::net::sockopt;
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const MAGIC: &[u8; 8] = b"CLWYTCP1";

pub(crate) const HELLO_BYTES: usize = 56;
pub(crate) const NONCE_BYTES: usize = 32;
pub(crate) const PROOF_BYTES: usize = 32;
pub(crate) const WELCOME: u8 = 1;

/// A peer that does not answer for this long counts as dead.
pub(crate) const TIME: Duration = Duration::from_secs(5);
/// How long a connection is silent before its peer is probed, and the time between probes.
const PROBE: Duration = Duration::from_secs(1);

/// The first message of a connection.
pub(crate) type Hello = [u8; HELLO_BYTES];
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// The side that proves.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Connect,
    Accept,
}

/// Draws a new nonce.
pub(crate) fn nonce() -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    for part in nonce.as_chunks_mut::<8>().0 {
        *part = OsEntropy.u64().to_le_bytes();
    }
    nonce
}

pub(crate) fn hello(from: WorkerAddr, to: WorkerAddr) -> Hello {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(MAGIC);
    hello[8..40].copy_from_slice(&nonce());
    let numbers = [from.node.0, from.port, to.node.0, to.port];
    for (part, number) in hello[40..].as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *part = number.to_le_bytes();
    }
    hello
}

/// Returns the workers that a hello names, or `None` if it is malformed.
pub(crate) fn addresses(hello: &Hello) -> Option<(WorkerAddr, WorkerAddr)> {
    let number = |index: usize| {
        hello[40..].as_chunks::<4>().0.get(index).map(|part| u32::from_le_bytes(*part))
    };
    let address =
        |index| Some(WorkerAddr { node: FabricNode(number(index)?), port: number(index + 1)? });
    hello.starts_with(MAGIC).then(|| Some((address(0)?, address(2)?)))?
}

fn mac(secret: &[u8], role: Role, hello: &Hello, nonce: &Nonce) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(match role {
        Role::Connect => b"connect",
        Role::Accept => b"accept",
    });
    mac.update(hello);
    mac.update(nonce);
    mac
}

pub(crate) fn proof(secret: &[u8], role: Role, hello: &Hello, nonce: &Nonce) -> [u8; PROOF_BYTES] {
    mac(secret, role, hello, nonce).finalize().into_bytes().into()
}

/// Checks a proof in a time that does not depend on where it is wrong.
pub(crate) fn is_proven(
    secret: &[u8],
    role: Role,
    hello: &Hello,
    nonce: &Nonce,
    proof: &[u8],
) -> bool {
    mac(secret, role, hello, nonce).verify_slice(proof).is_ok()
}

/// Why the connecting side's handshake failed.
pub(crate) enum Failure {
    /// The peer closed the connection: it has too many others, or it rejects this side's hello or
    /// proof.
    Closed,
    /// The peer's proof is wrong.
    Unproven,
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(why: io::Error) -> Self {
        match why.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(why),
        }
    }
}

impl From<Failure> for FabricError {
    fn from(why: Failure) -> Self {
        match why {
            Failure::Closed | Failure::Unproven => Self::Authentication,
            Failure::Io(why) => Self::Io(why),
        }
    }
}

/// Lets a connection break if its peer's system does not answer for [`TIME`]: probes while there is
/// nothing to send, and data that is not acknowledged otherwise.
pub(crate) fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE)?;
    // It also limits the probes.
    Ok(sockopt::set_tcp_user_timeout(stream, TIME.as_millis() as u32)?)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME))?;
    stream.set_write_timeout(Some(TIME))
}

/// Runs the connecting side on a blocking stream.
pub(crate) fn connect(
    mut stream: &TcpStream,
    secret: &[u8],
    from: WorkerAddr,
    to: WorkerAddr,
) -> Result<(), Failure> {
    prepare(stream)?;
    let hello = hello(from, to);
    stream.write_all(&hello)?;
    let (mut nonce, mut other) = ([0; NONCE_BYTES], [0; PROOF_BYTES]);
    stream.read_exact(&mut nonce)?;
    stream.read_exact(&mut other)?;
    if !is_proven(secret, Role::Accept, &hello, &nonce, &other) {
        return Err(Failure::Unproven);
    }
    stream.write_all(&proof(secret, Role::Connect, &hello, &nonce))?;
    let mut welcome = [0];
    stream.read_exact(&mut welcome)?;
    if welcome == [WELCOME] { Ok(()) } else { Err(Failure::Unproven) }
}

/// Runs the accepting side on a blocking stream. Returns the addresses of both workers.
#[cfg(feature = "verbs")]
pub(crate) fn accept(
    mut stream: &TcpStream,
    secret: &[u8],
    node: FabricNode,
) -> Result<(WorkerAddr, WorkerAddr), FabricError> {
    prepare(stream)?;
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    let (from, to) =
        addresses(&hello).filter(|(_, to)| to.node == node).ok_or(FabricError::Authentication)?;
    let nonce = nonce();
    stream.write_all(&nonce)?;
    stream.write_all(&proof(secret, Role::Accept, &hello, &nonce))?;
    let mut other = [0; PROOF_BYTES];
    stream.read_exact(&mut other)?;
    if !is_proven(secret, Role::Connect, &hello, &nonce, &other) {
        return Err(FabricError::Authentication);
    }
    stream.write_all(&[WELCOME])?;
    Ok((from, to))
}
