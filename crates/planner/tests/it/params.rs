//! The types of parameters: what decides them, and in which order.

use crate::common::{fails, plan};

#[test]
fn parameter_types_are_inferred_from_use() {
    let params = |sql: &str| {
        let p = plan(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        p.params.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        params("UPDATE accounts SET abalance = abalance + $1 WHERE aid = $2"),
        "integer, integer"
    );
    assert_eq!(params("select $1"), "text");
    assert_eq!(params("select aid from accounts limit $1 offset $2"), "bigint, bigint");
    assert_eq!(
        params("insert into accounts values ($1, $2, $3, $4)"),
        "integer, integer, integer, character(4294967295)"
    );
    assert_eq!(params("select $1::int8 + 1"), "bigint");
    assert_eq!(
        params("insert into history (mtime, tid) values ($1, $2)"),
        "timestamp without time zone, integer"
    );
    assert_eq!(params("select 1 from accounts where aid in ($1, $2)"), "integer, integer");
    assert_eq!(params("select 1 from accounts where filler like $1"), "text");
}

/// A parameter that is used several times has the type of its first use in PostgreSQL's order of
/// the clauses.
#[test]
fn clauses_decide_parameter_types_in_order() {
    let params = |sql: &str| {
        let plan = plan(sql).map_err(|e| format!("{} {}", e.state(), e.message()))?;
        Ok(plan.params.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    for (sql, expected) in [
        ("select $1::numeric from users where id < $1", "numeric"),
        ("select 1 from users where id = $1 group by n, id, $1::int8", "integer"),
        ("select 1 from users group by n having n = $1 order by $1::int8", "integer"),
        ("select 1 from users group by n, $1::int8 order by $1::int2", "smallint"),
        ("select 1 from users order by $1::int2 limit $1", "smallint"),
        ("select $1, email from users where email = $1", "text"),
        ("update users set email = $1 where id = $1", "integer"),
        ("update users set n = $1::int8 where id = $1 returning $1::int2", "integer"),
        ("update users set n = $1 where id = 1 returning $1::int8", "bigint"),
        ("delete from users where id = $1 returning $1::int8", "integer"),
        ("insert into users (id) select $1 from users where id = $1", "integer"),
        ("insert into users (id, n) values ($1, $1), ($1 + 1, 2)", "integer"),
    ] {
        assert_eq!(params(sql), Ok(expected.to_owned()), "{sql}");
    }
    let two = Err("42P08 inconsistent types deduced for parameter $1".to_owned());
    for sql in [
        "select $1 from users where id = $1",
        "select distinct $1, $1 + 1 from users",
        "select $1 limit $1",
        "update users set id = $1, email = $1",
        "insert into users (id, email) values ($1, $1)",
    ] {
        assert_eq!(params(sql), two, "{sql}");
    }
    fails(
        "update users set no = nor where neither = 1",
        "42703",
        "column \"neither\" does not exist",
    );
    fails("update users set no = nor", "42703", "column \"nor\" does not exist");
    fails("update users set n = 'x', id = nor", "42703", "column \"nor\" does not exist");
    fails("insert into users values ('x', nor)", "42703", "column \"nor\" does not exist");
}

/// PostgreSQL keeps the trailing blanks of a parameter of type character, we do not.
#[test]
fn blanks_of_a_character_parameter_are_not_lost() {
    for sql in [
        "prepare p(char) as select $1",
        "prepare p(char) as select coalesce($1, $1)",
        "prepare p(char) as values ($1)",
        "prepare p(char) as update accounts set filler = $1 returning $1",
        "prepare p(char) as select $1 like 'a'",
        "prepare p(char) as select concat($1, 'a')",
    ] {
        fails(sql, "0A000", "type bpchar without a length is not supported");
    }
    for sql in [
        "prepare p(char) as select aid from accounts where filler = $1",
        "prepare p(char) as insert into accounts (aid, filler) values (1, $1) returning filler",
        "prepare p(char) as insert into accounts (aid, filler) select 1, $1",
        "prepare p(char) as select length($1), $1 || 'x'",
    ] {
        plan(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}
