//! `clearway.plans`: the read lock of each plan, for all ways to send a statement.

use crate::raw::{Fixture, Raw, bind, execute, parse, sync};

/// Number of reads of one row after which its partition has reported its counts three times.
const MANY: usize = 48;

fn connect(server: &Fixture) -> Raw {
    let mut c = server.connect();
    c.query("set default_transaction_isolation = serializable");
    c.query("create table t (a int primary key, u int, n int)");
    c.query("create index on t (u)");
    c.query("insert into t values (5, 50, 0), (6, 60, 0), (7, 70, 0)");
    c
}

/// Every plan with its lock and its counts of reads and changes.
fn plans(c: &mut Raw) -> Vec<String> {
    c.column("select plan || ': ' || read_lock || ' ' || reads || ' ' || changed from clearway.plans order by 1")
}

#[test]
fn statements_that_differ_in_constants_share_a_plan() {
    let server = Fixture::new("plans-texts");
    let mut c = connect(&server);
    c.send_all(&[parse("read", "select n from t where a = $1", &[]), sync()]);
    c.until_ready();
    for _ in 0..MANY / 3 {
        // A prepared statement, single messages, and one message with the whole block.
        c.query("begin");
        c.send_all(&[bind("", "read", &["5"], false), execute("", 0), sync()]);
        c.until_ready();
        c.query("update t set n = n + 1 where a = 5; commit");
        c.query("begin");
        c.query("select n from t where a = 5");
        c.query("update t set n = n + 1 where a = 5");
        c.query("commit");
        c.query("begin; select n from t where a = 5; update t set n = n + 1 where a = 5; commit");
    }
    let seen = format!("SELECT n FROM t WHERE a = ?: exclusive {MANY} {MANY}");
    assert_eq!(plans(&mut c), [seen]);
    assert_eq!(c.column("select n from t where a = 5"), [MANY.to_string()]);
    let counts = "select read_exclusively = reads - 16 and switches = 1 and recent_share > 0.8 from clearway.plans";
    assert_eq!(c.column(counts), ["t"]);
}

#[test]
fn any_change_after_a_read_is_counted() {
    let server = Fixture::new("plans-changes");
    let mut c = connect(&server);
    for _ in 0..MANY {
        c.query(
            "begin; select u from t where a = 6; select a from t where a = 6 for update; commit",
        );
        c.query(
            "begin; select a, n from t where u = 50; update t set n = n + 1 where a = 5; commit",
        );
        c.query("begin; select n, u from t where a = 9; insert into t values (9, 90, 0); commit");
        c.query("begin; select n + 1 from t where a in (9, 10) order by a; delete from t where a = 9; commit");
        c.query(
            "begin; select a + 1 from t where a = 7; update t set n = n + 1 where a = 5; commit",
        );
        c.query("begin; select count(*) from t where a between 5 and 6; update t set n = 0 where a = 5; commit");
    }
    let plans = plans(&mut c);
    let lock = |text: &str| {
        let plan = plans.iter().find(|plan| plan.starts_with(&format!("{text}: ")));
        plan.unwrap_or_else(|| panic!("{text}: {plans:?}"))[text.len() + 2..].to_owned()
    };
    assert_eq!(lock("SELECT u FROM t WHERE a = ?"), format!("exclusive {MANY} {MANY}"));
    assert_eq!(lock("SELECT a, n FROM t WHERE u = ?"), format!("exclusive {MANY} {MANY}"));
    assert_eq!(lock("SELECT n, u FROM t WHERE a = ?"), format!("exclusive {MANY} {MANY}"));
    assert_eq!(lock("SELECT (a + ?) FROM t WHERE a = ?"), format!("shared {MANY} 0"));
    assert!(
        plans
            .iter()
            .any(|plan| plan.starts_with("SELECT (n + ?)") && plan.contains(" WHERE a IN (?): "))
    );
    // Too few for the increment lock.
    let update = lock("UPDATE t SET n = (n + ?) WHERE a = ?");
    assert_eq!(update, format!("exclusive {MANY} 0"));
    assert_eq!(plans.len(), 6, "neither FOR UPDATE nor ranges of the primary key: {plans:?}");
}

#[test]
fn addition_before_for_update_locks_exclusively() {
    let server = Fixture::new("plans-additions");
    let mut c = connect(&server);
    for _ in 0..MANY {
        c.query("begin isolation level read committed");
        c.query("update t set n = n + 1 where a = 5");
        c.query("select n from t where a = 5 for update");
        c.query("commit");
    }
    assert_eq!(
        plans(&mut c),
        [format!("UPDATE t SET n = (n + ?) WHERE a = ?: exclusive {MANY} {MANY}")]
    );
    assert_eq!(c.column("select n from t where a = 5"), [MANY.to_string()]);
}

/// Sessions share the plan, but each Parse has the notices of its text.
#[test]
fn every_parse_has_the_notices_of_its_text() {
    let server = Fixture::new("plans-notices");
    let mut c = server.connect();
    let (long, kept) = ("x".repeat(64), "x".repeat(63));
    let text = format!("identifier \"{long}\" will be truncated to \"{kept}\"");
    for _ in 0..2 {
        c.send_all(&[
            parse("", &format!("select 1 as {long}"), &[]),
            bind("", "", &[], false),
            execute("", 0),
            sync(),
        ]);
        let messages = c.until_ready();
        assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "N12DCZ");
        let notice = &messages[0];
        assert_eq!((notice.severity(), notice.code()), ("NOTICE".to_owned(), "42622".to_owned()));
        assert_eq!(notice.primary(), text);
    }
    c.query("set client_min_messages = warning");
    c.send_all(&[parse("", &format!("select 1 as {long}"), &[]), sync()]);
    assert_eq!(c.until_ready().iter().map(|m| m.tag).collect::<String>(), "1Z");
}
