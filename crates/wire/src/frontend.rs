//! Messages from the client.

use crate::reader::Reader;
use crate::row::Format;
use clearway_types::{SqlError, SqlResult, SqlState};

pub use crate::reader::utf8;

/// The frame of a complete message at the front of the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The message's type byte.
    pub tag: u8,
    /// The length including type byte and length field; the body starts at offset 5.
    pub len: usize,
}

/// An invalid length: nothing that follows in the stream can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength {
    /// The length is valid in PostgreSQL, but above our limit.
    pub too_long: bool,
}

/// PostgreSQL's limit for messages without data, in bytes.
const SMALL_MESSAGE: usize = 10_000;
/// PostgreSQL's limit for messages with data, in bytes.
const LARGE_MESSAGE: usize = 0x3fff_fffe;

impl std::fmt::Display for BadLength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.too_long { "a message is too long" } else { "invalid message length" })
    }
}
impl std::error::Error for BadLength {}

/// Finds a complete message from a client; `None` while it is incomplete. Messages with data may be
/// up to `max` bytes long.
///
/// # Errors
/// The length is invalid or above the limit.
pub fn frame(input: &[u8], max: usize) -> Result<Option<Frame>, BadLength> {
    let large = matches!(input.first(), Some(b'Q' | b'P' | b'B' | b'F' | b'd'));
    any_frame(input, if large { LARGE_MESSAGE } else { SMALL_MESSAGE }, max)
}

/// Like [`frame`], for messages from a server.
pub fn server_frame(input: &[u8], max: usize) -> Result<Option<Frame>, BadLength> {
    any_frame(input, LARGE_MESSAGE, max)
}

fn any_frame(input: &[u8], limit: usize, max: usize) -> Result<Option<Frame>, BadLength> {
    let Some(&[tag, a, b, c, d]) = input.first_chunk::<5>() else { return Ok(None) };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if len < 4 || len > limit {
        return Err(BadLength { too_long: false });
    }
    if len > max {
        return Err(BadLength { too_long: true });
    }
    Ok((input.len() > len).then_some(Frame { tag, len: len + 1 }))
}

/// Returns the total length of the message at the front of `input`, as far as its header is known.
pub fn expected_len(input: &[u8]) -> usize {
    match input.first_chunk::<5>() {
        Some(&[_, a, b, c, d]) => u32::from_be_bytes([a, b, c, d]) as usize + 1,
        None => 5,
    }
}

