//! psql in typical use.

use super::Setting;
use clearway_harness::client::PgClient;
use clearway_harness::process::{self, Running};
use clearway_harness::tools::{TempDir, need};
use clearway_harness::{Endpoint, Res};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time for a script.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two interrupts of a psql whose query is to be cancelled.
const INTERRUPT_EVERY: Duration = Duration::from_millis(100);

fn psql(endpoint: &Endpoint) -> Res<Command> {
    let mut command = Command::new(need("psql")?);
    command.args(endpoint.client_args()).args(["-X", "-A", "-t", "-d", &endpoint.database]);
    // The checks expect English messages.
    command.env("LC_ALL", "C");
    Ok(command)
}

/// Runs `script` from standard input; psql continues after errors. Returns output and messages
/// together.
fn script(endpoint: &Endpoint, script: &str) -> Res<String> {
    process::run(&mut psql(endpoint)?, script, LIMIT)?.success("psql")
}

fn expect(output: &str, wanted: &[&str]) -> Res<()> {
    match wanted.iter().find(|w| !output.contains(**w)) {
        None => Ok(()),
        Some(missing) => Err(format!("psql did not print `{missing}`:\n{output}")),
    }
}

/// Connects by host and port and by a connection string, and runs `\timing`.
pub fn connects(setting: &Setting) -> Res<()> {
    let output =
        script(&setting.endpoint, "\\timing on\nselect 6 * 7;\nselect 'a' || 'b', null, true;\n")?;
    expect(&output, &["42\n", "ab||t\n", "Time: ", " ms"])?;
    let e = &setting.endpoint;
    let url = format!("postgresql://{}@{}:{}/{}", e.user, e.host, e.port, e.database);
    let mut command = Command::new(need("psql")?);
    command.args(["-X", "-A", "-t", "-c", "select 1; select 2", &url]);
    expect(&process::run(&mut command, "", LIMIT)?.success("psql URL")?, &["1\n", "2\n"])
}

/// Checks that after an error in a block, further statements fail with 25P02, COMMIT answers
/// ROLLBACK, and nothing stays.
pub fn error_in_transaction(setting: &Setting) -> Res<()> {
    let output = script(
        &setting.endpoint,
        "\\set VERBOSITY verbose\n\
         drop table if exists e2e_error;\n\
         create table e2e_error (id int primary key, v int not null);\n\
         insert into e2e_error values (1, 10);\n\
         begin;\n\
         insert into e2e_error values (2, 20);\n\
         insert into e2e_error values (1, 11);\n\
         select 'must not be seen';\n\
         commit;\n\
         \\echo :LAST_ERROR_SQLSTATE\n\
         select 'rows', count(*), sum(v) from e2e_error;\n\
         begin;\n\
         savepoint s;\n\
         select 1 / 0;\n\
         rollback to s;\n\
         update e2e_error set v = v + 1;\n\
         commit;\n\
         select 'after', count(*), sum(v) from e2e_error;\n\
         select no_such_column from e2e_error;\n\
         selec 1;\n\
         drop table e2e_error;\n",
    )?;
    let wanted = [
        "ERROR:  23505: duplicate key value violates unique constraint",
        "ERROR:  25P02: current transaction is aborted, commands ignored until end of transaction block",
        "ROLLBACK\n25P02\nrows|1|10\n",
        "ERROR:  22012: division by zero",
        "after|1|11\n",
        "ERROR:  42703:",
        "ERROR:  42601:",
    ];
    expect(&output, &wanted)?;
    if output.contains("must not be seen") {
        return Err(format!("a statement ran in a failed transaction:\n{output}"));
    }
    Ok(())
}

