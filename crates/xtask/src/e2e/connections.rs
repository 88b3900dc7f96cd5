//! Connections: many of them, and one that is lost.

use super::Setting;
use clearway_harness::Res;
use clearway_harness::client::PgClient;
use clearway_harness::pgbench::{self, Length, QueryMode, Run, Script};
use std::time::Duration;

/// Idle sessions, and busy sessions beside them.
const IDLE: usize = 1000;
const BUSY: u32 = 200;
/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// Checks that a thousand idle sessions still answer after two hundred busy ones have run.
pub fn idle_and_busy(setting: &Setting) -> Res<()> {
    let endpoint = &setting.endpoint;
    pgbench::init(endpoint, "dtgvp", 1)?;
    let connect =
        |n: usize| PgClient::connect(endpoint, LIMIT).map_err(|e| format!("connection {n}: {e}"));
    let mut idle = (0..IDLE).map(connect).collect::<Res<Vec<_>>>()?;
    let run = Run {
        script: Script::SelectOnly,
        mode: QueryMode::Prepared,
        clients: BUSY,
        threads: Run::THREADS,
        length: Length::Transactions(20),
    };
    let report = run.execute(endpoint)?;
    println!("     {IDLE} idle, {BUSY} busy: {:.0} tps", report.tps);
    for (n, client) in idle.iter_mut().enumerate() {
        if client.number("select 1").map_err(|e| format!("idle connection {n}: {e}"))? != 1 {
            return Err(format!("idle connection {n} gave a wrong answer"));
        }
    }
    Ok(())
}

/// Checks that the work of a client that disconnects is rolled back and its row is unlocked.
pub fn vanishes(setting: &Setting) -> Res<()> {
    let mut other = PgClient::connect(&setting.endpoint, LIMIT)?;
    for sql in [
        "drop table if exists e2e_vanish",
        "create table e2e_vanish (id int primary key, v int)",
        "insert into e2e_vanish values (1, 0)",
    ] {
        other.query(sql).map_err(|e| format!("{sql}: {e}"))?;
    }
    let mut gone = PgClient::connect(&setting.endpoint, LIMIT)?;
    gone.query("begin")?;
    gone.query("update e2e_vanish set v = 100 where id = 1")?;
    drop(gone);
    other.query("update e2e_vanish set v = v + 1 where id = 1")?;
    let value = other.number("select v from e2e_vanish")?;
    other.query("drop table e2e_vanish")?;
    if value == 1 { Ok(()) } else { Err(format!("v = {value}, expected 1")) }
}
