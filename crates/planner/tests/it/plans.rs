//! SQL in; the plan's tree, its parameters and columns, or the error out.

use crate::common::{catalog, error, explain, fails, plan};
use clearway_ir::{Expr, Program, Statement};

#[track_caller]
fn check(sql: &str, expected: &[&str]) {
    assert_eq!(explain(sql), expected, "{sql}");
}

#[test]
fn full_key_is_a_point_lookup() {
    let point = [
        "Point Lookup using accounts_pkey on accounts",
        "  Key: aid = $1",
        "  Partitions: one, by hash($1)",
    ];
    check("SELECT abalance FROM accounts WHERE aid = $1", &point);
    check(
        "select * from public.accounts as a where $1 = a.aid for update",
        &[
            "Lock Rows",
            "  ->  Point Lookup using accounts_pkey on accounts",
            "      Key: aid = $1",
            "      Partitions: one, by hash($1)",
        ],
    );
    check(
        "UPDATE accounts SET abalance = abalance + $1 WHERE aid = $2",
        &[
            "Update on accounts",
            "  ->  Point Lookup using accounts_pkey on accounts",
            "      Key: aid = $2",
            "      Partitions: one, by hash($2)",
        ],
    );
    check(
        "delete from accounts where aid = 1 and abalance > 5",
        &[
            "Delete on accounts",
            "  ->  Point Lookup using accounts_pkey on accounts",
            "      Key: aid = 1",
            "      Filter: (abalance > 5)",
            "      Partitions: one, by hash(1)",
        ],
    );
}

#[test]
fn keys_of_wider_types_still_use_the_key() {
    check(
        "select 1 from accounts where aid = $1::int8",
        &[
            "Point Lookup using accounts_pkey on accounts",
            "  Key: aid = $1",
            "  Partitions: one, by hash($1)",
        ],
    );
    check(
        "select 1 from accounts where aid = 2.0",
        &[
            "Point Lookup using accounts_pkey on accounts",
            "  Key: aid = exactint(2.0)",
            "  Partitions: one, by hash(exactint(2.0))",
        ],
    );
    check(
        "select 1 from accounts where aid > 2.5",
        &[
            "Index Scan using accounts_pkey on accounts",
            "  Key: aid >= floorint(2.5)",
            "  Filter: ((aid)::numeric > 2.5)",
            "  Partitions: all",
        ],
    );
}

#[test]
fn in_lists_and_ranges_use_the_key() {
    check(
        "select 1 from accounts where aid in (1, 2, $1)",
        &[
            "Point Lookups using accounts_pkey on accounts",
            "  Key: aid IN (1, 2, $1)",
            "  Partitions: all",
        ],
    );
    check(
        "select filler from accounts where aid between $1 and $2 order by filler",
        &[
            "Sort: column 1",
            "  ->  Index Scan using accounts_pkey on accounts",
            "      Key: aid >= $1 AND aid <= $2",
            "      Partitions: all",
        ],
    );
    check(
        "select b from pairs where a = 1 and b < 5 order by b desc limit 2",
        &[
            "Limit 2",
            "  ->  Limit 2 in each partition",
            "      ->  Index Scan Backward using pairs_pkey on pairs",
            "          Key: a = 1 AND b < 5",
            "          Partitions: one, by hash(1)",
        ],
    );
    check(
        "select 1 from pairs where k = 7",
        &["Index Scan using pairs_k on pairs", "  Key: k = 7", "  Partitions: all"],
    );
}

