//! The byte format of a connection after the handshake.
//!
//! A frame consists of its length (4 bytes, not counting themselves), an operation code (1 byte),
//! and the operation's fields. Numbers are little-endian.
//!
//! | code | frame | fields |
//! |---|---|---|
//! | 1 | READ | key, word: 8 bytes each; count of words: 4 bytes |
//! | 2 | WRITE | key, word; the words |
//! | 3 | CAS | key, word, expected, new |
//! | 4 | FAA | key, word, addend |
//! | 5 | SEND | the words |
//! | 16 | a READ is done | the words |
//! | 17 | a WRITE is done | |
//! | 18 | a CAS or FAA is done | the old value |
//! | 19 | a READ, WRITE, CAS or FAA was refused | |
//! | 20 | a SEND is done | 0: received; 1: too long; 2: the worker is gone |
//! | 21 | the accepting worker is gone | |
//!
//! Codes 1 to 4 go from the connecting side to the accepting side, 16 to 19 and 21 back, 5 and 20
//! both ways. Replies come in request order: 16 to 19 among themselves, and 20 among themselves.

use std::fmt;

/// The longest READ, WRITE or message, in words.
pub const MAX_WORDS: usize = 8192;

/// The longest frame without its length field: code, key, word, and words.
const MAX_FRAME: usize = 1 + 16 + MAX_WORDS * 8;

/// How a SEND ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// A RECV has received the message.
    Taken,
    /// The message did not fit the RECV.
    TooLong,
    /// The worker at the other end is gone.
    Gone,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpFrame<'a> {
    /// Requests words.
    Read {
        /// The region's key.
        key: u64,
        /// The first word.
        word: u64,
        /// The number of words, 1 to [`MAX_WORDS`].
        words: u32,
    },
    /// Writes words to memory.
    Write {
        /// The region's key.
        key: u64,
        /// The first word.
        word: u64,
        /// The words, at least one.
        payload: Words<'a>,
    },
    /// Compare-and-swap.
    Cas {
        /// The region's key.
        key: u64,
        /// The word.
        word: u64,
        /// The value that permits the swap.
        expected: u64,
        /// The new value of the word.
        new: u64,
    },
    /// Fetch-and-add.
    Faa {
        /// The region's key.
        key: u64,
        /// The word.
        word: u64,
        /// The addend.
        add: u64,
    },
    /// A message of at least one word.
    Send(Words<'a>),
    /// The words that a READ requested.
    ReadDone(Words<'a>),
    /// A WRITE has landed.
    WriteDone,
    /// The old value that a CAS or FAA found.
    AtomicDone(u64),
    /// The key or bounds of a READ, WRITE, CAS or FAA are invalid. Later requests of the connection
    /// are not executed.
    Refused,
    /// The end of a SEND.
    SendDone(SendStatus),
    /// The accepting worker is gone and sends nothing more.
    Left,
}

/// Words in their byte format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Returns the number of words.
    pub fn len(self) -> usize {
        self.0.len() / 8
    }

    /// Returns true if there are no words.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the words' values.
    pub fn values(self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
    }
}

/// Bytes that no correct peer sends. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed frame")
    }
}

impl std::error::Error for Malformed {}

/// Decodes the first frame of `bytes`. Returns it with its size in bytes, or `None` if it is
/// incomplete.
///
/// # Errors
/// Returns [`Malformed`] for an unknown code, fields of the wrong size, too many words or none.
pub fn decode(bytes: &[u8]) -> Result<Option<(TcpFrame<'_>, usize)>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if !(1..=MAX_FRAME).contains(&length) {
        return Err(Malformed);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((decode_body(body[0], &body[1..])?, 4 + length)))
}

