//! `cargo xtask e2e`: drives the server from outside, as its users do.
//!
//! Every scenario states what it expects of any server with PostgreSQL's protocol, so
//! `--server postgres` or `--against` tests the scenarios themselves.

mod backup;
mod connections;
mod lifecycle;
mod locks;
mod pgbench;
mod psql;
mod variants;

use crate::options::Options;
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::tools::TempDir;
use clearway_harness::{Endpoint, Res};
use std::time::Instant;

/// The environment of a scenario.
pub struct Setting {
    /// The server.
    pub endpoint: Endpoint,
    /// pgbench's scale factor.
    pub scale: u32,
    /// Transactions of one pgbench run, all clients together.
    pub transactions: u32,
    /// Seconds of a run limited by time.
    pub seconds: u32,
}

type Scenario = (&'static str, fn(&Setting) -> Res<()>);
type OwnServer = (&'static str, fn(&Kind) -> Res<()>);

const SCENARIOS: [Scenario; 11] = [
    ("psql connects and times", psql::connects),
    ("psql script with an error in a transaction", psql::error_in_transaction),
    ("psql copies out and in", psql::copies),
    ("psql cancels a lock wait", psql::cancels),
    ("all pairs of row locks", locks::all_pairs),
    ("pgbench on data that came by COPY", pgbench::by_copy),
    ("pgbench on data that the server generated", pgbench::server_side),
    ("pgbench with more clients than rows of a table", pgbench::more_clients_than_rows),
    ("pgbench without a pause", pgbench::sustained),
    ("many connections, idle and busy", connections::idle_and_busy),
    ("a client that vanishes in a transaction", connections::vanishes),
];

/// Scenarios that start their own server.
const OWN_SERVER: [OwnServer; 3] = [
    ("data eight times the pool", variants::small_pool),
    ("a Unix socket", variants::unix_socket),
    ("backups while pgbench runs", backup::under_load),
];

/// Runs all scenarios, or those that match `--only`.
pub fn run(options: &Options) -> Res<()> {
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| name.contains(only));
    let mut names = SCENARIOS.iter().map(|(name, _)| *name).chain([lifecycle::NAME]);
    if !names.any(wanted) && !OWN_SERVER.iter().any(|(name, _)| wanted(name)) {
        return Err(format!("e2e: no scenario is called {:?}", options.only));
    }
    if let Some(endpoint) = &options.against {
        return scenarios(&setting(endpoint.clone(), options), wanted);
    }
    let kind = options.kind()?;
    let directory = TempDir::new("e2e")?;
    let data = directory.path().join("data");
    kind.prepare(&data)?;
    let server = kind.start(&data)?;
    let result = all(&kind, server, &data, options, wanted);
    if result.is_err() {
        eprintln!("the data directory stays at {}", directory.keep().display());
    }
    result
}

fn all(
    kind: &Kind,
    server: PrivateServer,
    data: &std::path::Path,
    options: &Options,
    wanted: impl Fn(&str) -> bool,
) -> Res<()> {
    if let Err(why) = scenarios(&setting(server.endpoint().clone(), options), &wanted) {
        // The server's log may have the cause.
        return Err(format!("{why}\nthe server's log:\n{}", server.log()));
    }
    if wanted(lifecycle::NAME) {
        one(lifecycle::NAME, || lifecycle::run(kind, server, data))?;
    } else {
        server.stop()?;
    }
    OWN_SERVER
        .iter()
        .filter(|(name, _)| wanted(name))
        .try_for_each(|(name, body)| one(name, || body(kind)))
}

fn setting(endpoint: Endpoint, options: &Options) -> Setting {
    let (scale, transactions, seconds) = if options.quick { (1, 640, 3) } else { (10, 2560, 10) };
    Setting { endpoint, scale, transactions, seconds }
}

fn scenarios(setting: &Setting, wanted: impl Fn(&str) -> bool) -> Res<()> {
    for (name, body) in SCENARIOS.iter().filter(|(name, _)| wanted(name)) {
        one(name, || body(setting))?;
    }
    Ok(())
}

fn one(name: &str, body: impl FnOnce() -> Res<()>) -> Res<()> {
    let started = Instant::now();
    body().map_err(|why| format!("e2e: {name}: {why}"))?;
    println!("e2e: {name}: passed in {:.1?}", started.elapsed());
    Ok(())
}
