//! The real pgbench: both ways to fill the tables, its three scripts, each protocol, one client and
//! many.

use super::Setting;
use clearway_harness::Res;
use clearway_harness::pgbench::{self, Length, QueryMode, Run, Script};
use clearway_harness::sums::Sums;

/// Numbers of clients: one, and many times more than there are cores.
const CLIENTS: [u32; 2] = [1, 64];

/// Runs pgbench after `-I dtgvp`: the client sends the rows by COPY.
pub fn by_copy(setting: &Setting) -> Res<()> {
    all_runs(setting, "dtgvp")
}

/// Runs pgbench after `-I dtGvp`: INSERT ... SELECT FROM generate_series.
pub fn server_side(setting: &Setting) -> Res<()> {
    all_runs(setting, "dtGvp")
}

/// Runs 64 clients at scale 1, which has one branch: they queue for one row.
pub fn more_clients_than_rows(setting: &Setting) -> Res<()> {
    pgbench::init(&setting.endpoint, "dtgvp", 1)?;
    let run = Run {
        script: Script::TpcbLike,
        mode: QueryMode::Simple,
        clients: 64,
        threads: Run::THREADS,
        length: Length::Transactions(10),
    };
    checked(setting, &run, Sums::read(&setting.endpoint)?).map(|_| ())
}

/// Runs writers for several seconds without a pause, about as many as a connection pool has: a
/// wake-up lost once in a million shows here.
pub fn sustained(setting: &Setting) -> Res<()> {
    pgbench::init(&setting.endpoint, "dtgvp", setting.scale)?;
    let mut sums = Sums::read(&setting.endpoint)?;
    for script in [Script::SimpleUpdate, Script::TpcbLike] {
        let length = Length::Seconds(setting.seconds);
        sums = checked(
            setting,
            &Run { script, mode: QueryMode::Prepared, clients: 16, threads: Run::THREADS, length },
            sums,
        )?;
    }
    Ok(())
}

fn all_runs(setting: &Setting, steps: &str) -> Res<()> {
    let took = pgbench::init(&setting.endpoint, steps, setting.scale)?;
    let mut sums = Sums::read(&setting.endpoint)?;
    let filled = Sums { account_rows: i64::from(setting.scale) * 100_000, ..Sums::default() };
    if sums != filled {
        return Err(format!("after pgbench -i -I {steps}: {sums:?}, expected {filled:?}"));
    }
    println!("     init -I {steps} -s {}: {took:.1?}", setting.scale);
    for script in Script::ALL {
        for mode in QueryMode::ALL {
            for clients in CLIENTS {
                let length = Length::Transactions(setting.transactions / clients);
                sums = checked(
                    setting,
                    &Run { script, mode, clients, threads: Run::THREADS, length },
                    sums,
                )?;
            }
        }
    }
    Ok(())
}

/// Runs it, checks the sums against those before, and returns the new ones.
fn checked(setting: &Setting, run: &Run, before: Sums) -> Res<Sums> {
    let report = run.execute(&setting.endpoint)?;
    let after = Sums::read(&setting.endpoint)?;
    after
        .check(&before, run.script, report.processed)
        .map_err(|why| format!("pgbench {}: {why}", run.name()))?;
    println!(
        "     {:<36} {:>8} transactions {:>9.0} tps",
        run.name(),
        report.processed,
        report.tps
    );
    Ok(after)
}