fn decode_body(code: u8, fields: &[u8]) -> Result<TcpFrame<'_>, Malformed> {
    let number = |at: usize| {
        fields.get(at * 8..at * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    };
    let number = |at| number(at).ok_or(Malformed);
    let exactly = |bytes: usize| if fields.len() == bytes { Ok(()) } else { Err(Malformed) };
    let words = |from: usize| {
        let words =
            fields.get(from..).filter(|words| !words.is_empty() && words.len().is_multiple_of(8));
        words.filter(|words| words.len() <= MAX_WORDS * 8).map(Words).ok_or(Malformed)
    };
    match code {
        1 => {
            exactly(20)?;
            let words = fields[16..].try_into().map(u32::from_le_bytes).map_err(|_| Malformed)?;
            if !(1..=MAX_WORDS).contains(&(words as usize)) {
                return Err(Malformed);
            }
            Ok(TcpFrame::Read { key: number(0)?, word: number(1)?, words })
        }
        2 => Ok(TcpFrame::Write { key: number(0)?, word: number(1)?, payload: words(16)? }),
        3 => {
            exactly(32)?;
            Ok(TcpFrame::Cas {
                key: number(0)?,
                word: number(1)?,
                expected: number(2)?,
                new: number(3)?,
            })
        }
        4 => exactly(24).and(Ok(TcpFrame::Faa {
            key: number(0)?,
            word: number(1)?,
            add: number(2)?,
        })),
        5 => words(0).map(TcpFrame::Send),
        16 => words(0).map(TcpFrame::ReadDone),
        17 => exactly(0).and(Ok(TcpFrame::WriteDone)),
        18 => exactly(8).and(Ok(TcpFrame::AtomicDone(number(0)?))),
        19 => exactly(0).and(Ok(TcpFrame::Refused)),
        20 => match fields {
            [0] => Ok(TcpFrame::SendDone(SendStatus::Taken)),
            [1] => Ok(TcpFrame::SendDone(SendStatus::TooLong)),
            [2] => Ok(TcpFrame::SendDone(SendStatus::Gone)),
            _ => Err(Malformed),
        },
        21 => exactly(0).and(Ok(TcpFrame::Left)),
        _ => Err(Malformed),
    }
}

/// Appends a frame with the given numbers and words.
fn encode(out: &mut Vec<u8>, code: u8, numbers: &[u64], words: &[u64]) {
    let length = 1 + (numbers.len() + words.len()) * 8;
    out.reserve(4 + length);
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.push(code);
    for number in numbers.iter().chain(words) {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Appends a READ.
pub fn read(out: &mut Vec<u8>, key: u64, word: u64, words: u32) {
    out.extend_from_slice(&21_u32.to_le_bytes());
    out.push(1);
    out.extend_from_slice(&key.to_le_bytes());
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(&words.to_le_bytes());
}

/// Appends a WRITE.
pub fn write(out: &mut Vec<u8>, key: u64, word: u64, words: &[u64]) {
    encode(out, 2, &[key, word], words);
}

/// Appends a CAS.
pub fn cas(out: &mut Vec<u8>, key: u64, word: u64, expected: u64, new: u64) {
    encode(out, 3, &[key, word, expected, new], &[]);
}

/// Appends an FAA.
pub fn faa(out: &mut Vec<u8>, key: u64, word: u64, add: u64) {
    encode(out, 4, &[key, word, add], &[]);
}

/// Appends a SEND.
pub fn send(out: &mut Vec<u8>, words: &[u64]) {
    encode(out, 5, &[], words);
}

/// Appends the reply to a READ.
pub fn read_done(out: &mut Vec<u8>, words: &[u64]) {
    encode(out, 16, &[], words);
}

/// Appends the reply to a WRITE.
pub fn write_done(out: &mut Vec<u8>) {
    encode(out, 17, &[], &[]);
}

/// Appends the reply to a CAS or FAA.
pub fn atomic_done(out: &mut Vec<u8>, old: u64) {
    encode(out, 18, &[old], &[]);
}

/// Appends the refusal of a READ, WRITE, CAS or FAA.
pub fn refused(out: &mut Vec<u8>) {
    encode(out, 19, &[], &[]);
}

/// Appends the notice that the accepting worker is gone.
pub fn left(out: &mut Vec<u8>) {
    encode(out, 21, &[], &[]);
}

/// Appends the end of a SEND.
pub fn send_done(out: &mut Vec<u8>, status: SendStatus) {
    out.extend_from_slice(&2_u32.to_le_bytes());
    out.push(20);
    out.push(match status {
        SendStatus::Taken => 0,
        SendStatus::TooLong => 1,
        SendStatus::Gone => 2,
    });
}
