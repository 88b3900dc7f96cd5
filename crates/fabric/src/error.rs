//! Errors of set-up calls, of posting, and of completions.

use std::error::Error;
use std::fmt;

/// Why a node, region, worker or connection could not be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum FabricError {
    /// The provider found no device.
    NoDevice(String),
    /// The node is unknown or dead.
    UnknownPeer,
    /// The two nodes do not share the same secret, or the peer closes each connection before its
    /// handshake has ended.
    Authentication,
    /// More regions, workers, queue pairs or words than the provider supports.
    Limit(&'static str),
    /// The provider does not support the operation.
    Unsupported(&'static str),
    /// The operating system returned an error.
    Io(std::io::Error),
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice(why) => write!(f, "no device for this fabric: {why}"),
            Self::UnknownPeer => f.write_str("no such node in this fabric"),
            Self::Authentication => f.write_str("the peer could not be authenticated"),
            Self::Limit(what) => write!(f, "too many {what} for this fabric"),
            Self::Unsupported(what) => write!(f, "this fabric has no {what}"),
            Self::Io(why) => write!(f, "fabric: {why}"),
        }
    }
}

impl Error for FabricError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(why) => Some(why),
            _ => None,
        }
    }
}

impl From<std::io::Error> for FabricError {
    fn from(why: std::io::Error) -> Self {
        Self::Io(why)
    }
}

/// Why a batch was rejected. No request of the batch was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// Too many requests of the queue pair are incomplete. Poll, then try again.
    QueueFull,
    /// The worker has no such queue pair.
    UnknownQueue,
    /// The range is empty, too long for the provider, or not within the scratch area.
    BadRange,
    /// A one-sided verb was posted to an accepted queue pair. Those carry SEND and RECV only.
    OneSided,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "the queue pair is full",
            Self::UnknownQueue => "no such queue pair",
            Self::BadRange => "the range is empty, too long or outside the scratch area",
            Self::OneSided => "one-sided verb on an accepted queue pair",
        })
    }
}

impl Error for PostError {}

/// Why a verb failed. The queue pair is then in error: every later request completes as
/// [`VerbError::Flushed`]. Connect a new queue pair to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbError {
    /// The peer does not know the key, or the range is not within its region. Nothing was read or
    /// written.
    RemoteAccess,
    /// A SEND's message is longer than its RECV. Both ends get this error.
    MessageTooLong,
    /// An earlier request of this queue pair failed. Whether this one was executed is unknown.
    Flushed,
    /// The peer does not answer, or the connection broke. Whether the request was executed is
    /// unknown.
    PeerDead,
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemoteAccess => "the peer has no such key, or the range exceeds its region",
            Self::MessageTooLong => "the message is longer than the receiver's buffer",
            Self::Flushed => "an earlier request of the queue pair failed",
            Self::PeerDead => "the peer does not answer",
        })
    }
}

impl Error for VerbError {}
