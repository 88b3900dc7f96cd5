//! What concurrent transactions at each isolation level see of each other, compared with
//! PostgreSQL 15.
//!
//! `isolation.txt` has the scenarios: a title (`# title`), then a line for each step.
//! `a: sql => answer` runs a statement in session a. `b~ sql` sends a statement that has to wait
//! for a lock; `b= answer` is its final answer. An answer is the rows, or the tag, or the SQLSTATE
//! of an error. If Clearway's answer differs, it follows PostgreSQL's after `||`. The answer
//! `[$id]` is any single value; `$id` in later statements stands for it.

use crate::raw::{Fixture, LIMIT};
use clearway_harness::Endpoint;
use clearway_harness::client::{Answer, PgClient};
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
    /// The query for sessions that wait for a lock.
    fn waiting(self) -> &'static str {
        match self {
            Self::Postgres => "select pid from pg_stat_activity where wait_event_type = 'Lock'",
            Self::Clearway => "select waiter from clearway.locks group by waiter",
        }
    }

    /// This server's part of an expectation.
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

/// Plays a scenario; an error describes the first different answer.
fn play(who: Who, endpoint: &Endpoint, title: &str, steps: &[&str]) -> Result<(), String> {
    let mut owner = PgClient::connect(endpoint, LIMIT)?;
    owner.query(SETUP).map_err(|e| e.to_string())?;
    let mut sessions: BTreeMap<&str, PgClient> = BTreeMap::new();
    let (mut waits, mut id) = (0, String::new());
    for step in steps {
        let (name, rest) = step.split_at(1);
        if !sessions.contains_key(name) {
            sessions.insert(name, PgClient::connect(endpoint, LIMIT)?);
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
            _ => return Err(format!("{title}: {step}: unknown kind of step")),
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

/// Waits until `count` sessions wait for locks.
fn come_to(who: Who, owner: &mut PgClient, count: usize) -> Result<(), String> {
    let began = Instant::now();
    while owner.query(who.waiting()).map_err(|e| e.to_string())?.rows.len() != count {
        if began.elapsed() > LIMIT {
            return Err(format!("{count} sessions should be waiting"));
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
            let cleared =
                PgClient::connect(endpoint, LIMIT).unwrap().query("drop table if exists t");
            cleared.unwrap();
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn isolation_scenarios_have_their_recorded_results() {
    let server = Fixture::new("isolation");
    play_all(Who::Clearway, &Endpoint::loopback(server.address().port()));
    server.stop();
}

#[test]
fn isolation_scenarios_match_postgres_15() {
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
