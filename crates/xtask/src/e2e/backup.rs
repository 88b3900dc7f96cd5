//! Takes backups while pgbench runs, restores them, and serves them beside the original server.

use clearway_harness::pgbench::{self, Length, PgbenchReport, QueryMode, Run, Script};
use clearway_harness::process;
use clearway_harness::server::Kind;
use clearway_harness::sums::Sums;
use clearway_harness::tools::TempDir;
use clearway_harness::{Endpoint, Res};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest that one backup or restore may take.
const LIMIT: Duration = Duration::from_secs(120);
/// How long pgbench runs.
const SECONDS: u32 = 6;
/// Options of the backups; the first takes seconds, so that many changes happen meanwhile.
const BACKUPS: [&[&str]; 3] = [&["--rate", "3MiB"], &[], &[]];

/// The history just before and just after a backup.
struct Taken {
    before: i64,
    after: i64,
}

/// Checks that in each backup the four sums of TPC-B agree, and that it has all of the history
/// before it and nothing that came after it.
pub fn under_load(kind: &Kind) -> Res<()> {
    let Kind::Clearway { binary, .. } = kind else {
        println!("     skipped: these are Clearway's own commands");
        return Ok(());
    };
    let directory = TempDir::new("backup")?;
    let at = |name: &str| directory.path().join(name);
    let server = kind.start(&at("data"))?;
    pgbench::init(server.endpoint(), "dtgvp", 1)?;
    let run = Run {
        script: Script::TpcbLike,
        mode: QueryMode::Prepared,
        clients: 8,
        threads: Run::THREADS,
        length: Length::Seconds(SECONDS),
    };
    let endpoint = server.endpoint();
    let (report, taken) = std::thread::scope(|scope| {
        let load = scope.spawn(move || run.execute(endpoint));
        let taken = backups(binary, &at("data"), endpoint);
        (load.join().unwrap_or_else(|_| Err("pgbench's thread has panicked".to_owned())), taken)
    });
    let (report, taken): (PgbenchReport, Vec<Taken>) = (report?, taken?);
    for (i, Taken { before, after }) in taken.into_iter().enumerate() {
        let (copy, new) = (at(&format!("data.{i}")), at(&format!("new.{i}")));
        command(binary, &["restore"], &[&copy, &new])?;
        let other = kind.start(&new)?;
        let sums = Sums::read(other.endpoint())?;
        sums.check(
            &Sums { account_rows: 100_000, ..Sums::default() },
            Script::TpcbLike,
            sums.history as u64,
        )
        .map_err(|why| format!("backup {i}: {why}"))?;
        if !(before..=after).contains(&sums.history) {
            return Err(format!(
                "backup {i}: {} rows of history, not between {before} and {after}",
                sums.history
            ));
        }
        println!("     backup {i}: {} of {} transactions", sums.history, report.processed);
        other.stop()?;
    }
    server.stop().map(|_| ())
}

/// Takes backups beside the data directory and records the history around each; the first one as
/// soon as there is some history.
fn backups(binary: &Path, data: &Path, endpoint: &Endpoint) -> Res<Vec<Taken>> {
    let mut client = clearway_harness::client::PgClient::connect(endpoint, LIMIT)?;
    let mut history = || client.number("select count(*) from pgbench_history");
    while history()? == 0 {}
    let mut taken = Vec::new();
    for (i, flags) in BACKUPS.into_iter().enumerate() {
        let before = history()?;
        command(
            binary,
            &[&["backup"], flags].concat(),
            &[data, &data.with_extension(i.to_string())],
        )?;
        taken.push(Taken { before, after: history()? });
    }
    Ok(taken)
}

fn command(binary: &Path, what: &[&str], paths: &[&Path]) -> Res<()> {
    let done = process::run(Command::new(binary).args(what).args(paths), "", LIMIT)?;
    let said = done.success(&format!("clearway {}", what.join(" ")))?;
    println!("     {}", said.trim());
    Ok(())
}
