//! What messages travel on.

use crate::RemoteError;

/// What a link brings. Peers are numbered from 0 in the order of connecting or accepting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A peer has sent this.
    Message(usize, Vec<u64>),
    /// Nothing comes from this peer any more, and what is sent to it is lost.
    Gone(usize),
}

/// Connections to peers, in order and without loss as long as they last. No call blocks.
pub trait Link {
    /// Sends a message of at most as many words as both ends were made for. One to a peer that is
    /// gone is dropped.
    ///
    /// # Errors
    /// If the link as a whole is of no more use.
    fn send(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError>;

    /// Accepts peers, moves messages, and appends what has arrived.
    ///
    /// # Errors
    /// As [`Link::send`].
    fn poll(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), RemoteError>;
}
