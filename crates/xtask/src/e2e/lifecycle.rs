//! Start, refusal of a second server, orderly stop, and the data after it.

use clearway_harness::Res;
use clearway_harness::pgbench::{self, Length, QueryMode, Run, Script};
use clearway_harness::process;
use clearway_harness::server::{Kind, PrivateServer, START_LIMIT};
use clearway_harness::sums::Sums;
use std::path::Path;

/// The scenario's name.
pub const NAME: &str = "a clean stop keeps everything, and a directory has one server";

/// Takes ownership of the running server, because it stops it.
pub fn run(kind: &Kind, server: PrivateServer, data: &Path) -> Res<()> {
    pgbench::init(server.endpoint(), "dtgvp", 1)?;
    let before = Sums::read(server.endpoint())?;
    let run = Run {
        script: Script::TpcbLike,
        mode: QueryMode::Prepared,
        clients: 8,
        threads: Run::THREADS,
        length: Length::Transactions(50),
    };
    let report = run.execute(server.endpoint())?;
    refuses_a_second(kind, data)?;
    let left = Sums::read(server.endpoint())?;
    left.check(&before, run.script, report.processed)?;
    server.stop()?;
    let server = kind.start(data)?;
    same(&left, &Sums::read(server.endpoint())?, "after SIGINT and a new start")?;
    server.terminate()?;
    let server = kind.start(data)?;
    same(&left, &Sums::read(server.endpoint())?, "after SIGTERM and a new start")?;
    server.kill();
    let server = kind.start(data)?;
    same(
        &left,
        &Sums::read(server.endpoint())?,
        "after SIGKILL of an idle server and a new start",
    )?;
    server.stop().map(|_| ())
}

fn same(left: &Sums, found: &Sums, when: &str) -> Res<()> {
    if left == found { Ok(()) } else { Err(format!("{when}: {found:?}, expected {left:?}")) }
}

/// Checks that a second server on the same directory refuses to start, gives the reason, and exits.
fn refuses_a_second(kind: &Kind, data: &Path) -> Res<()> {
    // Port 0: if it did start, it would listen on a free port and be killed at the limit.
    let port = if matches!(kind, Kind::Postgres { .. }) { 1 } else { 0 };
    let second = process::run(&mut kind.command(data, port)?, "", START_LIMIT)?;
    if second.status.success() || second.output.trim().is_empty() {
        return Err(format!(
            "a second server on the same directory: {}, said:\n{}",
            second.status, second.output
        ));
    }
    Ok(())
}
