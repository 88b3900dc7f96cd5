//! The calls that every way to reach rows has in common: by one-sided verbs, or by messages to the
//! owners.

use crate::{Event, RemoteError, RowId, StartTimestamp, Stats, Table, TxnHandle};

/// Transactions on the rows of a table, several at a time. No call blocks: what it has started ends
/// in an [`Event`].
///
/// # Panics
/// Calls panic if their transaction is not running or has a call under way, and for more rows than
/// the limits allow.
///
/// # Errors
/// After an error the client is of no use: locks that it holds stay until somebody recovers them.
pub trait RowClient {
    /// The table that the rows belong to.
    fn table(&self) -> &Table;

    /// What the client has counted.
    fn stats(&self) -> &Stats;

    /// Starts a transaction; `None` if there are as many as the limits allow.
    fn begin(&mut self) -> Option<TxnHandle>;

    /// Starts an aborted transaction again, with the start timestamp that it had; `None` as
    /// [`RowClient::begin`].
    fn restart(&mut self, start: StartTimestamp) -> Option<TxnHandle>;

    /// When a transaction started first.
    fn start(&self, txn: TxnHandle) -> StartTimestamp;

    /// A number that no other transaction of the table has, restarts included; less than 2^63 and
    /// not 0.
    fn attempt(&self, txn: TxnHandle) -> u64;

    /// Locks a row and reads it: exclusively if `update`, otherwise shared where the mode has
    /// shared locks. Ends in [`Event::Locked`] or [`Event::Aborted`].
    fn get(&mut self, txn: TxnHandle, row: RowId, update: bool) -> Result<(), RemoteError>;

    /// Reads a row without a lock, for a hint. Ends in [`Event::Peeked`].
    fn peek(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError>;

    /// Releases the lock of a row before the end. Whoever calls this must not use what was read, or
    /// two-phase locking is broken. Ends in [`Event::Released`].
    ///
    /// # Panics
    /// Also if the row was set.
    fn release(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError>;

    /// Whether the transaction has locked a row.
    fn holds(&self, txn: TxnHandle, row: RowId) -> bool;

    /// Whether the transaction has locked a row for update.
    fn is_for_update(&self, txn: TxnHandle, row: RowId) -> bool;

    /// Copies the payload of a row that was locked or peeked at, with what the transaction has set.
    fn payload(&self, txn: TxnHandle, row: RowId, out: &mut [u64]);

    /// Sets the payload that a row gets at commit.
    ///
    /// # Panics
    /// Also if the row is not locked for update, or the payload has another length.
    fn set(&mut self, txn: TxnHandle, row: RowId, payload: &[u64]);

    /// Writes what was set, then releases the locks. Ends in [`Event::Committed`].
    fn commit(&mut self, txn: TxnHandle) -> Result<(), RemoteError>;

    /// Releases the locks and forgets what was set. Ends in [`Event::Aborted`].
    fn abort(&mut self, txn: TxnHandle) -> Result<(), RemoteError>;

    /// Takes in what has arrived, goes on with the transactions, and appends what has happened.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), RemoteError>;

    /// Whether [`RowClient::poll`] has something to do before anything arrives.
    fn is_ready(&self) -> bool;

    /// Whether a transaction waits for memory of this node, of whose changes nobody tells: poll
    /// often.
    fn watches_memory(&self) -> bool {
        false
    }
}
