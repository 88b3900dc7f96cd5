//! Decodes the fields of a message's body. Every read is checked, so a client's bytes never cause a
//! panic.

use clearway_types::{SqlError, SqlResult, SqlState};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// 08P01 with PostgreSQL's message for a truncated field.
pub(crate) fn malformed() -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message")
}

/// Checks that the bytes are UTF-8. The error 22021 shows the first invalid character, with as many
/// bytes as its first byte announces.
#[inline]
pub fn utf8(bytes: &[u8]) -> SqlResult<&str> {
    std::str::from_utf8(bytes).map_err(|e| invalid(&bytes[e.valid_up_to()..]))
}

/// Returns the error for text that goes on with these bytes.
#[cold]
fn invalid(bad: &[u8]) -> SqlError {
    let announced = match bad.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let shown: String = bad.iter().take(announced).map(|byte| format!(" 0x{byte:02x}")).collect();
    SqlError::new(
        SqlState::NOT_IN_REPERTOIRE,
        format!("invalid byte sequence for encoding \"UTF8\":{shown}"),
    )
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
        let missing = || SqlError::new(SqlState::PROTOCOL_VIOLATION, "no data left in message");
        let (&byte, tail) = self.rest.split_first().ok_or_else(missing)?;
        self.rest = tail;
        Ok(byte)
    }
    /// Decodes a count of fields: an unsigned 16-bit integer.
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
    /// Decodes a zero-terminated string as bytes.
    pub(crate) fn cstr_bytes(&mut self) -> SqlResult<&'a [u8]> {
        let end = self.rest.iter().position(|&b| b == 0).ok_or_else(|| {
            SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid string in message")
        })?;
        let head = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(head)
    }
    pub(crate) fn cstr(&mut self) -> SqlResult<&'a str> {
        match self.cstr_bytes()? {
            // Most names: the unnamed portal's.
            [] => Ok(""),
            bytes => utf8(bytes),
        }
    }
    pub(crate) fn end(self) -> SqlResult<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid message format"))
    }
}
