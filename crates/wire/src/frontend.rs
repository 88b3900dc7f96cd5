//! Messages from the client.

use crate::reader::{Reader, malformed};
use crate::row::Format;
use clearway_types::{SqlError, SqlResult, SqlState};

pub use crate::reader::utf8;

/// A whole message at the front of the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type byte.
    pub tag: u8,
    /// Its length in the buffer, type byte and length field included; the body starts at 5.
    pub len: usize,
}

/// Looks for a whole message; `None` while bytes are missing. A length outside `4..=max` is an error after which nothing in the stream can
/// be trusted.
pub fn frame(input: &[u8], max: usize) -> SqlResult<Option<Frame>> {
    let Some(&[tag, a, b, c, d]) = input.first_chunk::<5>() else { return Ok(None) };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if len < 4 || len > max {
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid message length"));
    }
    Ok((input.len() > len).then_some(Frame { tag, len: len + 1 }))
}

/// The number of bytes that the message at the front of `input` has or will have, as far as its head says.
pub fn expected_len(input: &[u8]) -> usize {
    match input.first_chunk::<5>() {
        Some(&[_, a, b, c, d]) => u32::from_be_bytes([a, b, c, d]) as usize + 1,
        None => 5,
    }
}

/// A message from the client, borrowed from the receive buffer.
#[derive(Debug)]
pub enum Frontend<'a> {
    /// Simple query.
    Query(&'a str),
    /// Prepares a statement.
    Parse {
        /// Empty: the unnamed statement.
        name: &'a str,
        /// Its text.
        sql: &'a str,
        /// The parameters' types as OIDs, 0 where undecided.
        types: Oids<'a>,
    },
    /// Makes a portal of a statement and parameters.
    Bind(Bind<'a>),
    /// Asks for a statement's parameters and columns.
    DescribeStatement(&'a str),
    /// Asks for a portal's columns.
    DescribePortal(&'a str),
    /// Runs a portal.
    Execute {
        /// Empty: the unnamed portal.
        portal: &'a str,
        /// At most so many rows; 0 for all.
        max_rows: u32,
    },
    /// Forgets a statement.
    CloseStatement(&'a str),
    /// Forgets a portal.
    ClosePortal(&'a str),
    /// Asks for all replies so far.
    Flush,
    /// Ends a group of messages.
    Sync,
    /// A piece of COPY data.
    CopyData(&'a [u8]),
    /// The end of COPY data.
    CopyDone,
    /// The client gives its COPY up, for this reason.
    CopyFail(&'a str),
    /// Goodbye.
    Terminate,
    /// A function call by OID; not served.
    FunctionCall,
    /// A password or SASL message outside of authentication.
    Password,
}

/// A Bind message.
#[derive(Clone, Copy, Debug)]
pub struct Bind<'a> {
    /// Empty: the unnamed portal.
    pub portal: &'a str,
    /// Empty: the unnamed statement.
    pub statement: &'a str,
    /// Formats of the parameters.
    pub formats: Formats<'a>,
    /// The parameters.
    pub params: Params<'a>,
    /// Formats of the result's columns.
    pub results: Formats<'a>,
}

/// Type OIDs of a Parse message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oids<'a>(&'a [u8]);

impl Oids<'_> {
    /// The OIDs in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        self.0.as_chunks::<4>().0.iter().map(|b| u32::from_be_bytes(*b))
    }
}

/// Format codes of a Bind message: none (all text), one (for all), or one each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats<'a>(&'a [u8]);

impl Formats<'_> {
    /// How many codes there are.
    pub fn len(self) -> usize {
        self.0.len() / 2
    }
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
    /// The format of field `i`.
    pub fn get(self, i: usize) -> Format {
        let codes = self.0.as_chunks::<2>().0;
        match if codes.len() == 1 { codes.first() } else { codes.get(i) } {
            Some([0, 1]) => Format::Binary,
            _ => Format::Text,
        }
    }
    /// The codes' bytes: two of them are equal if and only if they say the same.
    pub fn bytes(&self) -> &[u8] {
        self.0
    }
    fn check(self) -> SqlResult<Self> {
        match self.0.as_chunks::<2>().0.iter().find(|c| !matches!(c, [0, 0 | 1])) {
            None => Ok(self),
            Some(c) => Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("unsupported format code: {}", i16::from_be_bytes(*c)),
            )),
        }
    }
}

/// Parameter values of a Bind message; their lengths have been checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Params<'a> {
    /// How many.
    pub fn len(self) -> usize {
        self.count
    }
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }
    /// The values in order; `None` is NULL.
    pub fn iter(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut r = Reader::new(self.bytes);
        (0..self.count).map(move |_| {
            let len = usize::try_from(r.i32().ok()?).ok()?;
            r.bytes(len).ok()
        })
    }
}

