//! The first packet of a connection, which has no type byte.

use crate::reader::{Reader, utf8};
use clearway_types::{SqlError, SqlResult, SqlState};

/// PostgreSQL's limit for the first packet, in bytes.
pub const MAX_STARTUP: usize = 10_000;

const PROTOCOL_3: u32 = 3 << 16;
const CANCEL: u32 = (1234 << 16) | 5678;
const SSL: u32 = (1234 << 16) | 5679;
const GSS: u32 = (1234 << 16) | 5680;

/// The first packet of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Startup<'a> {
    /// SSLRequest; answered by one byte, then another first packet follows.
    Ssl,
    /// GSSENCRequest; answered likewise.
    Gss,
    /// CancelRequest: cancels what the given backend runs.
    Cancel {
        /// The backend id, from BackendKeyData.
        pid: i32,
        /// The secret key, from BackendKeyData.
        secret: i32,
    },
    /// StartupMessage: opens a session.
    Session {
        /// The requested minor version; above 0 it requires a NegotiateProtocolVersion.
        minor: u16,
        /// Parameter names and values, in order.
        parameters: Vec<(&'a str, &'a str)>,
    },
    /// A request for another version of the protocol.
    Unsupported {
        /// The requested major version.
        major: u16,
        /// The error to report.
        error: SqlError,
    },
}

/// The first packet has a length that none has: the peer speaks another protocol and, as in
/// PostgreSQL, gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadStartupPacket;

/// A packet and its length in the buffer.
pub type Packet<'a> = (Startup<'a>, usize);

/// The client's requests for encryption so far: each kind is allowed once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncryptionRequests {
    /// [`Startup::Ssl`] has come.
    pub ssl: bool,
    /// [`Startup::Gss`] has come.
    pub gss: bool,
}

/// Decodes the first packet of `input`; `None` while it is incomplete. A request for encryption
/// that has come before (`earlier`) is treated as an unsupported protocol version.
///
/// # Errors
/// The length is invalid. The inner error is to be reported to the client.
pub fn startup(
    input: &[u8],
    earlier: EncryptionRequests,
) -> Result<Option<SqlResult<Packet<'_>>>, BadStartupPacket> {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*head) as usize;
    if !(8..=MAX_STARTUP).contains(&len) {
        return Err(BadStartupPacket);
    }
    let Some((code, rest)) = input.get(4..len).and_then(<[u8]>::split_first_chunk::<4>) else {
        return Ok(None);
    };
    let packet = match u32::from_be_bytes(*code) {
        SSL if !earlier.ssl => Ok(Startup::Ssl),
        GSS if !earlier.gss => Ok(Startup::Gss),
        CANCEL => match rest.as_chunks::<4>() {
            ([pid, secret], []) => Ok(Startup::Cancel {
                pid: i32::from_be_bytes(*pid),
                secret: i32::from_be_bytes(*secret),
            }),
            _ => return Err(BadStartupPacket),
        },
        version if version & 0xffff_0000 == PROTOCOL_3 => parameters(rest)
            .map(|parameters| Startup::Session { minor: version as u16, parameters }),
        version => {
            let (major, minor) = ((version >> 16) as u16, version & 0xffff);
            let text = format!(
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
            );
            Ok(Startup::Unsupported {
                major,
                error: SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text),
            })
        }
    };
    Ok(Some(packet.map(|packet| (packet, len))))
}

/// Decodes names and values up to an empty name, which must end the packet.
fn parameters(bytes: &[u8]) -> SqlResult<Vec<(&str, &str)>> {
    let text = "invalid startup packet layout: expected terminator as last byte";
    let bad_layout = |_| SqlError::new(SqlState::PROTOCOL_VIOLATION, text);
    let mut r = Reader::new(bytes);
    let mut out = Vec::new();
    loop {
        let name = r.cstr_bytes().map_err(bad_layout)?;
        if name.is_empty() {
            r.end().map_err(bad_layout)?;
            return out.into_iter().map(|(name, value)| Ok((utf8(name)?, utf8(value)?))).collect();
        }
        out.push((name, r.cstr_bytes().map_err(bad_layout)?));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8]) -> Option<SqlResult<Packet<'_>>> {
        startup(bytes, EncryptionRequests::default()).unwrap()
    }

    #[test]
    fn packets_are_decoded() {
        assert_eq!(packet(&[0, 0, 0]), None);
        let ssl = [0, 0, 0, 8, 4, 210, 22, 47];
        assert_eq!(packet(&ssl), Some(Ok((Startup::Ssl, 8))));
        let mut session = vec![0, 0, 0, 0, 0, 3, 0, 0];
        session.extend_from_slice(b"user\0me\0database\0d\0\0");
        session[3] = session.len() as u8;
        let (read, n) = packet(&session).unwrap().unwrap();
        assert_eq!(n, session.len());
        assert_eq!(
            read,
            Startup::Session { minor: 0, parameters: vec![("user", "me"), ("database", "d")] }
        );
        assert_eq!(
            startup(&[0, 0, 0, 7, 0, 0, 0], EncryptionRequests::default()),
            Err(BadStartupPacket)
        );
        assert_eq!(startup(&[0xff; 9], EncryptionRequests::default()), Err(BadStartupPacket));
        for (bytes, ssl) in [([0, 0, 0, 8, 0, 2, 0, 0], false), (ssl, true)] {
            assert!(matches!(
                startup(&bytes, EncryptionRequests { ssl, gss: false }),
                Ok(Some(Ok((Startup::Unsupported { .. }, 8))))
            ));
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(mut bytes: Vec<u8>, len in 0u8..64) {
            let earlier = EncryptionRequests { ssl: false, gss: true };
            let _ = startup(&bytes, earlier);
            if bytes.len() > 8 {
                bytes[..8].copy_from_slice(&[0, 0, 0, len, 0, 3, 0, 0]);
                let _ = startup(&bytes, earlier);
            }
        }
    }
}
