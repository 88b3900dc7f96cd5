//! Takes fields off the front of a message's body. Every read is checked: a client's bytes never panic.

use clearway_types::{SqlError, SqlResult, SqlState};

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// 08P01 with PostgreSQL's wording for a field that is cut short.
pub(crate) fn malformed() -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message")
}

/// The bytes as UTF-8, or 22021 naming the first bad byte.
pub fn utf8(bytes: &[u8]) -> SqlResult<&str> {
    std::str::from_utf8(bytes).map_err(|e| {
        let bad = bytes.get(e.valid_up_to()).copied().unwrap_or(0);
        SqlError::new(SqlState::NOT_IN_REPERTOIRE, format!("invalid byte sequence for encoding \"UTF8\": 0x{bad:02x}"))
    })
}

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }
    fn array<const N: usize>(&mut self) -> SqlResult<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or_else(malformed)?;
        self.rest = tail;
        Ok(*head)
    }
    pub(crate) fn u8(&mut self) -> SqlResult<u8> {
        self.array::<1>().map(|[b]| b)
    }
    /// A count of fields: 16 bits, and not negative.
    pub(crate) fn count(&mut self) -> SqlResult<usize> {
        self.array().map(|b| usize::from(u16::from_be_bytes(b)))
    }
    pub(crate) fn i32(&mut self) -> SqlResult<i32> {
        self.array().map(i32::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> SqlResult<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn bytes(&mut self, n: usize) -> SqlResult<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or_else(malformed)?;
        self.rest = tail;
        Ok(head)
    }
    /// A string up to its terminating zero byte, raw.
    pub(crate) fn cstr_bytes(&mut self) -> SqlResult<&'a [u8]> {
        let end = self
            .rest
            .iter()
            .position(|&b| b == 0)
            .ok_or_else(|| SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid string in message"))?;
        let head = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(head)
    }
    pub(crate) fn cstr(&mut self) -> SqlResult<&'a str> {
        utf8(self.cstr_bytes()?)
    }
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
    pub(crate) fn end(self) -> SqlResult<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid message format"))
    }
}
