//! Scenarios that need their own server with special settings.

use clearway_harness::Res;
use clearway_harness::client::PgClient;
use clearway_harness::pgbench::{self, Length, QueryMode, Run, Script};
use clearway_harness::process;
use clearway_harness::server::Kind;
use clearway_harness::sums::Sums;
use clearway_harness::tools::{TempDir, need};
use std::process::Command;
use std::time::Duration;

/// Longest time for a statement.
const LIMIT: Duration = Duration::from_secs(120);
/// Scale 1 of pgbench is about 16 MiB: eight times this.
const SMALL_POOL: &str = "2MB";

/// Uses data eight times the size of the buffer pool. Rolls back and commits a transaction that
/// writes more than the pool holds; then kills the server.
pub fn small_pool(kind: &Kind) -> Res<()> {
    let kind =
        kind.with(&["--buffer-pool", SMALL_POOL], &[&format!("shared_buffers={SMALL_POOL}")]);
    let directory = TempDir::new("small-pool")?;
    let data = directory.path().join("data");
    kind.prepare(&data)?;
    let server = kind.start(&data)?;
    pgbench::init(server.endpoint(), "dtgvp", 1)?;
    let mut before = Sums::read(server.endpoint())?;
    for script in Script::ALL {
        let run = Run {
            script,
            mode: QueryMode::Prepared,
            clients: 16,
            threads: Run::THREADS,
            length: Length::Transactions(40),
        };
        let report = run.execute(server.endpoint())?;
        let after = Sums::read(server.endpoint())?;
        after
            .check(&before, script, report.processed)
            .map_err(|why| format!("pgbench {}: {why}", run.name()))?;
        before = after;
    }
    let mut client = PgClient::connect(server.endpoint(), LIMIT)?;
    let mut all = |end: &str| -> Res<()> {
        for sql in ["begin", "update pgbench_accounts set abalance = abalance + 1", end] {
            client.query(sql).map_err(|e| format!("{sql}: {e}"))?;
        }
        Ok(())
    };
    all("rollback")?;
    expect("after the rollback", Sums::read(server.endpoint())?, before)?;
    all("commit")?;
    let more = Sums { accounts: before.accounts + before.account_rows, ..before };
    expect("after the commit", Sums::read(server.endpoint())?, more)?;
    server.kill();
    let server = kind.start(&data)?;
    expect("after a kill", Sums::read(server.endpoint())?, more)?;
    server.stop().map(|_| ())
}

/// Runs psql and pgbench over a Unix socket.
pub fn unix_socket(kind: &Kind) -> Res<()> {
    let directory = TempDir::new("socket")?;
    let sockets = directory.path().join("s");
    let kind = kind.with_sockets_in(&sockets)?;
    let data = directory.path().join("data");
    kind.prepare(&data)?;
    let server = kind.start(&data)?;
    let mut endpoint = server.endpoint().clone();
    endpoint.host = sockets.display().to_string();
    let mut psql = Command::new(need("psql")?);
    psql.args(endpoint.client_args()).args([
        "-X",
        "-A",
        "-t",
        "-c",
        "select 6 * 7",
        &endpoint.database,
    ]);
    let output = process::run(&mut psql, "", LIMIT)?.success("psql over a Unix socket")?;
    if output != "42\n" {
        return Err(format!("psql printed {output:?}"));
    }
    pgbench::init(&endpoint, "dtgvp", 1)?;
    let run = Run {
        script: Script::TpcbLike,
        mode: QueryMode::Prepared,
        clients: 16,
        threads: Run::THREADS,
        length: Length::Transactions(20),
    };
    let report = run.execute(&endpoint)?;
    // Our own client only has TCP.
    let filled = Sums { account_rows: 100_000, ..Sums::default() };
    Sums::read(server.endpoint())?.check(&filled, run.script, report.processed)?;
    server.stop().map(|_| ())
}

fn expect(when: &str, found: Sums, wanted: Sums) -> Res<()> {
    if found == wanted { Ok(()) } else { Err(format!("{when}: {found:?}, expected {wanted:?}")) }
}