#[test]
fn items_of_in_are_compared_by_their_own_types() {
    let filter = |sql: &str| {
        explain(&format!("select 1 from pairs where {sql}"))
            .into_iter()
            .find_map(|line| line.trim().strip_prefix("Filter: ").map(str::to_owned))
            .unwrap_or_default()
    };
    for (condition, expected) in [
        ("k in (b, 7)", "(k IN (b, 7))"),
        ("a in (b + 1.5, k)", "(((a)::numeric IN (((b)::numeric + 1.5))) OR (a IN (k)))"),
        (
            "a not in (k::float8, b)",
            "(NOT (((a)::double precision IN ((k)::double precision)) OR (a IN (b))))",
        ),
        // Two values without columns have one type.
        ("a in (k, 1.5, 2)", "(((a)::numeric IN (1.5, 2)) OR (a IN (k)))"),
        ("v in ('a ', v::char(5))", "(v IN ('a ', (v)::character(5)))"),
        ("v::name in ('a ', v)", "((v)::name IN ('a ', v))"),
        // A literal takes the type of each group.
        ("'5' in (k, v)", "((5 IN (k)) OR ('5' IN (v)))"),
        ("'5' in (a + 0.5, 5, 6, k)", "((5 IN (5, 6, k)) OR (5 IN (((a)::numeric + 0.5))))"),
    ] {
        assert_eq!(filter(condition), expected, "{condition}");
    }
    let params = |condition: &str| {
        let plan = plan(&format!("select 1 from pairs where {condition}"));
        plan.map(|p| p.params[0].to_string()).map_err(|e| e.state().to_string())
    };
    // A parameter has one type. Values without columns decide it first.
    assert_eq!(params("$1 in (b, k)"), Ok("integer".to_owned()));
    assert_eq!(params("$1 in (a, 1, 2)"), Ok("integer".to_owned()));
    assert_eq!(params("$1 in (1, 2, a)"), Ok("integer".to_owned()));
    assert_eq!(params("$1 in (a, b)"), Err("42P08".to_owned()));
    assert_eq!(params("$1 in (a, 1)"), Err("42P08".to_owned()));
}

#[test]
fn sort_remains_with_several_partitions() {
    check(
        "select aid from accounts order by aid desc limit 3 offset 1",
        &[
            "Limit 3, Offset 1",
            "  ->  Sort: column 1 DESC",
            "      ->  Limit CASE WHEN ((3 < 2305843009213693952) AND (1 < 2305843009213693952)) THEN (3 + 1) END in each \
         partition",
            "          ->  Index Scan Backward using accounts_pkey on accounts",
            "              Partitions: all",
        ],
    );
    check(
        "select k from pairs order by k limit 1",
        &[
            "Limit 1",
            "  ->  Sort: column 1",
            "      ->  Limit 1 in each partition",
            "          ->  Index Scan using pairs_k on pairs",
            "              Partitions: all",
        ],
    );
    check(
        "select * from accounts limit 1",
        &[
            "Limit 1",
            "  ->  Limit 1 in each partition",
            "      ->  Seq Scan on accounts",
            "          Partitions: all",
        ],
    );
}

#[test]
fn aggregates_are_partial_in_partitions_and_then_merged() {
    check(
        "select count(*) from accounts",
        &[
            "Merge Aggregate: count(*)",
            "  ->  Partial Aggregate: count(*)",
            "      ->  Seq Scan on accounts",
            "          Partitions: all",
        ],
    );
    check(
        "select bid, sum(abalance) s from accounts group by 1 having count(*) > 1 order by s desc",
        &[
            "Sort: column 2 DESC",
            "  ->  Filter: (column 3 > 1)",
            "      ->  Merge Group by column 2: sum(column 3), count(*)",
            "          ->  Partial Group by bid: sum(abalance), count(*)",
            "              ->  Seq Scan on accounts",
            "                  Partitions: all",
        ],
    );
    check(
        "select count(distinct bid) from accounts",
        &[
            "Aggregate: count(DISTINCT column 1)",
            "  ->  Seq Scan on accounts",
            "      Partitions: all",
        ],
    );
    fails(
        "select aid, count(*) from accounts",
        "42803",
        "column \"accounts.aid\" must appear in the GROUP BY clause or be used in an aggregate function",
    );
    fails(
        "select 1 from accounts where count(*) > 1",
        "42803",
        "aggregate functions are not allowed in WHERE",
    );
    fails(
        "select sum(count(*)) from accounts",
        "42803",
        "aggregate function calls cannot be nested",
    );
}