/// A message from the client, borrowed from the receive buffer.
#[derive(Debug)]
pub enum Frontend<'a> {
    /// A simple query.
    Query(&'a str),
    /// Parse: prepares a statement.
    Parse {
        /// Name of the statement; empty for the unnamed one.
        name: &'a str,
        /// SQL text.
        sql: &'a str,
        /// OIDs of the parameters' types; 0 means unspecified.
        types: Oids<'a>,
    },
    /// Bind: creates a portal from a statement and parameters.
    Bind(Bind<'a>),
    /// Describe: requests a statement's parameters and columns.
    DescribeStatement(&'a str),
    /// Describe: requests a portal's columns.
    DescribePortal(&'a str),
    /// Execute: runs a portal.
    Execute {
        /// Name of the portal; empty for the unnamed one.
        portal: &'a str,
        /// Maximum number of rows; 0 means all.
        max_rows: u32,
    },
    /// Close: drops a statement.
    CloseStatement(&'a str),
    /// Close: drops a portal.
    ClosePortal(&'a str),
    /// Flush: requests all replies so far.
    Flush,
    /// Sync: ends a group of messages.
    Sync,
    /// A piece of COPY data.
    CopyData(&'a [u8]),
    /// The end of COPY data.
    CopyDone,
    /// The client aborts its COPY, for this reason.
    CopyFail(&'a str),
    /// The client ends the session.
    Terminate,
    /// A call of the function with this OID; not supported by the server.
    FunctionCall(u32),
}

/// A Bind message. The fields after the names are decoded step by step, because PostgreSQL checks
/// each part only when it has accepted the parts before it.
#[derive(Clone, Copy, Debug)]
pub struct Bind<'a> {
    /// Name of the portal; empty for the unnamed one.
    pub portal: &'a str,
    /// Name of the statement; empty for the unnamed one.
    pub statement: &'a str,
    rest: Reader<'a>,
}

impl<'a> Bind<'a> {
    /// Decodes format codes: first those of the parameters, at the end those of the result columns.
    pub fn formats(&mut self) -> SqlResult<Formats<'a>> {
        let n = self.rest.count()?;
        self.rest.bytes(n * 2).map(Formats)
    }
    /// Decodes the number of parameters, after their formats.
    pub fn count(&mut self) -> SqlResult<usize> {
        self.rest.count()
    }
    /// Decodes the next parameter; `None` is NULL.
    pub fn value(&mut self) -> SqlResult<Option<&'a [u8]>> {
        match self.rest.i32()? {
            -1 => Ok(None),
            // Any other negative length exceeds the message.
            len => self.rest.bytes(usize::try_from(len).unwrap_or(usize::MAX)).map(Some),
        }
    }
    /// Fails if bytes are left over.
    pub fn end(self) -> SqlResult<()> {
        self.rest.end()
    }
}

/// The type OIDs of a Parse message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oids<'a>(&'a [u8]);

impl Oids<'_> {
    /// Returns the OIDs in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        self.0.as_chunks::<4>().0.iter().map(|b| u32::from_be_bytes(*b))
    }
}

/// The format codes of a Bind message: none (all text), one (for all), or one per field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats<'a>(&'a [u8]);

impl Formats<'_> {
    /// Returns the number of codes.
    pub fn len(self) -> usize {
        self.0.len() / 2
    }
    /// Returns true if there are no codes.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
    /// Returns the format of field `i`.
    pub fn get(self, i: usize) -> SqlResult<Format> {
        let codes = self.0.as_chunks::<2>().0;
        match if codes.len() == 1 { codes.first() } else { codes.get(i) } {
            Some([0, 0]) | None => Ok(Format::Text),
            Some([0, 1]) => Ok(Format::Binary),
            Some(code) => Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("unsupported format code: {}", i16::from_be_bytes(*code)),
            )),
        }
    }
}

impl<'a> Frontend<'a> {
    /// Decodes a message whose type [`is_known`]. The stream stays synchronised after an error: the
    /// next message starts where the frame ends.
    pub fn decode(tag: u8, body: &'a [u8]) -> SqlResult<Self> {
        let mut r = Reader::new(body);
        let message = match tag {
            b'Q' => Self::Query(r.cstr()?),
            b'P' => {
                let (name, sql) = (r.cstr()?, r.cstr()?);
                let n = r.count()?;
                Self::Parse { name, sql, types: Oids(r.bytes(n * 4)?) }
            }
            b'B' => {
                return Ok(Self::Bind(Bind { portal: r.cstr()?, statement: r.cstr()?, rest: r }));
            }
            b'D' | b'C' => {
                let (kind, name) = (r.u8()?, r.cstr()?);
                r.end()?;
                return match (tag, kind) {
                    (b'D', b'S') => Ok(Self::DescribeStatement(name)),
                    (b'D', b'P') => Ok(Self::DescribePortal(name)),
                    (b'C', b'S') => Ok(Self::CloseStatement(name)),
                    (b'C', b'P') => Ok(Self::ClosePortal(name)),
                    (b'D', other) => Err(subtype("DESCRIBE", other)),
                    (_, other) => Err(subtype("CLOSE", other)),
                };
            }
            // As in PostgreSQL, a negative limit means none.
            b'E' => {
                Self::Execute { portal: r.cstr()?, max_rows: u32::try_from(r.i32()?).unwrap_or(0) }
            }
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'd' => return Ok(Self::CopyData(body)),
            // PostgreSQL ignores the bodies of these.
            b'c' => return Ok(Self::CopyDone),
            b'f' => return Ok(Self::CopyFail(r.cstr()?)),
            b'X' => return Ok(Self::Terminate),
            b'F' => return Ok(Self::FunctionCall(r.u32()?)),
            other => return Err(unknown(other)),
        };
        r.end()?;
        Ok(message)
    }
}

/// Returns true if `tag` is a message type of a session. Any other type means that the stream is
/// out of sync. PasswordMessage is allowed only before a session.
pub fn is_known(tag: u8) -> bool {
    matches!(
        tag,
        b'Q' | b'P' | b'B' | b'D' | b'C' | b'E' | b'H' | b'S' | b'd' | b'c' | b'f' | b'X' | b'F'
    )
}

