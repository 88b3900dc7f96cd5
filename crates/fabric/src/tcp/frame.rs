//! What passes over a connection once both sides know each other, as bytes.
//!
//! A frame is its length after these four bytes, an operation code, and the operation's fields;
//! numbers are little-endian.
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
//! | 20 | a SEND is done | 0: taken; 1: too long; 2: nobody is there |
//! | 21 | the worker that accepted has gone | |
//!
//! Codes 1 to 4 go from the connecting side to the other, 16 to 19 and 21 back, 5 and 20 both ways.
//! Answers come in the order of requests: 16 to 19 among themselves, 20 among themselves.

use std::fmt;

/// The longest READ, WRITE or message, in words.
pub const MAX_WORDS: usize = 8192;

/// The longest frame after its length: code, key, word, and words.
const MAX_FRAME: usize = 1 + 16 + MAX_WORDS * 8;

/// How a SEND ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// A RECV has taken the message.
    Taken,
    /// The message did not fit the RECV.
    TooLong,
    /// The worker at the other end is gone.
    Gone,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Asks for words.
    Read {
        /// The region's key.
        key: u64,
        /// The first word.
        word: u64,
        /// How many, 1 to [`MAX_WORDS`].
        words: u32,
    },
    /// Carries words to memory.
    Write {
        /// The region's key.
        key: u64,
        /// The first word.
        word: u64,
        /// At least one.
        payload: Words<'a>,
    },
    /// Compare-and-swap.
    Cas {
        /// The region's key.
        key: u64,
        /// The word.
        word: u64,
        /// The value that allows the swap.
        expected: u64,
        /// The value that the word gets.
        new: u64,
    },
    /// Fetch-and-add.
    Faa {
        /// The region's key.
        key: u64,
        /// The word.
        word: u64,
        /// What is added.
        add: u64,
    },
    /// A message of at least one word.
    Send(Words<'a>),
    /// The words that a READ asked for.
    ReadDone(Words<'a>),
    /// A WRITE has landed.
    WriteDone,
    /// The old value that a CAS or FAA found.
    AtomicDone(u64),
    /// The key or bounds of a READ, WRITE, CAS or FAA are bad. What follows on the connection is
    /// not executed.
    Refused,
    /// The end of a SEND.
    SendDone(SendStatus),
    /// The worker at the accepting side has gone: it sends nothing more.
    Left,
}

/// Words as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len() / 8
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The words' values.
    pub fn values(self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
    }
}

/// Bytes that no peer of ours sends: the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed frame")
    }
}

impl std::error::Error for Malformed {}

/// Takes the first frame from `bytes`, with the number of bytes that it takes up; `None` if it is
/// not there whole.
///
/// # Errors
/// [`Malformed`] for an unknown code, fields of the wrong size, too many words or none.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if !(1..=MAX_FRAME).contains(&length) {
        return Err(Malformed);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((decode_body(body[0], &body[1..])?, 4 + length)))
}

fn decode_body(code: u8, fields: &[u8]) -> Result<Frame<'_>, Malformed> {
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
            Ok(Frame::Read { key: number(0)?, word: number(1)?, words })
        }
        2 => Ok(Frame::Write { key: number(0)?, word: number(1)?, payload: words(16)? }),
        3 => {
            exactly(32)?;
            Ok(Frame::Cas {
                key: number(0)?,
                word: number(1)?,
                expected: number(2)?,
                new: number(3)?,
            })
        }
        4 => exactly(24).and(Ok(Frame::Faa { key: number(0)?, word: number(1)?, add: number(2)? })),
        5 => words(0).map(Frame::Send),
        16 => words(0).map(Frame::ReadDone),
        17 => exactly(0).and(Ok(Frame::WriteDone)),
        18 => exactly(8).and(Ok(Frame::AtomicDone(number(0)?))),
        19 => exactly(0).and(Ok(Frame::Refused)),
        20 => match fields {
            [0] => Ok(Frame::SendDone(SendStatus::Taken)),
            [1] => Ok(Frame::SendDone(SendStatus::TooLong)),
            [2] => Ok(Frame::SendDone(SendStatus::Gone)),
            _ => Err(Malformed),
        },
        21 => exactly(0).and(Ok(Frame::Left)),
        _ => Err(Malformed),
    }
}

/// Appends a frame; its words, if it carries any, are `words`.
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

/// Appends the answer to a READ.
pub fn read_done(out: &mut Vec<u8>, words: &[u64]) {
    encode(out, 16, &[], words);
}

/// Appends the answer to a WRITE.
pub fn write_done(out: &mut Vec<u8>) {
    encode(out, 17, &[], &[]);
}

/// Appends the answer to a CAS or FAA.
pub fn atomic_done(out: &mut Vec<u8>, old: u64) {
    encode(out, 18, &[old], &[]);
}

/// Appends the refusal of a READ, WRITE, CAS or FAA.
pub fn refused(out: &mut Vec<u8>) {
    encode(out, 19, &[], &[]);
}

/// Appends the notice that the accepting worker has gone.
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