/// Runs `\copy` to a file and from it, as text and CSV, with NULLs and with characters that need
/// quoting.
pub fn copies(setting: &Setting) -> Res<()> {
    let directory = TempDir::new("copy")?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (text, csv) = (path("rows.txt"), path("rows.csv"));
    let columns = "(id int primary key, t text, n float8)";
    let output = script(
        &setting.endpoint,
        &format!(
            "drop table if exists e2e_from, e2e_text, e2e_csv;\n\
             create table e2e_from {columns};\n\
             create table e2e_text {columns};\n\
             create table e2e_csv {columns};\n\
             insert into e2e_from select i, 'row ' || i, i / 8.0 from generate_series(1, 2000) i;\n\
             insert into e2e_from values (2001, null, null), (2002, '', 0), (2003, E'tab\\tquote\"comma,back\\\\slash\\nline', -1.5);\n\
             \\copy e2e_from to '{text}'\n\
             \\copy e2e_text from '{text}'\n\
             \\copy e2e_from to '{csv}' with (format csv, header)\n\
             \\copy e2e_csv from '{csv}' with (format csv, header)\n\
             select 'from', count(*), count(t), count(n), sum(id), sum(n) from e2e_from;\n\
             select 'text', count(*), count(t), count(n), sum(id), sum(n) from e2e_text;\n\
             select 'csv', count(*), count(t), count(n), sum(id), sum(n) from e2e_csv;\n\
             select 'same', t = E'tab\\tquote\"comma,back\\\\slash\\nline' from e2e_text where id = 2003;\n\
             select 'same', t = E'tab\\tquote\"comma,back\\\\slash\\nline' from e2e_csv where id = 2003;\n\
             \\copy e2e_text from '{text}'\n\
             select 'still', count(*) from e2e_text;\n\
             drop table e2e_from, e2e_text, e2e_csv;\n"
        ),
    )?;
    let numbers = "|2003|2002|2002|2007006|250123.5\n";
    let wanted = [
        "COPY 2003\nCOPY 2003\nCOPY 2003\nCOPY 2003\n",
        "same|t\nsame|t\n",
        "duplicate key",
        "still|2003\n",
    ];
    expect(&output, &wanted)?;
    for which in ["from", "text", "csv"] {
        expect(&output, &[&format!("{which}{numbers}")])?;
    }
    Ok(())
}

/// Interrupts a psql that waits for a row that another session has locked: it gets 57014, and the
/// other session is undisturbed.
pub fn cancels(setting: &Setting) -> Res<()> {
    let endpoint = &setting.endpoint;
    let mut holder = PgClient::connect(endpoint, LIMIT)?;
    for sql in [
        "drop table if exists e2e_cancel",
        "create table e2e_cancel (id int primary key, v int)",
        "insert into e2e_cancel values (1, 0)",
        "begin",
        "update e2e_cancel set v = 1 where id = 1",
    ] {
        holder.query(sql).map_err(|e| format!("{sql}: {e}"))?;
    }
    let waiting = "\\set VERBOSITY verbose\nselect 'ready';\nupdate e2e_cancel set v = 2 where id = 1;\nselect 'alive';\n";
    let deadline = Instant::now() + LIMIT;
    let output = loop {
        let output = interrupted(Running::start(&mut psql(endpoint)?, waiting)?, deadline)?;
        // An interrupt between two statements ends psql.
        if output.contains("57014") || Instant::now() >= deadline {
            break output;
        }
    };
    expect(&output, &["ERROR:  57014: canceling statement due to user request"])?;
    holder.query("commit")?;
    let value = holder.number("select v from e2e_cancel")?;
    holder.query("drop table e2e_cancel")?;
    if value == 1 { Ok(()) } else { Err(format!("the cancelled update took effect: v = {value}")) }
}

/// Interrupts a psql repeatedly from its second statement on, until it exits; returns its output.
fn interrupted(mut waiter: Running, deadline: Instant) -> Res<String> {
    while waiter.line(LIMIT)?.is_some_and(|line| line != "ready") {}
    // psql may ignore an interrupt that comes before the statement.
    while let Ok(line) = waiter.line(INTERRUPT_EVERY)
        && Instant::now() < deadline
    {
        if line.is_none() {
            waiter.signal("INT")?;
        }
    }
    Ok(waiter.finish(LIMIT)?.output)
}
