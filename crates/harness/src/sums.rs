//! TPC-B's consistency check: sums that every pgbench script must keep equal.

use crate::client::PgClient;
use crate::{Endpoint, Res, pgbench::Script};
use std::time::Duration;

/// Balances and history of a pgbench database at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// `sum(abalance)` of the accounts.
    pub accounts: i64,
    /// `sum(tbalance)` of the tellers.
    pub tellers: i64,
    /// `sum(bbalance)` of the branches.
    pub branches: i64,
    /// `sum(delta)` of the history.
    pub delta: i64,
    /// Rows in the history.
    pub history: i64,
    /// Rows in the accounts.
    pub account_rows: i64,
}

/// Maximum time of one query.
const LIMIT: Duration = Duration::from_secs(120);

impl Sums {
    /// Reads the sums, one statement each. Nothing else should be running.
    pub fn read(endpoint: &Endpoint) -> Res<Self> {
        let mut client = PgClient::connect(endpoint, LIMIT)?;
        Ok(Self {
            accounts: client.number("select sum(abalance) from pgbench_accounts")?,
            tellers: client.number("select sum(tbalance) from pgbench_tellers")?,
            branches: client.number("select sum(bbalance) from pgbench_branches")?,
            delta: client.number("select sum(delta) from pgbench_history")?,
            history: client.number("select count(*) from pgbench_history")?,
            account_rows: client.number("select count(*) from pgbench_accounts")?,
        })
    }

    /// Checks the effect of a run of `script` with `processed` transactions between `before` and
    /// `self`. pgbench empties the history when a run starts. Balances are therefore compared by
    /// their change, and the history by its content.
    pub fn check(&self, before: &Self, script: Script, processed: u64) -> Res<()> {
        let (accounts, tellers, branches) = (
            self.accounts - before.accounts,
            self.tellers - before.tellers,
            self.branches - before.branches,
        );
        let (rows, moved) = match script {
            Script::SelectOnly => (0, 0),
            Script::SimpleUpdate | Script::TpcbLike => (processed as i64, self.delta),
        };
        let elsewhere = if script == Script::TpcbLike { self.delta } else { 0 };
        for (what, got, want) in [
            ("rows of the history", self.history, rows),
            ("change of sum(abalance) against sum(delta)", accounts, moved),
            ("change of sum(tbalance) against sum(delta)", tellers, elsewhere),
            ("change of sum(bbalance) against sum(delta)", branches, elsewhere),
            ("rows of the accounts", self.account_rows, before.account_rows),
        ] {
            if got != want {
                return Err(format!(
                    "{what}: {got}, expected {want}\nbefore: {before:?}\nafter:  {self:?}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Sums =
        Sums { accounts: 5, tellers: 5, branches: 5, delta: 5, history: 1, account_rows: 100 };

    #[test]
    fn scripts_keep_their_sums() {
        let after =
            Sums { accounts: 12, tellers: 12, branches: 12, delta: 7, history: 2, ..BEFORE };
        after.check(&BEFORE, Script::TpcbLike, 2).unwrap();
        let simple = Sums { tellers: 5, branches: 5, ..after };
        simple.check(&BEFORE, Script::SimpleUpdate, 2).unwrap();
        Sums { delta: 0, history: 0, ..BEFORE }.check(&BEFORE, Script::SelectOnly, 2).unwrap();
    }

    #[test]
    fn lost_or_partial_transactions_are_detected() {
        let after =
            Sums { accounts: 12, tellers: 12, branches: 12, delta: 7, history: 2, ..BEFORE };
        for broken in [
            Sums { history: 1, ..after },
            Sums { accounts: 11, ..after },
            Sums { tellers: 11, ..after },
            Sums { branches: 11, ..after },
            Sums { account_rows: 99, ..after },
        ] {
            assert!(broken.check(&BEFORE, Script::TpcbLike, 2).is_err(), "{broken:?}");
        }
        assert!(after.check(&BEFORE, Script::SimpleUpdate, 2).is_err());
        assert!(after.check(&BEFORE, Script::SelectOnly, 2).is_err());
    }
}