#[test]
fn result_columns_are_named_and_typed() {
    let columns = |sql: &str| {
        let p = plan(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        p.columns.iter().map(|c| format!("{} {}", c.name, c.ty)).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        columns("select 1, 'x', 1.5, true, null"),
        "?column? integer, ?column? text, ?column? numeric, ?column? boolean, ?column? text"
    );
    assert_eq!(
        columns("select aid::int8, count(*), now(), '1'::int4 from accounts group by aid"),
        "aid bigint, count bigint, now timestamp with time zone, int4 integer"
    );
    assert_eq!(columns("select * from generate_series(1, 10)"), "generate_series integer");
    assert_eq!(
        columns("select bid, 0 from generate_series(1, $1::int8) as bid"),
        "bid bigint, ?column? integer"
    );
    assert_eq!(columns("values (1, 'a'), (2.5, 'b')"), "column1 numeric, column2 text");
    assert_eq!(
        columns("insert into history default values returning *"),
        "tid integer, bid integer, aid integer, delta integer, mtime timestamp without time zone, filler character(22)"
    );
    assert_eq!(
        columns("select sum(abalance), avg(abalance), max(filler), min(aid) from accounts"),
        "sum bigint, avg numeric, max character(84), min integer"
    );
    assert_eq!(
        columns("select current_schema(), current_catalog, pg_sleep(1)"),
        "current_schema name, current_catalog name, pg_sleep void"
    );
}

#[test]
fn error_messages_match_postgresql() {
    fails("select 1 from nothing", "42P01", "relation \"nothing\" does not exist");
    assert_eq!(error("select 1 from nothing").position(), Some(15));
    fails("select abalanc from accounts", "42703", "column \"abalanc\" does not exist");
    assert_eq!(error("select abalanc from accounts").position(), Some(8));
    assert_eq!(
        error("select abalanc from accounts").get_hint(),
        Some("Perhaps you meant to reference the column \"accounts.abalance\".")
    );
    fails("select x.aid from accounts", "42P01", "missing FROM-clause entry for table \"x\"");
    fails("selec 1", "42601", "syntax error at or near \"selec\"");
    assert_eq!(error("selec 1").position(), Some(1));
    fails("select 1 from", "42601", "syntax error at end of input");
    fails("select 1 +", "42601", "syntax error at end of input");
    fails("select (1", "42601", "syntax error at end of input");
    fails("select 1 where aid = 'x'", "42703", "column \"aid\" does not exist");
    fails(
        "select 1 from accounts where aid = 'x'",
        "22P02",
        "invalid input syntax for type integer: \"x\"",
    );
    fails(
        "select 1 from accounts where aid",
        "42804",
        "argument of WHERE must be type boolean, not type integer",
    );
    fails(
        "select 1 from accounts where aid = filler",
        "42883",
        "operator does not exist: integer = character",
    );
    fails("select foo(1)", "42883", "function foo(integer) does not exist");
    fails(
        "update accounts set x = 1",
        "42703",
        "column \"x\" of relation \"accounts\" does not exist",
    );
    fails(
        "insert into accounts (aid) values (1, 2)",
        "42601",
        "INSERT has more expressions than target columns",
    );
    fails(
        "insert into accounts (aid) values (true)",
        "42804",
        "column \"aid\" is of type integer but expression is of type boolean",
    );
    fails(
        "insert into history (filler) values ('12345678901234567890123')",
        "22001",
        "value too long for type character(22)",
    );
    fails("select 1 order by 2", "42P10", "ORDER BY position 2 is not in select list");
    fails("create table t (a int, a int)", "42701", "column \"a\" specified more than once");
    fails("select 'a", "42601", "unterminated quoted string");
    // A string is no name.
    for sql in [
        "select aid from 'accounts'",
        "delete from 'accounts'",
        "insert into accounts ('accounts') values (1)",
        "update accounts set 'accounts' = 1",
    ] {
        fails(sql, "42601", "syntax error at or near \"'accounts'\"");
    }
    for sql in ["select count(distinct *) from accounts", "select count(all *) from accounts"] {
        fails(sql, "42601", "syntax error at or near \"*\"");
    }
}

#[test]
fn unsupported_features_are_named() {
    for (sql, what) in [
        ("select 1 from accounts a join pairs b on a.aid = b.a", "a join"),
        ("select (select 1)", "a subquery"),
        ("select 1 from (select 1) x", "a subquery in FROM"),
        ("select 1 union select 2", "UNION"),
        ("with x as (select 1) select 1", "WITH"),
        ("create table t (id serial)", "type serial"),
        ("create type mood as enum('a')", "CREATE TYPE"),
        ("declare c scroll cursor for select 1", "SCROLL"),
        ("declare c cursor with hold for select 1", "WITH HOLD"),
        ("update accounts set abalance = 1 where current of c", "WHERE CURRENT OF"),
        ("create table t (a int) partition by hash (a)", "PARTITION BY"),
        ("create table t (a numeric)", "a column of type numeric"),
        (
            "alter table accounts add constraint f foreign key (bid) references branches",
            "a FOREIGN KEY constraint",
        ),
        ("copy accounts from stdin (format binary)", "COPY in binary format"),
        ("create table l (like accounts)", "LIKE in CREATE TABLE"),
        ("create table l as select 1", "CREATE TABLE AS"),
        ("create table l (a int) partition by range (a)", "PARTITION BY"),
        ("select * from accounts tablesample system (10)", "TABLESAMPLE"),
        ("select * from generate_series(1, 2) with ordinality", "WITH ORDINALITY"),
        ("select * from unnest(array[1])", "UNNEST in FROM"),
        ("select * from (accounts a join accounts b on true)", "a join"),
        ("select array[1,2]", "an array"),
        ("select owner[1] from accounts", "an array"),
        ("select (a).owner from accounts a", "a field of a row"),
        ("select '{}'::jsonb", "type jsonb"),
        ("select row_number() over () from accounts", "a window function"),
    ] {
        fails(sql, "0A000", &format!("{what} is not supported"));
    }
    fails(
        "select c.oid from pg_catalog.pg_class c left join pg_am a on 1=1",
        "42P01",
        "relation \"pg_catalog.pg_class\" does not exist",
    );
}

#[test]
fn plans_carry_the_catalog_version() {
    assert_eq!(plan("select 1 from accounts").unwrap().catalog, Some(catalog().version));
    assert_eq!(plan("begin").unwrap().catalog, None);
}

#[test]
fn filter_keeps_conditions_outside_the_range() {
    check(
        "select 1 from pairs where k > 1 and k > $1 and k <= 9 and v = 'x'",
        &[
            "Index Scan using pairs_k on pairs",
            "  Key: k > 1 AND k <= 9",
            "  Filter: ((k > $1) AND (v = 'x'))",
            "  Partitions: all",
        ],
    );
    check(
        "select 1 from accounts where aid = 1 and aid = 2",
        &[
            "Point Lookup using accounts_pkey on accounts",
            "  Key: aid = 1",
            "  Filter: (aid = 2)",
            "  Partitions: one, by hash(1)",
        ],
    );
    check(
        "select 1 from accounts where aid = abs(bid) or aid in (bid)",
        &[
            "Seq Scan on accounts",
            "  Filter: ((aid = abs(bid)) OR (aid IN (bid)))",
            "  Partitions: all",
        ],
    );
    check(
        "select 1 from accounts where not aid = 1",
        &["Seq Scan on accounts", "  Filter: (NOT (aid = 1))", "  Partitions: all"],
    );
}

/// Test threads have 2 MiB of stack, less than a server's threads.
#[test]
fn no_text_overflows_the_stack() {
    let long = |unit: &str, n: usize| format!("select 1 {}", unit.repeat(n));
    for unit in [
        "+ 1 ",
        "and true ",
        "::int",
        "is null ",
        "|| 'a' ",
        "+ (1) ",
        "+ - 1 ",
        "+ [1, 1] ",
        "similar to 'a' ",
        "rlike 'a' ",
        "regexp 'a' ",
        "overlaps 1 ",
        "member of (1) ",
        "xor true ",
        "in (1, 2) ",
        "between 1 and 2 ",
        "at time zone 'utc' ",
        "union select 1 ",
        "union select 1, 1 ",
        "except values (1), (1) ",
        "minus select 1, 1 ",
    ] {
        assert_eq!(error(&long(unit, 40_000)).state().as_str(), "54001", "{unit}");
    }
    for unit in ["pivot (sum(a) for b in (1)) ", "unpivot (a for b in (c)) "] {
        let text = format!("select 1 from t {}", unit.repeat(40_000));
        assert_eq!(error(&text).state().as_str(), "54001", "{unit}");
    }
    assert_eq!(error(&format!("select {}", "(".repeat(100_000))).state().as_str(), "54001");
    assert_eq!(error(&format!("select {}1", "not ".repeat(100_000))).state().as_str(), "54001");
    assert_eq!(error(&format!("select {}1", "- ".repeat(400))).state().as_str(), "54001");
    for unit in ["::int", "is null ", "+ (1) "] {
        plan(&long(unit, 400)).unwrap();
    }
    for n in [100, 501, 1499] {
        plan(&long("+ 1 ", n)).unwrap();
        plan(&format!("select 1 from accounts where aid = 1 {}", "or aid = 1 ".repeat(n / 2 - 1)))
            .unwrap();
    }
    let deep =
        format!("select {}1{}", format!("{}1 + (", "1 + ".repeat(10)).repeat(40), ")".repeat(40));
    let _ = plan(&deep);
    let list = vec!["1"; 10_000].join(", ");
    plan(&format!("select 1 from accounts where aid in ({list})")).unwrap();
}

#[test]
fn global_index_routes_lookups_and_follows_changes() {
    let knows = "Partitions: one, by global index users_email_key('x')";
    check(
        "select id from users where email = 'x' and n > 1",
        &[
            "Index Scan using users_email_key on users",
            "  Key: email = 'x'",
            "  Filter: (n > 1)",
            &format!("  {knows}"),
        ],
    );
    check(
        "select id from users where email = 'x' and id = 1",
        &[
            "Point Lookup using users_pkey on users",
            "  Key: id = 1",
            "  Filter: (email = 'x')",
            "  Partitions: one, by hash(1)",
        ],
    );
    check(
        "insert into users values (1)",
        &["Insert on users", "  Global indexes: users_email_key", "  ->  Result"],
    );
    check(
        "delete from users where email = 'x'",
        &[
            "Delete on users",
            "  Global indexes: users_email_key",
            "  ->  Index Scan using users_email_key on users",
            "      Key: email = 'x'",
            &format!("      {knows}"),
        ],
    );
    let by_id = [
        "  ->  Point Lookup using users_pkey on users",
        "      Key: id = 1",
        "      Partitions: one, by hash(1)",
    ];
    let with = |head: &[&'static str]| [head, &by_id].concat();
    check("update users set n = 1 where id = 1", &with(&["Update on users"]));
    check(
        "update users set email = 'y' where id = 1",
        &with(&["Update on users", "  Global indexes: users_email_key"]),
    );
    check(
        "update users set id = 2 where id = 1",
        &with(&[
            "Update on users (may move rows to other partitions)",
            "  Global indexes: users_email_key",
        ]),
    );
    let Statement::Modify { program, .. } =
        plan("delete from users returning n").unwrap().statement
    else {
        panic!()
    };
    let Program::Delete { returning, .. } = &*program else { panic!() };
    assert_eq!(
        returning,
        &[Expr::Column(2), Expr::Column(1)],
        "the global index's column follows the returned ones"
    );
}
