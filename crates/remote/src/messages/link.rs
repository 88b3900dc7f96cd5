//! The transport of messages.

use crate::RemoteError;

/// An arrival. Peers are numbered from 0 in the order of connecting or accepting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A message from a peer.
    Message(usize, Vec<u64>),
    /// The peer is gone. Nothing arrives from it any more, and messages to it are lost.
    Gone(usize),
}

/// Connections to peers, ordered and lossless while they last. No call blocks.
pub trait Link {
    /// Sends a message, at most as long as both ends were configured for. A message to a peer that
    /// is gone is dropped.
    ///
    /// # Errors
    /// Returns an error if the link as a whole is unusable.
    fn send(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError>;

    /// Accepts peers, moves messages, and appends the arrivals.
    ///
    /// # Errors
    /// As [`Link::send`].
    fn poll(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), RemoteError>;
}
