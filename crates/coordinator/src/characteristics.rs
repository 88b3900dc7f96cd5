//! The characteristics of a transaction: isolation level, access mode, and DEFERRABLE, with
//! PostgreSQL's rules for changing them.
//!
//! READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL. What a statement sees at each level:
//! [`crate::snapshot`].

use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_types::{SqlError, SqlResult, SqlState};

/// What a transaction may do, and which isolation it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Characteristics {
    /// The level asked for.
    pub isolation: Isolation,
    /// It cannot write.
    pub read_only: bool,
    /// It may wait for a safe snapshot. Without effect: no transaction is aborted for its reads.
    pub deferrable: bool,
}

/// How far a transaction is, as far as its characteristics depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// It has run a statement that may look at data.
    pub queried: bool,
    /// It has a savepoint.
    pub savepoint: bool,
}

impl Characteristics {
    /// Takes over what the options name.
    ///
    /// # Errors
    /// 25001 if a transaction that has come so far can no longer change this.
    pub(crate) fn change(&mut self, options: TxnOptions, at: Progress) -> SqlResult<()> {
        if let Some(isolation) = options.isolation {
            self.set_isolation(isolation, at)?;
        }
        if let Some(read_only) = options.read_only {
            self.set_read_only(read_only, at)?;
        }
        if let Some(deferrable) = options.deferrable {
            self.set_deferrable(deferrable, at)?;
        }
        Ok(())
    }

    fn set_isolation(&mut self, isolation: Isolation, at: Progress) -> SqlResult<()> {
        if isolation != self.isolation {
            if at.queried {
                return Err(too_late(
                    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                ));
            }
            if at.savepoint {
                return Err(too_late(
                    "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction",
                ));
            }
        }
        self.isolation = isolation;
        Ok(())
    }

    /// A transaction may give up writing at any time; it takes that back only before its first
    /// query and outside a savepoint.
    fn set_read_only(&mut self, read_only: bool, at: Progress) -> SqlResult<()> {
        if self.read_only && !read_only {
            if at.savepoint {
                return Err(too_late(
                    "cannot set transaction read-write mode inside a read-only transaction",
                ));
            }
            if at.queried {
                return Err(too_late("transaction read-write mode must be set before any query"));
            }
        }
        self.read_only = read_only;
        Ok(())
    }

    fn set_deferrable(&mut self, deferrable: bool, at: Progress) -> SqlResult<()> {
        if at.savepoint {
            return Err(too_late(
                "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction",
            ));
        }
        if at.queried {
            return Err(too_late(
                "SET TRANSACTION [NOT] DEFERRABLE must be called before any query",
            ));
        }
        self.deferrable = deferrable;
        Ok(())
    }
}

/// 25001.
pub(crate) fn too_late(text: &str) -> SqlError {
    SqlError::new(SqlState::ACTIVE_TRANSACTION, text)
}
