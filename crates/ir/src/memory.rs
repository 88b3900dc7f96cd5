//! A statement's memory account: the size of its rows, groups and sort keys, wherever they are.
//!
//! Invariants
//! 1. `used` is at most the limit: [`MemoryAccount::charge`] fails (53200) rather than exceed it.
//! 2. Each holder counts its own memory with a [`Charge`], and is at most [`STEP`] bytes ahead of
//!    what it has charged. Small results are never charged: they cost one comparison per row.
//!
//! Locking: none. Several partitions charge the same account concurrently.

use clearway_types::{SqlError, SqlResult, SqlState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a holder may use before it must charge them.
pub const STEP: u64 = 64 << 10;

/// The memory limit and the current use of one statement.
#[derive(Debug)]
pub struct MemoryAccount {
    limit: u64,
    /// Relaxed throughout: an independent number, which orders nothing else.
    used: AtomicU64,
}

impl Default for MemoryAccount {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Clone for MemoryAccount {
    /// Creates a new account with the same limit.
    fn clone(&self) -> Self {
        Self::new(self.limit)
    }
}

impl MemoryAccount {
    /// Creates an account with this limit in bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Returns the bytes charged and not released.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes` more. Fails with 53200, and charges nothing, if that exceeds the limit.
    pub fn charge(&self, bytes: u64) -> SqlResult<()> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.exceeded()),
        }
    }

    /// Releases `bytes`.
    pub fn release(&self, bytes: u64) {
        let _always_some = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(used.saturating_sub(bytes))
        });
    }

    /// Resets the account, because the statement runs again.
    pub fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
    }

    /// Resets the account to `bytes`, which is all that the statement still holds.
    pub fn settle(&self, bytes: u64) -> SqlResult<()> {
        if bytes > self.limit.max(STEP) {
            return Err(self.exceeded());
        }
        self.used.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn exceeded(&self) -> SqlError {
        SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory")
            .detail(format!("The statement needs more than its {} bytes of memory.", self.limit))
            .hint("Read fewer rows, for example with LIMIT, or raise the server's --query-memory.")
    }
}

/// The bytes that one holder of memory has charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge(u64);

impl Charge {
    /// Records that the holder now has `size` bytes.
    #[inline]
    pub fn grow(&mut self, account: &MemoryAccount, size: usize) -> SqlResult<()> {
        if size as u64 > self.0 + STEP { self.take(account, size as u64) } else { Ok(()) }
    }

    #[cold]
    fn take(&mut self, account: &MemoryAccount, size: u64) -> SqlResult<()> {
        account.charge(size - self.0)?;
        self.0 = size;
        Ok(())
    }

    /// Releases everything that the holder has charged.
    pub fn release(&mut self, account: &MemoryAccount) {
        account.release(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_beyond_the_limit_fail() {
        let account = MemoryAccount::new(100);
        assert_eq!(account.charge(60), Ok(()));
        assert_eq!(account.charge(41).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        assert_eq!((account.charge(40), account.used()), (Ok(()), 100));
        account.release(70);
        assert_eq!((account.charge(u64::MAX).is_err(), account.used()), (true, 30));
        assert_eq!((account.settle(5), account.used()), (Ok(()), 5));
    }

    #[test]
    fn holders_are_charged_in_steps() {
        let account = MemoryAccount::new(4 * STEP);
        let mut charge = Charge::default();
        let mut size = 0;
        while size < 4 * STEP {
            charge.grow(&account, size as usize).unwrap();
            assert!(
                size <= account.used() + STEP && account.used() <= size,
                "{size}: {}",
                account.used()
            );
            size += STEP / 10;
        }
        assert!(charge.grow(&account, 5 * STEP as usize + 1).is_err());
        charge.release(&account);
        assert_eq!(account.used(), 0);
    }
}
