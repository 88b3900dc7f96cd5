//! Requests and replies as words.
//!
//! | request | words after kind, tag and start timestamp |
//! |---|---|
//! | lock | row, 1 for exclusive |
//! | peek | row |
//! | release | row |
//! | end | for each changed row its number and its payload; releases every lock of the transaction |
//!
//! | reply | words after kind and tag |
//! |---|---|
//! | locked | 1 if it waited, payload |
//! | refused | an older holder or 0, the newest start timestamp among the holders |
//! | payload | payload |
//! | done | - |
//! | bad | - |
//!
//! The tag is the transaction's slot at its worker, which has one request in flight at each owner.

use crate::{AbortCause, RowId, StartTimestamp, Table};

/// Returns the words of the longest message of a transaction with at most `rows` rows.
pub fn message_words(table: &Table, rows: usize) -> usize {
    3 + (1 + table.longest_payload()) * rows.max(1)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Lock { row: u32, exclusive: bool },
    Peek { row: u32 },
    Release { row: u32 },
    End { writes: Vec<(u32, Vec<u64>)> },
}

/// A request with its tag and transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub tag: u64,
    pub start: StartTimestamp,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Locked { waited: bool, payload: Vec<u64> },
    Refused { cause: AbortCause, newest: StartTimestamp },
    Payload(Vec<u64>),
    Done,
    Bad,
}

impl Asked {
    pub fn encode(&self) -> Vec<u64> {
        let head = |kind| vec![kind, self.tag, self.start.0];
        match &self.request {
            Request::Lock { row, exclusive } => {
                [head(1), vec![u64::from(*row), u64::from(*exclusive)]].concat()
            }
            Request::Peek { row } => [head(2), vec![u64::from(*row)]].concat(),
            Request::Release { row } => [head(3), vec![u64::from(*row)]].concat(),
            Request::End { writes } => {
                let write =
                    |(row, payload): &(u32, Vec<u64>)| [&[u64::from(*row)], &payload[..]].concat();
                [head(4), writes.iter().flat_map(write).collect()].concat()
            }
        }
    }

    /// Decodes a request. Returns `None` if it is not a request for rows of this table.
    pub fn decode(words: &[u64], table: &Table) -> Option<Self> {
        let [kind, tag, start, rest @ ..] = words else { return None };
        let known = |word: &u64| {
            u32::try_from(*word).ok().filter(|row| *row < table.rows + table.buckets.rows)
        };
        let request = match (kind, rest) {
            (1, [row, exclusive @ (0 | 1)]) => {
                Request::Lock { row: known(row)?, exclusive: *exclusive == 1 }
            }
            (2, [row]) => Request::Peek { row: known(row)? },
            (3, [row]) => Request::Release { row: known(row)? },
            (4, mut rest) => {
                let mut writes = Vec::new();
                while let [row, behind @ ..] = rest {
                    let row = known(row)?;
                    let (payload, others) = behind
                        .split_at_checked(table.payload_words_of(RowId { owner: 0, index: row }))?;
                    writes.push((row, payload.to_vec()));
                    rest = others;
                }
                Request::End { writes }
            }
            _ => return None,
        };
        (*start != 0).then_some(Self { tag: *tag, start: StartTimestamp(*start), request })
    }
}

impl Reply {
    pub fn encode(&self, tag: u64) -> Vec<u64> {
        match self {
            Self::Locked { waited, payload } => {
                [&[1, tag, u64::from(*waited)], &payload[..]].concat()
            }
            Self::Refused { cause, newest } => {
                let older = if let AbortCause::Older(holder) = cause { holder.0 } else { 0 };
                vec![2, tag, older, newest.0]
            }
            Self::Payload(payload) => [&[3, tag], &payload[..]].concat(),
            Self::Done => vec![4, tag],
            Self::Bad => vec![5, tag],
        }
    }

    /// Decodes the tag and the reply. Returns `None` if the words are not a reply.
    pub fn decode(words: &[u64]) -> Option<(u64, Self)> {
        let [kind, tag, rest @ ..] = words else { return None };
        let reply = match (kind, rest) {
            (1, [waited, payload @ ..]) => {
                Self::Locked { waited: *waited == 1, payload: payload.to_vec() }
            }
            (2, [older, newest]) => {
                let cause = if *older == 0 {
                    AbortCause::Conflict
                } else {
                    AbortCause::Older(StartTimestamp(*older))
                };
                Self::Refused { cause, newest: StartTimestamp(*newest) }
            }
            (3, payload) => Self::Payload(payload.to_vec()),
            (4, []) => Self::Done,
            (5, []) => Self::Bad,
            _ => return None,
        };
        Some((*tag, reply))
    }
}