impl<'a> Frontend<'a> {
    /// Decodes a message. An error leaves the stream in order: the next message starts where the frame ends.
    pub fn decode(tag: u8, body: &'a [u8]) -> SqlResult<Self> {
        let mut r = Reader::new(body);
        let message = match tag {
            b'Q' => Self::Query(r.cstr()?),
            b'P' => {
                let (name, sql) = (r.cstr()?, r.cstr()?);
                let n = r.count()?;
                Self::Parse { name, sql, types: Oids(r.bytes(n * 4)?) }
            }
            b'B' => return bind(r),
            b'D' => match (r.u8()?, r.cstr()?) {
                (b'S', name) => Self::DescribeStatement(name),
                (b'P', name) => Self::DescribePortal(name),
                (other, _) => return Err(subtype("DESCRIBE", other)),
            },
            b'C' => match (r.u8()?, r.cstr()?) {
                (b'S', name) => Self::CloseStatement(name),
                (b'P', name) => Self::ClosePortal(name),
                (other, _) => return Err(subtype("CLOSE", other)),
            },
            // A negative limit means none, as in PostgreSQL.
            b'E' => Self::Execute { portal: r.cstr()?, max_rows: u32::try_from(r.i32()?).unwrap_or(0) },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'd' => return Ok(Self::CopyData(body)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(r.cstr()?),
            b'X' => Self::Terminate,
            b'F' => return Ok(Self::FunctionCall),
            b'p' => return Ok(Self::Password),
            other => {
                return Err(SqlError::new(
                    SqlState::PROTOCOL_VIOLATION,
                    format!("invalid frontend message type {other}"),
                ));
            }
        };
        r.end()?;
        Ok(message)
    }
}

/// Whether `tag` starts a message that exists: anything else means that the stream is out of step.
pub fn is_known(tag: u8) -> bool {
    matches!(tag, b'Q' | b'P' | b'B' | b'D' | b'C' | b'E' | b'H' | b'S' | b'd' | b'c' | b'f' | b'X' | b'F' | b'p')
}

fn subtype(what: &str, got: u8) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("invalid {what} message subtype {got}"))
}

fn bind(mut r: Reader<'_>) -> SqlResult<Frontend<'_>> {
    let (portal, statement) = (r.cstr()?, r.cstr()?);
    let n = r.count()?;
    let formats = Formats(r.bytes(n * 2)?).check()?;
    let count = r.count()?;
    let before = r.rest();
    let mut r = Reader::new(before);
    let mut taken = 0;
    for _ in 0..count {
        let len = r.i32()?;
        taken += 4;
        if len >= 0 {
            r.bytes(len as usize)?;
            taken += len as usize;
        } else if len != -1 {
            return Err(malformed());
        }
    }
    let params = Params { count, bytes: &before[..taken] };
    let n = r.count()?;
    let results = Formats(r.bytes(n * 2)?).check()?;
    r.end()?;
    if formats.len() > 1 && formats.len() != count {
        return Err(SqlError::new(
            SqlState::PROTOCOL_VIOLATION,
            format!("bind message has {} parameter formats but {count} parameters", formats.len()),
        ));
    }
    Ok(Frontend::Bind(Bind { portal, statement, formats, params, results }))
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

    #[test]
    fn bind_takes_formats_and_values() {
        let body = bind_body(&[1, 0], &[Some(b"ab"), None], &[1]);
        let Frontend::Bind(bind) = Frontend::decode(b'B', &body).unwrap() else { panic!() };
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        assert_eq!(bind.params.iter().collect::<Vec<_>>(), [Some(&b"ab"[..]), None]);
        assert_eq!((bind.formats.get(0), bind.formats.get(1)), (Format::Binary, Format::Text));
        assert_eq!(bind.results.get(7), Format::Binary);
        for bad in [bind_body(&[2], &[], &[]), bind_body(&[0, 0, 0], &[None], &[])] {
            assert!(Frontend::decode(b'B', &bad).is_err());
        }
        for cut in 0..body.len() {
            assert!(Frontend::decode(b'B', &body[..cut]).is_err());
        }
    }

    #[test]
    fn frames_wait_for_their_end_and_refuse_bad_lengths() {
        let q = b"Q\0\0\0\x0dselect 1\0";
        for n in 0..q.len() {
            assert_eq!(frame(&q[..n], 100).unwrap(), None);
        }
        assert_eq!(frame(q, 100).unwrap(), Some(Frame { tag: b'Q', len: q.len() }));
        assert!(matches!(Frontend::decode(b'Q', &q[5..]).unwrap(), Frontend::Query("select 1")));
        assert!(frame(&[b'Q', 0, 0, 0, 3], 100).is_err());
        assert!(frame(&[b'Q', 0, 0, 1, 0], 100).is_err());
        assert!(Frontend::decode(b'Q', b"\xff\0").is_err());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(tag: u8, body: Vec<u8>) {
            for tag in [tag, b'B', b'P', b'D', b'C', b'E', b'Q', b'f'] {
                if let Ok(Frontend::Bind(b)) = Frontend::decode(tag, &body) {
                    assert_eq!(b.params.iter().count(), b.params.len());
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
                b.params.iter().for_each(drop);
            }
        }
    }
}
