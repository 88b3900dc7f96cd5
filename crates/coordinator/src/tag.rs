//! Command tags, as sent in CommandComplete.

use std::fmt;

/// A statement's command tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `SELECT n`
    Select(u64),
    /// `INSERT 0 n`
    Insert(u64),
    /// `UPDATE n`
    Update(u64),
    /// `DELETE n`
    Delete(u64),
    /// `FETCH n`
    Fetch(u64),
    /// `MOVE n`
    Move(u64),
    /// `COPY n`
    Copy(u64),
    /// A tag without a count.
    Plain(&'static str),
}

impl Tag {
    /// Returns the tag with this count, if it has one.
    #[must_use]
    pub fn with_count(self, n: u64) -> Self {
        match self {
            Self::Select(_) => Self::Select(n),
            Self::Insert(_) => Self::Insert(n),
            Self::Update(_) => Self::Update(n),
            Self::Delete(_) => Self::Delete(n),
            Self::Fetch(_) => Self::Fetch(n),
            Self::Move(_) => Self::Move(n),
            Self::Copy(_) => Self::Copy(n),
            Self::Plain(_) => self,
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select(n) => write!(f, "SELECT {n}"),
            Self::Insert(n) => write!(f, "INSERT 0 {n}"),
            Self::Update(n) => write!(f, "UPDATE {n}"),
            Self::Delete(n) => write!(f, "DELETE {n}"),
            Self::Fetch(n) => write!(f, "FETCH {n}"),
            Self::Move(n) => write!(f, "MOVE {n}"),
            Self::Copy(n) => write!(f, "COPY {n}"),
            Self::Plain(s) => f.write_str(s),
        }
    }
}
