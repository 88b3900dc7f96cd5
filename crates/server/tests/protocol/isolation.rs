//! What concurrent transactions of each isolation level see of each other, beside PostgreSQL 15.
//!
//! `isolation.txt` has the scenarios: a title (`# title`), then a line for each step.
//! `a: sql => answer` runs a statement in session a; `b~ sql` sends one that comes to wait for a
//! lock; `b= answer` is what it answers at last. An answer is the rows, or the tag, or the SQLSTATE
//! of an error. Where Clearway's differs, it stands behind PostgreSQL's and a bar of two strokes.
//! The answer `[$id]` is any single value; `$id` in later statements stands for it.

use crate::raw::{Fixture, LIMIT};
use clearway_harness::Endpoint;
use clearway_harness::client::{Answer, Client};
use clearway_harness::server::Kind;
use clearway_harness::tools::{self, TempDir};
use std::collections::BTreeMap;
use std::time::Instant;

const SCENARIOS: &str = include_str!("isolation.txt");

const SETUP: &str = "create table t (id int primary key, u int unique, k int, v int); create index t_k on t (k); \
                     insert into t select i, i, i / 2 * 10, 0 from generate_series(1, 6) i";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Postgres,
    Clearway,
}

impl Who {
    /// A row for each session that waits for a lock.
    fn waiting(self) -> &'static str {
        match self {
            Self::Postgres => "select pid from pg_stat_activity where wait_event_type = 'Lock'",
            Self::Clearway => "select waiter from clearway.locks group by waiter",
        }
    }

    /// Its part of an expectation.
    fn part(self, expected: &str) -> &str {
        match (self, expected.split_once(" || ")) {
            (Self::Clearway, Some((_, own))) => own,
            (Self::Postgres, Some((other, _))) => other,
            (_, None) => expected,
        }
    }
}

fn show(answer: Result<Answer, clearway_harness::client::QueryError>) -> String {
    match answer {
        Ok(answer) if answer.tag.starts_with("SELECT") => {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".into());
            let rows =
                answer.rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(" "));
            format!("[{}]", rows.collect::<Vec<_>>().join(", "))
        }
        Ok(answer) => answer.tag,
        Err(error) => error.to_string().split(':').next().unwrap_or_default().to_owned(),
    }
}

/// Plays a scenario; says where an answer is another.
fn play(who: Who, endpoint: &Endpoint, title: &str, steps: &[&str]) -> Result<(), String> {
    let mut owner = Client::connect(endpoint, LIMIT)?;
    owner.query(SETUP).map_err(|e| e.to_string())?;
    let mut sessions: BTreeMap<&str, Client> = BTreeMap::new();
    let (mut waits, mut id) = (0, String::new());
    for step in steps {
        let (name, rest) = step.split_at(1);
        if !sessions.contains_key(name) {
            sessions.insert(name, Client::connect(endpoint, LIMIT)?);
        }
        let session = sessions.get_mut(name).ok_or("no session")?;
        let (kind, rest) = rest.split_at(1);
        let found = match kind {
            ":" => show(
                session.query(&rest.split(" => ").next().unwrap_or_default().replace("$id", &id)),
            ),
            "~" => {
                session.send(rest).map_err(|e| e.to_string())?;
                waits += 1;
                come_to(who, &mut owner, waits)?;
                continue;
            }
            "=" => {
                waits -= 1;
                show(session.receive())
            }
            _ => return Err(format!("{title}: {step}: what is that?")),
        };
        let expected = rest.rsplit(" => ").next().map_or("", |expected| who.part(expected.trim()));
        if expected == "[$id]" {
            let value = found.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
            id = value.ok_or_else(|| format!("{title}: {step}: {found}"))?.to_owned();
        } else if found != expected {
            return Err(format!("{title}: {step}: {found}"));
        }
    }
    drop(sessions);
    owner.query("drop table t").map_err(|e| e.to_string())?;
    Ok(())
}

/// Returns when `count` sessions wait for locks.
fn come_to(who: Who, owner: &mut Client, count: usize) -> Result<(), String> {
    let began = Instant::now();
    while owner.query(who.waiting()).map_err(|e| e.to_string())?.rows.len() != count {
        if began.elapsed() > LIMIT {
            return Err(format!("{count} sessions should wait"));
        }
    }
    Ok(())
}

fn play_all(who: Who, endpoint: &Endpoint) {
    let mut found = Vec::new();
    for scenario in SCENARIOS.split("# ").skip(1) {
        let mut lines = scenario.lines().map(str::trim).filter(|line| !line.is_empty());
        let title = lines.next().unwrap_or_default();
        let steps: Vec<&str> = lines.collect();
        assert!(!steps.is_empty(), "{title}");
        if let Err(why) = play(who, endpoint, title, &steps) {
            found.push(why);
            let cleared = Client::connect(endpoint, LIMIT).unwrap().query("drop table if exists t");
            cleared.unwrap();
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn transactions_see_of_each_other_what_their_levels_allow() {
    let server = Fixture::new("isolation");
    play_all(Who::Clearway, &Endpoint::loopback(server.address().port()));
    server.stop();
}

#[test]
fn scenarios_are_those_of_postgres_15() {
    if !tools::has_postgres_15() {
        assert!(!tools::in_ci(), "PostgreSQL 15 is not installed");
        eprintln!("the scenarios are NOT compared: PostgreSQL 15 is not installed");
        return;
    }
    let directory = TempDir::new("isolation-postgres").unwrap();
    let data = directory.path().join("data");
    let kind = Kind::Postgres { settings: vec!["fsync=off".to_owned()] };
    kind.prepare(&data).unwrap();
    let server = kind.start(&data).unwrap();
    play_all(Who::Postgres, server.endpoint());
    server.stop().unwrap();
}
