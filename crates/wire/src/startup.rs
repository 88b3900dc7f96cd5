//! The first packet of a connection, which has no type byte.

use crate::reader::{Reader, malformed};
use clearway_types::{SqlError, SqlResult, SqlState};

/// PostgreSQL's limit on the first packet.
pub const MAX_STARTUP: usize = 10_000;

const PROTOCOL_3: u32 = 3 << 16;
const CANCEL: u32 = (1234 << 16) | 5678;
const SSL: u32 = (1234 << 16) | 5679;
const GSS: u32 = (1234 << 16) | 5680;

/// The first packet of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Startup<'a> {
    /// Asks for TLS; answered by one byte, then another first packet follows.
    Ssl,
    /// Asks for GSSAPI encryption; likewise.
    Gss,
    /// Asks to cancel what the named backend runs.
    Cancel {
        /// From BackendKeyData.
        pid: i32,
        /// Likewise.
        secret: i32,
    },
    /// Opens a session.
    Session {
        /// The protocol's minor version asked for; above 0 a NegotiateProtocolVersion is due.
        minor: u16,
        /// Names and values, in order.
        parameters: Vec<(&'a str, &'a str)>,
    },
}

/// Takes the first packet off `input`: it and its length; `None` while bytes are missing.
pub fn startup(input: &[u8]) -> SqlResult<Option<(Startup<'_>, usize)>> {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*head) as usize;
    if !(8..=MAX_STARTUP).contains(&len) {
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid length of startup packet"));
    }
    let Some(body) = input.get(4..len) else { return Ok(None) };
    let mut r = Reader::new(body);
    let packet = match r.u32()? {
        SSL => Startup::Ssl,
        GSS => Startup::Gss,
        CANCEL => Startup::Cancel { pid: r.i32()?, secret: r.i32()? },
        version if version & 0xffff_0000 == PROTOCOL_3 => {
            Startup::Session { minor: version as u16, parameters: parameters(r)? }
        }
        version => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!(
                    "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
                    version >> 16,
                    version & 0xffff
                ),
            ));
        }
    };
    Ok(Some((packet, len)))
}

fn parameters(mut r: Reader<'_>) -> SqlResult<Vec<(&str, &str)>> {
    let mut out = Vec::new();
    loop {
        let name = r.cstr().map_err(|_| malformed())?;
        if name.is_empty() {
            return Ok(out);
        }
        out.push((name, r.cstr()?));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets() {
        assert_eq!(startup(&[0, 0, 0]).unwrap(), None);
        let ssl = [0, 0, 0, 8, 4, 210, 22, 47];
        assert_eq!(startup(&ssl).unwrap(), Some((Startup::Ssl, 8)));
        let mut session = vec![0, 0, 0, 0, 0, 3, 0, 0];
        session.extend_from_slice(b"user\0me\0database\0d\0\0");
        session[3] = session.len() as u8;
        let (packet, n) = startup(&session).unwrap().unwrap();
        assert_eq!(n, session.len());
        assert_eq!(packet, Startup::Session { minor: 0, parameters: vec![("user", "me"), ("database", "d")] });
        assert!(startup(&[0, 0, 0, 7, 0, 0, 0]).is_err());
        assert!(startup(&[0xff; 9]).is_err());
        assert!(startup(&[0, 0, 0, 8, 0, 2, 0, 0]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(mut bytes: Vec<u8>, len in 0u8..64) {
            let _ = startup(&bytes);
            if bytes.len() > 8 {
                bytes[..8].copy_from_slice(&[0, 0, 0, len, 0, 3, 0, 0]);
                let _ = startup(&bytes);
            }
        }
    }
}
