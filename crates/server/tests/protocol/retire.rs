//! Early retirement: what the retired owner of a row's lock sees when it uses the row again.

use crate::raw::{Fixture, Raw, query};
use clearway_server::config::HotRows;

/// Statements that return `n` of the row with `a = $a` and `k = $k`, each by another path.
const READS: [&str; 20] = [
    "select n from t where a = $a",
    "select n from t where a in ($a, 7777)",
    "select n from t where a between $a and $a",
    "select n from t where a + 0 = $a",
    "select n from t where k = $k",
    "select n from t where k in ($k, 7777)",
    "select n from t where k >= $k and k < $k + 1",
    "select n from t where b = $a",
    "select max(n) from t where a = $a",
    "select max(n) from t where k > $k - 5 and k < $k + 5",
    "select sum(n) from t where b + 0 = $a",
    "select n from t where a = $a for update",
    "select n from t where k = $k for key share",
    "select n from t where b = $a for share skip locked",
    "select n from t where n > 0 and b + 0 = $a for no key update nowait",
    "update t set m = 1 where a = $a returning n",
    "update t set m = 1 where k = $k returning n",
    "update t set k = $k + 1 where b = $a returning n",
    "delete from t where k = $k returning n",
    "insert into u select n, 0, $a from t where k = $k returning x",
];

/// What the session does between its UPDATE and the read.
const BEFORE: [&str; 4] =
    ["", "savepoint s", "update t set m = 2 where a = $a", "insert into u values (1, 1, 1)"];

/// Fills in the row's keys.
fn of(row: u32, sql: &str) -> String {
    sql.replace("$a", &row.to_string()).replace("$k", &(10 * row).to_string())
}

fn update(row: u32, n: u32) -> String {
    format!("update t set n = {n} where a = {row}")
}

/// Waits until the row is locked in this way, as `clearway.hot_rows` shows it.
#[track_caller]
fn becomes(asker: &mut Raw, row: u32, wanted: &str) {
    let columns = "select concat(locked, ' ', waiters, ' ', behind) from clearway.hot_rows";
    let sql = format!("{columns} where key = '({row})'");
    asker.repeat_until(&sql, &[wanted]);
}

/// Returns a transaction whose lock on the row is retired, and one behind it.
fn chain(server: &Fixture, asker: &mut Raw, row: u32) -> [Raw; 2] {
    let [mut first, mut owner, mut successor] = [0; 3].map(|_| server.connect());
    first.query(&format!("begin; {}", update(row, 1)));
    owner.query("begin");
    owner.send(&query(&update(row, 7)));
    becomes(asker, row, "no key update 1 0");
    first.query("commit");
    owner.until_ready();
    becomes(asker, row, "retired 0 0");
    successor.query("begin");
    successor.query(&update(row, 8));
    becomes(asker, row, "retired 0 1");
    [owner, successor]
}

/// Runs every read in a retired owner. `snapshot`: while versions are kept.
fn owner_reads_its_own_value(name: &str, snapshot: bool) {
    let retire = HotRows { increments: true, whole: false, retire: true };
    let server = Fixture::with(name, |config| config.hot_rows = retire);
    let mut asker = server.connect();
    asker.query("create table t (a int primary key, k int unique, b int, n int, m int)");
    asker.query("create index on t (b)");
    asker.query("create table u (x int, y int, id int, primary key (x, y, id))");
    asker.query("insert into t select i, 10 * i, i, 0, 0 from generate_series(1, 200) i");
    let mut reader = server.connect();
    if snapshot {
        reader.query("begin isolation level repeatable read; select count(*) from t");
    }
    // Each read has a row of its own: after a cascade, locks of a row are not retired for a while.
    let both = BEFORE.iter().flat_map(|before| READS.iter().map(move |read| (before, read)));
    for (row, (before, read)) in (1..).zip(both) {
        let [mut owner, mut successor] = chain(&server, &mut asker, row);
        owner.query(&of(row, before));
        let context = format!("`{read}` after `{before}`, snapshot: {snapshot}");
        assert_eq!(owner.column(&of(row, read)), ["7"], "{context}");
        assert_eq!(owner.column("commit"), [""; 0], "{context}");
        let expected: &[&str] = match successor.column("commit").first().map(String::as_str) {
            _ if read.starts_with("delete") => &[],
            None => &["8"],
            Some("40001") => &["7"],
            Some(code) => panic!("{code} {context}"),
        };
        let sql = of(row, "select n from t where a = $a");
        assert_eq!(asker.column(&sql), expected, "{context}");
        asker.query("truncate u");
    }
}

#[test]
fn retired_owner_reads_its_own_value() {
    owner_reads_its_own_value("retired-reads", false);
}

#[test]
fn retired_owner_reads_its_own_version() {
    owner_reads_its_own_value("retired-versions", true);
}
