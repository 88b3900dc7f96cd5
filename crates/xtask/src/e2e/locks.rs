//! Row locks: every pair of modes in two sessions, and the outcome for the second one.

use super::Setting;
use clearway_harness::Res;
use clearway_harness::client::PgClient;
use std::time::Duration;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// How a session locks the row with key 1, in each mode, weakest first: by a locking clause and by
/// a statement.
///
/// The queries read only the key, because FOR KEY SHARE lets others change the other columns.
const HOLDS: [(&str, usize); 8] = [
    ("select id from e2e_lock where id = 1 for key share", 0),
    ("select id from e2e_lock where id = 1 for share", 1),
    ("select id from e2e_lock where id = 1 for no key update", 2),
    ("select id from e2e_lock where id = 1 for update", 3),
    ("update e2e_lock set v = v + 1 where id = 1", 2),
    ("update e2e_lock set u = u + 100 where id = 1", 3),
    ("update e2e_lock set id = id + 100 where id = 1", 3),
    ("delete from e2e_lock where id = 1", 3),
];

/// Statements that lock the row, each with its mode and whether it accepts NOWAIT and SKIP LOCKED.
const ASKS: [(&str, usize, bool); 13] = [
    ("select id from e2e_lock where id = 1 for key share", 0, true),
    ("select id from e2e_lock where id = 1 for share", 1, true),
    ("select id from e2e_lock where id = 1 for no key update", 2, true),
    ("select id from e2e_lock where id = 1 for update", 3, true),
    ("select id from e2e_lock where id = 1 for share for key share", 1, true),
    ("select id from e2e_lock where u = 1 for key share", 0, true),
    ("select id from e2e_lock where u = 1 for share of e2e_lock", 1, true),
    ("select id from e2e_lock where u = 1 for no key update of e2e_lock", 2, true),
    ("select id from e2e_lock where u = 1 for update", 3, true),
    ("update e2e_lock set v = v + 1 where id = 1 returning id", 2, false),
    ("update e2e_lock set u = u + 100 where id = 1 returning id", 3, false),
    ("update e2e_lock set id = id + 100 where id = 1 returning id", 3, false),
    ("delete from e2e_lock where id = 1 returning id", 3, false),
];

/// Table 13.3 of PostgreSQL's manual.
const CONFLICTS: [[bool; 4]; 4] = [
    [false, false, false, true],
    [false, false, true, true],
    [false, true, true, true],
    [true, true, true, true],
];

/// Returns the number of rows, or SQLSTATE and message.
fn outcome(client: &mut PgClient, sql: &str) -> Result<usize, String> {
    client.query(sql).map(|answer| answer.rows.len()).map_err(|e| e.to_string())
}

fn expect(what: &str, found: &Result<usize, String>, wanted: Result<usize, &str>) -> Res<()> {
    let same = match (found, wanted) {
        (Ok(rows), Ok(wanted)) => *rows == wanted,
        (Err(text), Err(part)) => text.contains(part),
        _ => false,
    };
    if same { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
}

/// Checks all pairs of modes: with a wait, with NOWAIT and with SKIP LOCKED.
///
/// A compatible lock never reaches the time-out of the wait, however slow the machine is; any other
/// does.
pub fn all_pairs(setting: &Setting) -> Res<()> {
    let mut first = PgClient::connect(&setting.endpoint, LIMIT)?;
    let mut second = PgClient::connect(&setting.endpoint, LIMIT)?;
    for sql in [
        "drop table if exists e2e_lock",
        "create table e2e_lock (id int primary key, u int unique, v int)",
        "insert into e2e_lock values (1, 1, 1), (2, 2, 2)",
    ] {
        first.query(sql).map_err(|e| format!("{sql}: {e}"))?;
    }
    second.query("set lock_timeout = 20")?;
    for (hold, held) in HOLDS {
        for (ask, asked, clause) in ASKS {
            let waits: &[&str] = if clause { &["", " nowait", " skip locked"] } else { &[""] };
            for wait in waits {
                let sql = format!("{ask}{wait}");
                let what = format!("{sql}, beside {hold}");
                first
                    .query("begin")
                    .and_then(|_| first.query(hold))
                    .map_err(|e| format!("{hold}: {e}"))?;
                second.query("begin")?;
                let found = outcome(&mut second, &sql);
                let wanted = match (CONFLICTS[held][asked], *wait) {
                    (false, _) => Ok(1),
                    (true, "") => Err("55P03: canceling statement due to lock timeout"),
                    (true, " nowait") => {
                        Err("55P03: could not obtain lock on row in relation \"e2e_lock\"")
                    }
                    (true, _) => Ok(0),
                };
                expect(&what, &found, wanted)?;
                second.query("rollback")?;
                first.query("rollback")?;
            }
        }
    }
    queue(&mut first, &mut second)?;
    first.query("drop table e2e_lock")?;
    Ok(())
}

/// Checks that several sessions can take their jobs from one table.
fn queue(first: &mut PgClient, second: &mut PgClient) -> Res<()> {
    let take = "select id from e2e_lock where v < 10 limit 1 for update skip locked";
    let one = |client: &mut PgClient| client.number(take);
    first.query("begin")?;
    second.query("begin")?;
    let (a, b) = (one(first)?, one(second)?);
    if a + b != 3 {
        return Err(format!("{take}: {a}, and beside it {b}"));
    }
    expect(take, &outcome(second, take), Ok(1))?;
    expect(
        take,
        &outcome(second, &format!("select id from e2e_lock where id = {a} for share skip locked")),
        Ok(0),
    )?;
    first.query(&format!("delete from e2e_lock where id = {a}"))?;
    first.query("commit")?;
    second.query("rollback")?;
    let left = one(first)?;
    if left == b { Ok(()) } else { Err(format!("{take}: {left} instead of {b}")) }
}