/// Returns the error for an unknown message type.
pub fn unknown(tag: u8) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("invalid frontend message type {tag}"))
}

fn subtype(what: &str, got: u8) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("invalid {what} message subtype {got}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind_body(formats: &[i16], params: &[Option<&[u8]>], results: &[i16]) -> Vec<u8> {
        let mut b = b"p\0s\0".to_vec();
        b.extend((formats.len() as i16).to_be_bytes());
        formats.iter().for_each(|f| b.extend(f.to_be_bytes()));
        b.extend((params.len() as i16).to_be_bytes());
        for p in params {
            b.extend(p.map_or(-1, |p| p.len() as i32).to_be_bytes());
            b.extend_from_slice(p.unwrap_or(&[]));
        }
        b.extend((results.len() as i16).to_be_bytes());
        results.iter().for_each(|f| b.extend(f.to_be_bytes()));
        b
    }

    /// Values, their formats, and the formats of the result.
    type Parts<'a> = (Vec<Option<&'a [u8]>>, Formats<'a>, Formats<'a>);

    fn parts(mut bind: Bind<'_>) -> SqlResult<Parts<'_>> {
        let (formats, count) = (bind.formats()?, bind.count()?);
        let values = (0..count).map(|_| bind.value()).collect::<SqlResult<Vec<_>>>()?;
        let results = bind.formats()?;
        bind.end()?;
        Ok((values, formats, results))
    }

    #[test]
    fn bind_decodes_formats_and_values() {
        let body = bind_body(&[1, 0, 2], &[Some(b"ab"), None], &[1]);
        let Frontend::Bind(bind) = Frontend::decode(b'B', &body).unwrap() else { panic!() };
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        let (values, formats, results) = parts(bind).unwrap();
        assert_eq!(values, [Some(&b"ab"[..]), None]);
        assert_eq!(
            (formats.get(0).unwrap(), formats.get(1).unwrap()),
            (Format::Binary, Format::Text)
        );
        assert_eq!(formats.get(2).unwrap_err().message(), "unsupported format code: 2");
        assert_eq!(results.get(7).unwrap(), Format::Binary);
        for cut in 0..body.len() {
            let cut = Frontend::decode(b'B', &body[..cut]);
            assert!(
                cut.is_err() || matches!(cut, Ok(Frontend::Bind(bind)) if parts(bind).is_err())
            );
        }
    }

    #[test]
    fn frames_wait_for_their_end_and_check_lengths() {
        let q = b"Q\0\0\0\x0dselect 1\0";
        for n in 0..q.len() {
            assert_eq!(frame(&q[..n], 100).unwrap(), None);
        }
        assert_eq!(frame(q, 100).unwrap(), Some(Frame { tag: b'Q', len: q.len() }));
        assert!(matches!(Frontend::decode(b'Q', &q[5..]).unwrap(), Frontend::Query("select 1")));
        assert_eq!(frame(&[b'Q', 0, 0, 0, 3], 100), Err(BadLength { too_long: false }));
        assert_eq!(frame(&[b'Q', 0, 0, 1, 0], 100), Err(BadLength { too_long: true }));
        assert_eq!(
            frame(&[b'S', 0, 0, 0x27, 0x11], usize::MAX),
            Err(BadLength { too_long: false })
        );
        assert!(Frontend::decode(b'Q', b"\xff\0").is_err());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(tag: u8, body: Vec<u8>) {
            for tag in [tag, b'B', b'P', b'D', b'C', b'E', b'Q', b'f'] {
                if let Ok(Frontend::Bind(b)) = Frontend::decode(tag, &body) {
                    let _ = parts(b);
                }
            }
            let _ = frame(&body, 1000);
        }
        #[test]
        fn damaged_binds_never_panic(at: usize, byte: u8) {
            let mut body = bind_body(&[1, 0], &[Some(b"ab"), None], &[1]);
            let n = body.len();
            body[at % n] = byte;
            if let Ok(Frontend::Bind(b)) = Frontend::decode(b'B', &body) {
                let _ = parts(b);
            }
        }
    }
}
