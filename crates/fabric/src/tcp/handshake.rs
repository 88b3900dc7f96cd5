//! How two nodes prove to each other that they know the shared secret.
//!
//! | from | bytes | what |
//! |---|---|---|
//! | connecting side | 56 | "CLWYTCP1", a nonce of 32 bytes, the addresses of both workers (node and port, 4 bytes each, little-endian) |
//! | other side | 64 | a nonce of 32 bytes, HMAC-SHA-256 under the secret of "accept", the 56 bytes and the nonce |
//! | connecting side | 32 | HMAC-SHA-256 of "connect", the 56 bytes and the other side's nonce |
//! | other side | 1 | 1: welcome |
//!
//! The secret itself is never sent; a recorded handshake is worth nothing, because both nonces are new. A member may claim to
//! be any node. What follows is neither encrypted nor authenticated: the network between members must be trusted not to
//! change it.

use crate::{FabricNode, WorkerAddr};
use clearway_env::{Entropy, OsEntropy};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const MAGIC: &[u8; 8] = b"CLWYTCP1";

pub(super) const HELLO_BYTES: usize = 56;
pub(super) const NONCE_BYTES: usize = 32;
pub(super) const PROOF_BYTES: usize = 32;
pub(super) const WELCOME: u8 = 1;

/// The first message of a connection.
pub(super) type Hello = [u8; HELLO_BYTES];
pub(super) type Nonce = [u8; NONCE_BYTES];

/// Who proves.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Connect,
    Accept,
}

/// Bytes that were never used before.
pub(super) fn nonce() -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    for part in nonce.as_chunks_mut::<8>().0 {
        *part = OsEntropy.u64().to_le_bytes();
    }
    nonce
}

pub(super) fn hello(from: WorkerAddr, to: WorkerAddr) -> Hello {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(MAGIC);
    hello[8..40].copy_from_slice(&nonce());
    let numbers = [from.node.0, from.port, to.node.0, to.port];
    for (part, number) in hello[40..].as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *part = number.to_le_bytes();
    }
    hello
}

/// The workers that a hello names; none if it is not one.
pub(super) fn addresses(hello: &Hello) -> Option<(WorkerAddr, WorkerAddr)> {
    let number = |index: usize| hello[40..].as_chunks::<4>().0.get(index).map(|part| u32::from_le_bytes(*part));
    let address = |index| Some(WorkerAddr { node: FabricNode(number(index)?), port: number(index + 1)? });
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

pub(super) fn proof(secret: &[u8], role: Role, hello: &Hello, nonce: &Nonce) -> [u8; PROOF_BYTES] {
    mac(secret, role, hello, nonce).finalize().into_bytes().into()
}

/// Whether a proof is right, in a time that does not depend on where it is wrong.
pub(super) fn is_proven(secret: &[u8], role: Role, hello: &Hello, nonce: &Nonce, proof: &[u8]) -> bool {
    mac(secret, role, hello, nonce).verify_slice(proof).is_ok()
}
