//! The clients' transactions, which all contend for the same rows, and the checks of their effects.

use clearway_harness::client::PgClient;
use clearway_harness::sums::Sums;
use clearway_harness::{Endpoint, Res, pgbench};
use clearway_testkit::Rng;
use std::time::Duration;

/// Rows that read-then-update draws from: few, so that transactions conflict.
const FEW: i64 = 10;
/// Accounts and tellers of a branch.
const ACCOUNTS: i64 = 100_000;
const TELLERS: i64 = 10;
/// Maximum time of a statement between two runs.
const LIMIT: Duration = Duration::from_secs(60);

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One row, `SET v = v + 1`, in autocommit.
    Autocommit,
    /// One row, in a block: `FOR UPDATE`, then `SET v = :new`.
    ForUpdate,
    /// One row, in a block: `SET v = v + 1`, then an INSERT into another table.
    Increment,
    /// As `Increment`, and the UPDATE also sets a time: it does not only add.
    Timed,
    /// As `Timed`; one transaction in twenty ends with ROLLBACK.
    TimedRollback,
    /// pgbench's script at scale 1: one branch, ten tellers.
    TpcbLike,
    /// As `TpcbLike`; one transaction in twenty ends with ROLLBACK.
    TpcbLikeRollback,
    /// As `TpcbLike`; each transaction is sent as one pipeline.
    TpcbLikePipeline,
    /// One of ten rows, SERIALIZABLE, in a block: read, then `SET v = :new`. Failed transactions
    /// are retried.
    ReadThenUpdate,
}

/// One statement of a transaction.
#[derive(Debug)]
pub struct Statement {
    /// SQL text.
    pub sql: &'static str,
    /// Parameters.
    pub values: &'static [Value],
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// The drawn row.
    Row,
    /// The value read before, plus one.
    Next,
    Account,
    Branch,
    Teller,
    Delta,
}

/// Random parameters of a transaction; its retries use the same.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    row: i64,
    account: i64,
    branch: i64,
    teller: i64,
    delta: i64,
    /// Whether the client ends it with ROLLBACK.
    pub rolls_back: bool,
}

/// Content of the tables before a run.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    values: i64,
    sums: Sums,
}

const BEGIN: Statement = statement("BEGIN", &[]);
const COMMIT: Statement = statement("COMMIT", &[]);
const ADD: Statement = statement("UPDATE hot SET v = v + 1 WHERE id = $1", &[Value::Row]);
const SET: Statement = statement("UPDATE hot SET v = $1 WHERE id = $2", &[Value::Next, Value::Row]);

const AUTOCOMMIT: &[Statement] = &[ADD];
const FOR_UPDATE: &[Statement] =
    &[BEGIN, statement("SELECT v FROM hot WHERE id = $1 FOR UPDATE", &[Value::Row]), SET, COMMIT];
const INCREMENT: &[Statement] =
    &[BEGIN, ADD, statement("INSERT INTO hot_history (id) VALUES ($1)", &[Value::Row]), COMMIT];
const TIMED: &[Statement] = &[
    BEGIN,
    statement("UPDATE hot SET v = v + 1, changed = now() WHERE id = $1", &[Value::Row]),
    statement("INSERT INTO hot_history (id) VALUES ($1)", &[Value::Row]),
    COMMIT,
];
const READ_THEN_UPDATE: &[Statement] = &[
    statement("BEGIN ISOLATION LEVEL SERIALIZABLE", &[]),
    statement("SELECT v FROM hot WHERE id = $1", &[Value::Row]),
    SET,
    COMMIT,
];
const TPCB_LIKE: &[Statement] = &[
    BEGIN,
    statement(
        "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
        &[Value::Delta, Value::Account],
    ),
    statement("SELECT abalance FROM pgbench_accounts WHERE aid = $1", &[Value::Account]),
    statement(
        "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
        &[Value::Delta, Value::Teller],
    ),
    statement(
        "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
        &[Value::Delta, Value::Branch],
    ),
    statement(
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
        &[Value::Teller, Value::Branch, Value::Account, Value::Delta],
    ),
    COMMIT,
];

const fn statement(sql: &'static str, values: &'static [Value]) -> Statement {
    Statement { sql, values }
}

