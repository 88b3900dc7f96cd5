//! A statement's account of memory: what its rows, groups and sort keys take, wherever they are.
//!
//! Invariants
//! 1. `used` is at most the limit: [`MemoryAccount::charge`] refuses what would exceed it (53200).
//! 2. Each holder counts for itself with a [`Charge`], and is at most [`STEP`] bytes ahead of what
//!    it has been charged for. Small results are never charged: they cost one comparison per row.
//!
//! Locking: none. Several partitions charge the same account at the same time.

use clearway_types::{SqlError, SqlResult, SqlState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a holder may take before it is charged for them.
pub const STEP: u64 = 64 << 10;

/// How much memory one statement may take, and takes.
#[derive(Debug)]
pub struct MemoryAccount {
    limit: u64,
    /// Relaxed throughout: a number of its own, which orders nothing else.
    used: AtomicU64,
}

impl Default for MemoryAccount {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Clone for MemoryAccount {
    /// An account of its own with the same limit.
    fn clone(&self) -> Self {
        Self::new(self.limit)
    }
}

impl MemoryAccount {
    /// An account with this limit in bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Bytes charged and not released.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` more; 53200 if that exceeds the limit, and then nothing is taken.
    pub fn charge(&self, bytes: u64) -> SqlResult<()> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.exceeded()),
        }
    }

    /// Gives `bytes` back.
    pub fn release(&self, bytes: u64) {
        let _always_some = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(used.saturating_sub(bytes))
        });
    }

    /// Starts over: the statement is run anew.
    pub fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
    }

    /// Starts over with `bytes`, which are all that the statement still has.
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
            .hint("Let it read fewer rows, for example with LIMIT, or raise the server's --query-memory.")
    }
}

/// What one holder of memory has been charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge(u64);

impl Charge {
    /// The holder has `size` bytes now.
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

    /// The holder has nothing any more.
    pub fn release(&mut self, account: &MemoryAccount) {
        account.release(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_refuses_what_exceeds_its_limit() {
        let account = MemoryAccount::new(100);
        assert_eq!(account.charge(60), Ok(()));
        assert_eq!(account.charge(41).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        assert_eq!((account.charge(40), account.used()), (Ok(()), 100));
        account.release(70);
        assert_eq!((account.charge(u64::MAX).is_err(), account.used()), (true, 30));
        assert_eq!((account.settle(5), account.used()), (Ok(()), 5));
    }

    #[test]
    fn a_holder_is_charged_in_steps() {
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
