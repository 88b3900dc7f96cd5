//! Transaction characteristics: isolation level, access mode and DEFERRABLE, with PostgreSQL's
//! rules for changing them.
//!
//! READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL. [`crate::snapshot`] defines what a
//! statement sees at each level.

use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_types::{SqlError, SqlResult, SqlState};

/// A transaction's access mode and requested isolation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Characteristics {
    /// The requested level.
    pub isolation: Isolation,
    /// The transaction cannot write.
    pub read_only: bool,
    /// The transaction may wait for a safe snapshot. No effect: no transaction is aborted for its
    /// reads.
    pub deferrable: bool,
}

/// How a statement runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The statement is one of several in an implicit transaction: do not commit after it;
    /// [`crate::Client::end_implicit`] will.
    pub implicit_block: bool,
    /// Characteristics of the transaction that it begins, if any: the session's defaults.
    pub characteristics: Characteristics,
}

/// The parts of a transaction's state that restrict changes of its characteristics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// It has executed a statement that may read data.
    pub queried: bool,
    /// It has a savepoint.
    pub savepoint: bool,
}

impl Characteristics {
    /// Applies the given options.
    ///
    /// # Errors
    /// 25001 if the transaction can no longer change a characteristic.
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

    /// READ ONLY may be set at any time. READ WRITE may be restored only before the first query and
    /// outside a savepoint.
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

/// Returns error 25001.
pub(crate) fn too_late(text: &str) -> SqlError {
    SqlError::new(SqlState::ACTIVE_TRANSACTION, text)
}
