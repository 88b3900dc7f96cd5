//! pgbench's three scripts against Clearway and, where it is installed, a PostgreSQL with the same durability and pool size.

use crate::Options;
use crate::compare::{Contender, compare};
use crate::machine::Machine;
use crate::report::{Bar, Report, Row};
use clearway_harness::pgbench::{Length, Mode, Run, Script};
use clearway_harness::server::Kind;
use clearway_harness::{Res, tools};

/// What it measures.
pub const ABOUT: &str = "pgbench's three scripts: Clearway against PostgreSQL, same durability, same pool size";

/// Buffer pool of Clearway and `shared_buffers` of PostgreSQL.
pub const POOL: &str = "256MB";

/// The runs: alone, as many clients as a small pool of connections has, and a crowd.
pub fn cases() -> Vec<Run> {
    let run = |script, mode, clients| Run { script, mode, clients, length: Length::Seconds(0) };
    let mut cases = Vec::new();
    for script in Script::ALL {
        for clients in [1, 16, 100] {
            cases.push(run(script, Mode::Prepared, clients));
        }
    }
    cases.push(run(Script::SelectOnly, Mode::Simple, 100));
    cases.push(run(Script::SelectOnly, Mode::Extended, 100));
    cases
}

/// The promises, by case.
const BARS: [(Script, u32, f64); 2] = [(Script::SelectOnly, 100, 1.5), (Script::TpcbLike, 16, 1.0)];

/// The Clearway under test, with these arguments besides the experiment's own.
pub fn clearway(options: &Options, more: &[&str]) -> Res<Kind> {
    let mut args: Vec<String> = ["--buffer-pool", POOL].iter().chain(more).map(|a| (*a).to_owned()).collect();
    args.extend(options.serve_args.iter().cloned());
    let binary = options.binary.clone().map_or_else(tools::build_server, Ok)?;
    Ok(Kind::Clearway { binary, args })
}

fn postgres() -> Kind {
    let pool = format!("shared_buffers={POOL}");
    let settings = [pool.as_str(), "fsync=on", "synchronous_commit=on", "max_connections=300"].map(String::from);
    Kind::Postgres { settings: settings.to_vec() }
}

/// How the runs are made, for the report.
pub fn conditions(scale: u32, options: &Options) -> Vec<String> {
    let runs = match options.quick {
        true => "a single tiny run: the rates mean nothing".into(),
        false => format!("median of {} runs of {} s, servers in turn", options.repeat, options.seconds),
    };
    vec![format!("scale {scale}, pool {POOL}, fsync on, TCP loopback, clients on the same machine"), runs]
}

/// Runs it.
pub fn run(options: &Options) -> Res<Report> {
    let scale = if options.quick { 1 } else { 10 };
    let mut contenders = vec![Contender::start("clearway", &clearway(options, &[])?, scale)?];
    let mut configuration = conditions(scale, options);
    if tools::find("postgres").is_some() && tools::find("initdb").is_some() {
        contenders.push(Contender::start("postgres", &postgres(), scale)?);
    } else if tools::in_ci() {
        return Err("PostgreSQL is not installed, and CI skips nothing".into());
    } else {
        configuration.push("PostgreSQL is not installed: no comparison".into());
    }
    let rows = compare(&mut contenders, &cases(), options)?;
    let bars = if options.quick { Vec::new() } else { judge(&rows) };
    let contenders = contenders.into_iter().map(|c| c.name).collect();
    Ok(Report { experiment: "pgbench", machine: Machine::here(), configuration, contenders, rows, bars })
}

fn judge(rows: &[Row]) -> Vec<Bar> {
    let bar = |(script, clients, at_least): (Script, u32, f64)| {
        let case = Run { script, mode: Mode::Prepared, clients, length: Length::Seconds(0) }.name();
        let reached = rows.iter().find(|row| row.case == case)?.ratio?;
        Some(Bar { case, at_least, reached })
    };
    BARS.into_iter().filter_map(bar).collect()
}
