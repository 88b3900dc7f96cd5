//! Statements about cursors.

use super::Pred;
use std::fmt;

/// A statement on a cursor.
#[derive(Clone, Debug, PartialEq)]
pub enum CursorStmt {
    /// DECLARE, for a SELECT of whole rows without a locking clause.
    Declare {
        /// The cursor.
        cursor: u8,
        /// The table.
        table: String,
        /// The rows.
        pred: Pred,
    },
    /// FETCH. MOVE differs only in the server, which drops the rows.
    Fetch {
        /// The cursor.
        cursor: u8,
        /// How many rows; `None`: ALL.
        rows: Option<usize>,
    },
    /// CLOSE
    Close(u8),
}

impl CursorStmt {
    /// Returns the cursor's number.
    pub fn cursor(&self) -> u8 {
        match self {
            Self::Declare { cursor, .. } | Self::Fetch { cursor, .. } | Self::Close(cursor) => {
                *cursor
            }
        }
    }

    /// Returns the query that DECLARE starts.
    pub fn query(&self) -> Option<String> {
        match self {
            Self::Declare { table, pred, .. } => {
                Some(format!("SELECT d, k, a, u, v FROM {table}{pred}"))
            }
            Self::Fetch { .. } | Self::Close(_) => None,
        }
    }
}

impl fmt::Display for CursorStmt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declare { cursor, .. } => {
                write!(f, "DECLARE c{cursor} CURSOR FOR {}", self.query().unwrap_or_default())
            }
            Self::Fetch { cursor, rows: Some(rows) } => write!(f, "FETCH {rows} FROM c{cursor}"),
            Self::Fetch { cursor, rows: None } => write!(f, "FETCH ALL FROM c{cursor}"),
            Self::Close(cursor) => write!(f, "CLOSE c{cursor}"),
        }
    }
}
