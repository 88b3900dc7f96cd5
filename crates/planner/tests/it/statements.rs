//! Statements sent by real clients are accepted and bound correctly.

use crate::common::plan;
use clearway_ir::statement::{CopyDirection, Finish, Isolation, Source, TxnOptions};
use clearway_ir::{Distribution, Expr, OnConflict, Program, Statement, UniqueKey};
use clearway_planner::parse;
use clearway_types::Datum;

#[track_caller]
fn statement(sql: &str) -> Statement {
    plan(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).statement
}

#[test]
fn statements_that_initialise_pgbench_are_accepted() {
    let Statement::DropTable { names, if_exists: true, .. } =
        statement("drop table if exists a, public.b, c")
    else {
        panic!()
    };
    assert_eq!(names, ["a", "b", "c"]);
    for sql in [
        "create table t(tid int,bid int,aid int,delta int,mtime timestamp,filler char(22))",
        "create unlogged table t(aid int not null,bid int,abalance int,filler char(84)) with (fillfactor=90)",
    ] {
        assert!(matches!(statement(sql), Statement::CreateTable { if_not_exists: false, .. }));
    }
    let Statement::Truncate { names } = statement("truncate table accounts, history") else {
        panic!()
    };
    assert_eq!(names, ["accounts", "history"]);
    let Statement::Copy(copy) = statement("copy accounts from stdin with (freeze on)") else {
        panic!()
    };
    let CopyDirection::From { row, .. } = copy.direction else { panic!() };
    assert_eq!(row, (0..4).map(Expr::Column).collect::<Vec<_>>());
    assert!(matches!(statement("vacuum analyze accounts"), Statement::Maintain { .. }));
    let Statement::Backup(backup) = statement("backup to '/there/it''s' rate 1048576") else {
        panic!()
    };
    assert_eq!((backup.target.as_str(), backup.bytes_a_second), ("/there/it's", Some(1 << 20)));
    for bad in [
        "backup",
        "backup to there",
        "backup to '/x' rate 0",
        "backup to '/x' rate fast",
        "backup to '/x' '/y'",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    let Statement::AddPrimaryKey { name: None, columns, .. } =
        statement("alter table history add primary key (tid)")
    else {
        panic!()
    };
    assert_eq!(columns, [0]);
    let Statement::Insert(i) = statement(
        "insert into accounts(aid,bid,abalance,filler) select aid, (aid - 1) / 100000 + 1, 0, '' from generate_series(1, 1000) as aid",
    ) else {
        panic!()
    };
    assert!(matches!(i.source.source, Source::Series { .. }));
    assert!(matches!(&i.source.finish[..], [Finish::Project(row)] if row.len() == 4));
}

#[test]
fn tables_get_keys_indexes_and_a_distribution() {
    let table = |sql: &str| match statement(sql) {
        Statement::CreateTable { table, .. } => table,
        other => panic!("{other:?}"),
    };
    let t = table(
        "create table if not exists t (a int, b int default 5 not null, c varchar(3) default 'x', primary key (b, a)) distributed by (a)",
    );
    assert_eq!(t.distribution, Distribution::Hash(vec![0]));
    assert_eq!((t.primary_key.as_slice(), t.primary_key_name.as_str()), (&[1, 0][..], "t_pkey"));
    assert!(t.columns[0].not_null);
    assert_eq!(t.columns[1].default, Some(Expr::Literal(Datum::Int4(5))));
    assert_eq!(
        table("create table t (a int primary key, b int)").distribution,
        Distribution::Hash(vec![0])
    );
    assert_eq!(
        table("create table t (a int) distributed randomly").distribution,
        Distribution::Random
    );
    let t = table("create table t (a int unique, b text, constraint u unique (a, b))");
    assert_eq!(t.distribution, Distribution::Hash(vec![0]));
    assert_eq!(t.indexes.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["t_a_key", "u"]);
    let t = table("create table t (a int primary key, b int) distributed by (b)");
    assert_eq!((t.primary_key.as_slice(), t.distribution), (&[0][..], Distribution::Hash(vec![1])));
    assert!(matches!(
        statement(
            "create index concurrently if not exists i on accounts using btree (bid, aid asc)"
        ),
        Statement::CreateIndex { if_not_exists: true, unique: false, .. }
    ));
    let Statement::CreateIndex { name, .. } = statement("create index on accounts (bid)") else {
        panic!()
    };
    assert_eq!(name, "accounts_bid_idx");
}

#[test]
fn transactions_and_settings_are_parsed() {
    let options = TxnOptions {
        read_only: Some(true),
        isolation: Some(Isolation::Serializable),
        deferrable: None,
        start: true,
    };
    assert_eq!(
        statement("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"),
        Statement::Begin(options)
    );
    assert_eq!(statement("end"), Statement::Commit);
    assert_eq!(statement("abort work"), Statement::Rollback);
    assert_eq!(
        statement("ROLLBACK TO SAVEPOINT \"_Pg3_1\""),
        Statement::RollbackTo("_Pg3_1".into())
    );
    assert_eq!(statement("release s"), Statement::Release("s".into()));
    assert!(matches!(
        statement("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
        Statement::SetTransaction { session: true, .. }
    ));
    for (sql, name, value) in [
        (
            "SET application_name = 'PostgreSQL JDBC Driver'",
            "application_name",
            Some("PostgreSQL JDBC Driver"),
        ),
        ("set client_encoding to 'utf8'", "client_encoding", Some("utf8")),
        ("SET SESSION search_path TO 'public'", "search_path", Some("public")),
        ("set datestyle = ISO, MDY", "datestyle", Some("iso, mdy")),
        ("set time zone 'Europe/Berlin'", "timezone", Some("Europe/Berlin")),
        ("set synchronous_commit to off", "synchronous_commit", Some("off")),
        ("set x.y = -1.5", "x.y", Some("-1.5")),
        ("set timezone to default", "timezone", None),
    ] {
        let value = value.map(str::to_owned);
        assert_eq!(
            statement(sql),
            Statement::Set { name: name.to_owned(), value, local: false },
            "{sql}"
        );
    }
    assert_eq!(statement("reset all"), Statement::Reset("all".into()));
    assert!(matches!(
        statement("set local statement_timeout = 5"),
        Statement::Set { local: true, .. }
    ));
    assert_eq!(
        statement("SHOW TRANSACTION ISOLATION LEVEL"),
        Statement::Show("transaction_isolation".into())
    );
    assert_eq!(statement("discard all"), Statement::Noop("DISCARD ALL"));
    assert_eq!(statement("CLOSE ALL"), Statement::Close(None));
    assert_eq!(statement("CLOSE c"), Statement::Close(Some("c".into())));
    assert_eq!(statement("DEALLOCATE ALL"), Statement::Deallocate(None));
    assert_eq!(statement(" -- nothing\n ; "), Statement::Empty);
}

#[test]
fn statements_that_contain_others_do_not_nest() {
    for unit in ["explain ", "explain verbose ", "prepare a as ", "explain prepare a as "] {
        let error = parse(&(unit.repeat(100_000) + "select 1")).unwrap_err();
        assert_eq!(error.state().as_str(), "42601", "{unit}");
    }
    for sql in ["explain execute a", "explain declare c cursor for select 1"] {
        assert!(parse(sql).is_ok(), "{sql}");
    }
}

/// As on a server's thread, which has 16 MiB of stack.
#[test]
fn nested_constructs_are_limited() {
    let nested = |before: &str, open: &str, middle: &str, close: &str, after: &str| {
        let (open, close) = (open.repeat(10_000), close.repeat(10_000));
        format!("{before}{open}{middle}{close}{after}")
    };
    let texts = [
        nested("select ", "(", "1", ")", ""),
        nested("select ", "(select ", "1", ")", ""),
        nested("select ", "array[1, ", "1", "]", ""),
        nested("select ", "[1, ", "1", "]", ""),
        nested("select ", "coalesce(1, ", "1", ")", ""),
        nested("select ", "cast(", "1", " as int)", ""),
        nested("select ", "case when ", "true", " then true end", ""),
        nested("select ", "case ", "1", " when 1 then 1 end", ""),
        nested("select ", "interval ", "'1'", "", ""),
        nested("select ", "exists (select ", "1", ")", ""),
        nested("select ", "(1, ", "1", ")", ""),
        nested("select ", "1 in (1, ", "1", ")", ""),
        nested("select ", "~ ", "1", "", ""),
        nested("select ", "@ ", "1", "", ""),
        nested("select 1::", "int", "", "[]", ""),
        nested("select null::", "array<", "int", ">", ""),
        nested("select * from ", "(", "t join t on true", ")", ""),
        nested("select * from ", "(t join ", "t", " on true)", ""),
        nested("select * from ", "(select * from ", "t", ") t", ""),
        nested("", "(", "select 1", ")", ""),
        nested("", "with a as (", "select 1", ") select 1", ""),
        nested("", "insert into t ", "select 1", "", ""),
        nested("declare c cursor for ", "(", "select 1", ")", ""),
        nested("explain ", "(", "select 1", ")", ""),
        nested("copy (", "(", "select 1", ")", ") to stdout"),
        nested("copy (", "explain ", "select 1", "", ") to stdout"),
        nested("create table t (a int check (", "not ", "true", "", "))"),
        nested("create table t (a int default ", "(", "1", ")", ")"),
        nested("create table t (a int", "[1]", "", "", ")"),
        nested("alter table accounts add check (", "(", "true", ")", ")"),
        nested("execute a (", "(", "1", ")", ")"),
        nested("prepare a (int", "[]", "", "", ") as select 1"),
    ];
    let server_thread = std::thread::Builder::new().stack_size(16 << 20);
    let states = server_thread.spawn(move || {
        texts.map(|sql| {
            let state = crate::common::error(&sql).state().to_string();
            (sql[..40.min(sql.len())].to_owned(), state)
        })
    });
    for (begin, state) in states.unwrap().join().unwrap() {
        assert!(["54001", "42601", "0A000"].contains(&state.as_str()), "{begin}: {state}");
    }
}

#[test]
fn statements_keep_their_positions() {
    let parsed = parse("select 1; select 2 ;; update x set y = 1").unwrap();
    assert_eq!(parsed.len(), 3);
    let e = clearway_planner::plan(&parsed[2], &crate::common::catalog(), &[], &Default::default())
        .unwrap_err();
    assert_eq!((e.state().as_str(), e.position()), ("42P01", Some(30)));
}

#[test]
fn copy_options_are_parsed_and_checked() {
    let copy = |sql: &str| match statement(sql) {
        Statement::Copy(c) => c,
        other => panic!("{other:?}"),
    };
    let c = copy("COPY accounts TO STDOUT csv header");
    assert!(c.format.csv && c.format.header && c.format.delimiter == b',');
    assert_eq!(c.names, ["aid", "bid", "abalance", "filler"]);
    let c = copy(
        "copy history (tid, mtime) from stdin with (format csv, delimiter ';', null 'NULL', quote '''', encoding 'UTF-8')",
    );
    assert_eq!((c.format.delimiter, c.format.quote, c.format.null.as_str()), (b';', b'\'', "NULL"));
    let CopyDirection::From { row, .. } = c.direction else { panic!() };
    assert_eq!(row[4], Expr::Column(1));
    assert_eq!(row[1], Expr::Literal(Datum::Null));
    let c = copy("COPY ( select aid, 'x' as y from accounts where aid < 5 ) TO STDOUT");
    assert_eq!(c.names, ["aid", "y"]);
    let c = copy("copy accounts to stdout with delimiter '|' null as ''");
    assert_eq!((c.format.delimiter, c.format.null.as_str()), (b'|', ""));
    for (sql, state) in [
        ("copy accounts from '/etc/passwd'", "0A000"),
        ("copy nothing from stdin", "42P01"),
        ("copy accounts (x) from stdin", "42703"),
        ("copy accounts (aid, aid) from stdin", "42701"),
        ("copy accounts from stdin (format foo)", "22023"),
        ("copy accounts from stdin (foo)", "42601"),
        ("copy accounts from stdin (delimiter 'ab')", "0A000"),
        ("copy accounts from", "42601"),
    ] {
        assert_eq!(crate::common::error(sql).state().as_str(), state, "{sql}");
    }
}

#[test]
fn inserts_are_bound_with_their_conflicts() {
    let Statement::Insert(i) =
        statement("insert into accounts (filler, aid) values ('a  ', default), (null, 2)")
    else {
        panic!()
    };
    let Source::Rows(rows) = &i.source.source else { panic!() };
    assert_eq!(rows[0], [Datum::Null, Datum::Null, Datum::Null, "a".into()].map(Expr::Literal));
    assert_eq!(rows[1][0], Expr::Literal(Datum::Int4(2)));
    let Statement::Insert(i) = statement(
        "insert into accounts values (1) on conflict (aid) do nothing returning aid + 1 as x",
    ) else {
        panic!()
    };
    let Program::Insert { on_conflict, returning, .. } = &*i.program else { panic!() };
    assert_eq!((*on_conflict, returning.len()), (OnConflict::IgnoreKey(UniqueKey::Primary), 1));
    for (target, on_conflict) in [
        ("", OnConflict::Ignore),
        ("(email)", OnConflict::IgnoreKey(UniqueKey::Index(0))),
        ("on constraint users_pkey", OnConflict::IgnoreKey(UniqueKey::Primary)),
    ] {
        let Statement::Insert(i) =
            statement(&format!("insert into users values (1) on conflict {target} do nothing"))
        else {
            panic!()
        };
        assert!(
            matches!(&*i.program, Program::Insert { on_conflict: found, .. } if *found == on_conflict),
            "{target}"
        );
    }
    assert_eq!(
        crate::common::error("insert into accounts values (1) on conflict (bid) do nothing")
            .state()
            .as_str(),
        "42P10"
    );
    assert_eq!(
        crate::common::error("insert into accounts values (1) on conflict do update set bid = 1")
            .state()
            .as_str(),
        "0A000"
    );
    // An undecided literal of a query takes the column's type.
    statement("insert into history (mtime, filler) select '2020-01-01', 'x' from accounts");
    statement("insert into pairs select 1, 2, '3', 4");
}

#[test]
fn updates_tell_whether_rows_move() {
    let moves = |sql: &str| match statement(sql) {
        Statement::Modify { program, .. } => {
            matches!(&*program, Program::Update { moves: true, .. })
        }
        other => panic!("{other:?}"),
    };
    assert!(!moves("update accounts set abalance = default, filler = 'x' where aid = 1"));
    assert!(moves("update accounts set aid = aid + 1"));
    assert!(!moves("update pairs set b = 5 where a = 1"));
}

/// The types of `pairs`: a and b are its key, k is indexed.
#[test]
fn updates_tell_whether_they_only_add() {
    let adds = |sql: &str| match statement(sql) {
        Statement::Modify { program, .. } => {
            matches!(&*program, Program::Update { adds: Some(_), .. })
        }
        other => panic!("{other:?}"),
    };
    for sum in [
        "n + 1",
        "n - $1",
        "$1 + n",
        "n + abs(-3) * 2",
        "n + 1::int8",
        "n + 1::int2",
        "n::int8 + 1",
        "n + null",
    ] {
        assert!(adds(&format!("update users set n = {sum} where id = $2")), "{sum}");
    }
    assert!(adds("update accounts set abalance = abalance + 1, bid = bid - 2 where aid = 1"));
    for sum in [
        "n",
        "1 - n",
        "n + n",
        "n * 2",
        "-n + 1",
        "n + 1.5",
        "n + 1::float8",
        "n + id",
        "(n + 1)::int8 + 1",
        "7",
    ] {
        assert!(!adds(&format!("update users set n = {sum} where id = 1")), "{sum}");
    }
    for refused in [
        "update users set n = n + 1 where id = 1 and n > 0",
        "update users set n = n + 1 where id = 1 returning n",
        "update users set n = n + 1 where id in (1, 2)",
        "update users set n = n + 1",
        "update users set n = n + 1, email = 'x' where id = 1",
        "update users set id = id + 1 where id = 1",
        "update users set n = id + 1 where id = 1",
        "update pairs set k = k + 1 where a = 1 and b = 1",
        "update pairs set b = b + 1 where a = 1 and b = 1",
    ] {
        assert!(!adds(refused), "{refused}");
    }
}

#[test]
fn prepare_and_execute_are_bound() {
    let Statement::Prepare { name, plan } = statement("prepare p (int, text) as select $1 + 1, $2")
    else {
        panic!()
    };
    assert_eq!((name.as_str(), plan.params.len()), ("p", 2));
    let Statement::Execute { args, .. } = statement("execute p (1 + 1, 'x')") else { panic!() };
    assert_eq!(args.len(), 2);
}