impl Work {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Autocommit,
        Self::ForUpdate,
        Self::Increment,
        Self::Timed,
        Self::TimedRollback,
        Self::TpcbLike,
        Self::TpcbLikeRollback,
        Self::TpcbLikePipeline,
        Self::ReadThenUpdate,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Autocommit => "autocommit v + 1",
            Self::ForUpdate => "FOR UPDATE, then SET v",
            Self::Increment => "v + 1, then INSERT",
            Self::Timed => "v + 1 and a time, then INSERT",
            Self::TimedRollback => "v + 1 and a time, then INSERT, 5 % ROLLBACK",
            Self::TpcbLike => "tpcb-like, scale 1",
            Self::TpcbLikeRollback => "tpcb-like, scale 1, 5 % ROLLBACK",
            Self::TpcbLikePipeline => "tpcb-like, scale 1, one pipeline",
            Self::ReadThenUpdate => "read, then SET v, SERIALIZABLE",
        }
    }

    /// Returns its statements; see [`Work::is_whole`].
    pub fn statements(self) -> &'static [Statement] {
        match self {
            Self::Autocommit => AUTOCOMMIT,
            Self::ForUpdate => FOR_UPDATE,
            Self::Increment => INCREMENT,
            Self::Timed | Self::TimedRollback => TIMED,
            Self::TpcbLike | Self::TpcbLikeRollback | Self::TpcbLikePipeline => TPCB_LIKE,
            Self::ReadThenUpdate => READ_THEN_UPDATE,
        }
    }

    /// Returns true if all statements of a transaction are sent as one pipeline. Otherwise each
    /// statement is sent after the previous answer.
    pub fn is_whole(self) -> bool {
        self == Self::TpcbLikePipeline
    }

    /// Returns true if some of its transactions end with ROLLBACK.
    fn rolls_back(self) -> bool {
        matches!(self, Self::TimedRollback | Self::TpcbLikeRollback)
    }

    /// Returns true if each transaction inserts into `hot_history`.
    fn inserts(self) -> bool {
        matches!(self, Self::Increment | Self::Timed | Self::TimedRollback)
    }

    /// Returns true if its transactions are pgbench's.
    fn is_tpcb_like(self) -> bool {
        matches!(self, Self::TpcbLike | Self::TpcbLikeRollback | Self::TpcbLikePipeline)
    }

    /// Draws the parameters of a transaction; pgbench's tables have `scale` branches.
    pub fn draw(self, rng: &mut Rng, scale: u32) -> Draw {
        let scale = i64::from(scale);
        let mut number = |low: i64, high: i64| low + rng.between(0, (high - low) as u64) as i64;
        let row = if self == Self::ReadThenUpdate { number(1, FEW) } else { 1 };
        let (account, teller, delta) =
            (number(1, ACCOUNTS * scale), number(1, TELLERS * scale), number(-5000, 5000));
        let branch = number(1, scale);
        let rolls_back = self.rolls_back() && number(1, 20) == 1;
        Draw { row, account, branch, teller, delta, rolls_back }
    }

    /// Truncates the growing tables, and reads what the run will change.
    pub fn before(self, endpoint: &Endpoint) -> Res<Before> {
        let mut client = PgClient::connect(endpoint, LIMIT)?;
        client.query("TRUNCATE hot_history")?;
        client.query("TRUNCATE pgbench_history")?;
        Ok(Before { values: client.number("SELECT sum(v) FROM hot")?, sums: Sums::read(endpoint)? })
    }

    /// Checks that the tables hold exactly the effects of this many committed transactions.
    pub fn check(self, endpoint: &Endpoint, before: &Before, committed: u64) -> Res<()> {
        if self.is_tpcb_like() {
            return Sums::read(endpoint)?.check(&before.sums, pgbench::Script::TpcbLike, committed);
        }
        let mut client = PgClient::connect(endpoint, LIMIT)?;
        let history = if self.inserts() { committed } else { 0 };
        let values = client.number("SELECT sum(v) FROM hot")? - before.values;
        let rows = client.number("SELECT count(*) FROM hot_history")?;
        for (what, got, want) in
            [("sum(v) rose by", values, committed), ("rows of hot_history", rows, history)]
        {
            if u64::try_from(got) != Ok(want) {
                return Err(format!("{}: {what} {got}, expected {want}", self.name()));
            }
        }
        Ok(())
    }
}

/// Creates all tables, pgbench's with `scale` branches.
pub fn set_up(endpoint: &Endpoint, scale: u32) -> Res<()> {
    pgbench::init(endpoint, "dtgvp", scale)?;
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    client
        .query("CREATE TABLE hot (id int PRIMARY KEY, v bigint NOT NULL, changed timestamptz)")?;
    client.query("CREATE TABLE hot_history (id int NOT NULL)")?;
    for row in 1..=FEW {
        client.query(&format!("INSERT INTO hot VALUES ({row}, 0, now())"))?;
    }
    Ok(())
}

impl Value {
    /// Returns the value to send, given the value read last.
    pub fn of(self, draw: &Draw, read: i64) -> i64 {
        match self {
            Self::Row => draw.row,
            Self::Next => read + 1,
            Self::Account => draw.account,
            Self::Branch => draw.branch,
            Self::Teller => draw.teller,
            Self::Delta => draw.delta,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_one_value_per_parameter() {
        for work in Work::ALL {
            for statement in work.statements() {
                for number in 1..=4 {
                    let wants = statement.sql.contains(&format!("${number}"));
                    assert_eq!(wants, number <= statement.values.len(), "{}", statement.sql);
                }
            }
        }
    }

    #[test]
    fn one_transaction_in_twenty_rolls_back() {
        for work in Work::ALL {
            let mut rng = Rng::new(1);
            let rolled_back = (0..2_000).filter(|_| work.draw(&mut rng, 1).rolls_back).count();
            let want = if work.rolls_back() { 60..140 } else { 0..1 };
            assert!(want.contains(&rolled_back), "{}: {rolled_back}", work.name());
        }
    }

    #[test]
    fn only_read_then_update_has_more_than_one_row() {
        for work in Work::ALL {
            let mut rng = Rng::new(1);
            let rows: std::collections::BTreeSet<i64> =
                (0..200).map(|_| work.draw(&mut rng, 1).row).collect();
            let want = if work == Work::ReadThenUpdate { FEW } else { 1 };
            assert_eq!(rows.len() as i64, want, "{}", work.name());
        }
    }
}
