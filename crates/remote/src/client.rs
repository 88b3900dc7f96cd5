//! The calls that both ways to reach rows share: one-sided verbs, and messages to the owners.

use crate::{RemoteError, RemoteStats, RowId, StartTimestamp, Table, TxnHandle, WorkerEvent};

/// Concurrent transactions on the rows of a table. No call blocks: the operation that it starts
/// ends in a [`WorkerEvent`].
///
/// # Panics
/// Calls panic if their transaction is not running or has a call in flight, and if a transaction
/// accesses more rows than the limits allow.
///
/// # Errors
/// After an error the client is unusable. Locks that it holds stay until recovery frees them.
pub trait RowClient {
    /// Returns the table of the rows.
    fn table(&self) -> &Table;

    /// Returns the client's counts.
    fn stats(&self) -> &RemoteStats;

    /// Starts a transaction. Returns `None` if the limit of transactions is reached.
    fn begin(&mut self) -> Option<TxnHandle>;

    /// Restarts an aborted transaction with its previous start timestamp. Returns `None` as
    /// [`RowClient::begin`] does.
    fn restart(&mut self, start: StartTimestamp) -> Option<TxnHandle>;

    /// Returns the start timestamp of a transaction, which restarts keep.
    fn start(&self, txn: TxnHandle) -> StartTimestamp;

    /// Returns a number that is unique among all attempts of all transactions of the table. It is
    /// less than 2^63 and not 0.
    fn attempt(&self, txn: TxnHandle) -> u64;

    /// Locks a row and reads it. The lock is exclusive if `update`, otherwise shared if the mode
    /// has shared locks. Ends in [`WorkerEvent::Locked`] or [`WorkerEvent::Aborted`].
    fn get(&mut self, txn: TxnHandle, row: RowId, update: bool) -> Result<(), RemoteError>;

    /// Reads a row without a lock, as a hint. Ends in [`WorkerEvent::Peeked`].
    fn peek(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError>;

    /// Releases the lock of a row before the transaction ends. The caller must not use what it
    /// read, because that would violate two-phase locking. Ends in [`WorkerEvent::Released`].
    ///
    /// # Panics
    /// Also panics if the row was set.
    fn release(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError>;

    /// Returns true if the transaction has locked the row.
    fn holds(&self, txn: TxnHandle, row: RowId) -> bool;

    /// Returns true if the transaction has locked the row for update.
    fn is_for_update(&self, txn: TxnHandle, row: RowId) -> bool;

    /// Copies the payload of a locked or peeked row, including the transaction's own changes.
    fn payload(&self, txn: TxnHandle, row: RowId, out: &mut [u64]);

    /// Sets the payload that a row gets at commit.
    ///
    /// # Panics
    /// Also panics if the row is not locked for update, or the payload has a different length.
    fn set(&mut self, txn: TxnHandle, row: RowId, payload: &[u64]);

    /// Writes the changed rows, then releases the locks. Ends in [`WorkerEvent::Committed`].
    fn commit(&mut self, txn: TxnHandle) -> Result<(), RemoteError>;

    /// Releases the locks and discards the changes. Ends in [`WorkerEvent::Aborted`].
    fn abort(&mut self, txn: TxnHandle) -> Result<(), RemoteError>;

    /// Processes arrivals, advances the transactions, and appends the new events.
    fn poll(&mut self, events: &mut Vec<WorkerEvent>) -> Result<(), RemoteError>;

    /// Returns true if [`RowClient::poll`] has work to do before anything arrives.
    fn is_ready(&self) -> bool;

    /// Returns true if a transaction waits for a change of this node's memory. Nothing signals such
    /// a change, so the caller must poll often.
    fn watches_memory(&self) -> bool {
        false
    }
}
