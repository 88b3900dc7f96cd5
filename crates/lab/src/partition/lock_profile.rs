//! The share of CPU time that locks take on the real engine, from a profile.
//!
//! A sample counts where it was taken, so what the lock table allocates counts for the allocator. A
//! function that the compiler has inlined counts as its caller. So the shares are lower bounds.

use super::real::{Case, ENGINE};
use crate::experiment::Task;
use crate::profile::{Profile, Profiler};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings, Point, Samples, Series};
use crate::table::{Cell, Column, Table};
use clearway_cluster::SchemeKind;
use clearway_coordinator::Stall;
use clearway_harness::Res;
use std::time::Duration;

/// Name of the experiment.
pub const NAME: &str = "partition/lock-profile";
/// Without a stall, transactions at both partitions are hardly ever active while others run, and
/// these take no locks. In a turn of the event loop all other clients run, so they take locks, and
/// the thread never polls the clock.
const STALLS: [(Stall, &str); 2] =
    [(Stall::None, "no stall"), (Stall::Turns(1), "a stall of a turn")];
/// Transactions at both partitions, in percent.
const PERCENT: u64 = 10;
/// Length of a quick run, and the start of each run, which does not count for the rate.
const QUICK: Duration = Duration::from_millis(100);
const START: Duration = Duration::from_millis(10);
/// The lock table's module.
const LOCKS: &str = "clearway_partition::lock::";

/// A part of what locks cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    All,
    /// Finding and changing entries of the table.
    Table,
    Acquire,
    Release,
}

impl Work {
    /// With the source's percent.
    const EACH: [(Self, &str, f64); 4] = [
        (Self::All, "all", 34.0),
        (Self::Table, "table", 12.0),
        (Self::Acquire, "acquire", 14.0),
        (Self::Release, "release", 6.0),
    ];

    /// Returns the part to which a function belongs, by its demangled name.
    fn of(function: &str) -> Option<Self> {
        let (_, inside) = function.split_once(LOCKS)?;
        let in_table = inside.contains("LockTable");
        let releases = ["release", "stop_waiting", "leave", "serve", "close"];
        Some(match () {
            () if releases.iter().any(|name| inside.contains(name)) => Self::Release,
            () if in_table || inside.contains("grant") => Self::Acquire,
            () => Self::Table,
        })
    }

    fn percent(self, profile: &Profile) -> f64 {
        profile.share(|function| match Self::of(function) {
            Some(work) => self == Self::All || self == work,
            None => false,
        })
    }
}

/// Profiles this process, which runs the engine, with each stall.
pub fn run(task: &Task) -> Res<Findings> {
    let length = match task.options.quick {
        true => QUICK,
        false => Duration::from_secs(task.options.seconds.into()),
    };
    let seeds = super::seeds(task);
    let name = |stall: &str| format!("{stall}, {ENGINE}");
    let mut stalls = STALLS.to_vec();
    stalls.retain(|(_, stall)| task.part.wants(&name(stall), false));
    let mut progress = Progress::new(NAME, stalls.len() * seeds.len());
    let mut series: Vec<Series> = stalls.iter().map(|(_, stall)| empty(name(stall))).collect();
    let mut missing = None;
    for seed in &seeds {
        for ((stall, text), series) in stalls.iter().zip(&mut series) {
            progress.step(&name(text));
            let case = Case {
                scheme: SchemeKind::Locking,
                stall: *stall,
                percent: PERCENT,
                conflicts: false,
            };
            let load = case.load(*seed)?;
            let profiler = Profiler::start(std::process::id());
            load.run([length, START])?;
            match profiler.and_then(Profiler::finish) {
                Ok(profile) => {
                    for (point, (work, ..)) in series.points.iter_mut().zip(Work::EACH) {
                        point.y.push(work.percent(&profile));
                    }
                }
                Err(why) => missing = Some(format!("A run was not profiled: {why}")),
            }
        }
    }
    Ok(Findings {
        configuration: configuration(task, length),
        seeds,
        tables: vec![table(&series)],
        samples: vec![drawn(series)],
        found: missing.into_iter().collect(),
        agreement: Vec::new(),
        bars: Vec::new(),
    })
}

fn empty(name: String) -> Series {
    let point = |at: usize| Point { x: at as f64, y: Vec::new() };
    Series { name, points: (0..Work::EACH.len()).map(point).collect() }
}

fn table(series: &[Series]) -> Table {
    let mut columns = vec![Column::ours("locks", "")];
    columns.extend(series.iter().map(|series| Column::ours(&series.name, "%")));
    columns.push(Column::published("TPC-C", "%"));
    let row = |(at, (_, name, source)): (usize, (Work, &str, f64))| {
        let mut row = vec![Cell::text(name)];
        row.extend(series.iter().map(|series| Cell::measured(&series.points[at].y, 1)));
        row.push(Cell::number(source, 0));
        row
    };
    Table {
        title: format!("CPU time on locks, locking, {PERCENT} % at both partitions"),
        columns,
        rows: Work::EACH.into_iter().enumerate().map(row).collect(),
    }
}

fn drawn(mut series: Vec<Series>) -> Samples {
    series.push(Series {
        name: "TPC-C, published".into(),
        points: (Work::EACH.iter().enumerate())
            .map(|(at, (_, _, source))| Point { x: at as f64, y: vec![*source] })
            .collect(),
    });
    Samples {
        title: "CPU time on locks".into(),
        x: Axis::names("locks", Work::EACH.map(|(_, name, _)| name.to_owned()).to_vec()),
        y: Axis::linear("CPU time", "%"),
        series,
        drawn: true,
        marked: None,
    }
}

fn configuration(task: &Task, length: Duration) -> Configuration {
    let settings = [
        ("load", format!("micro-benchmark, locking, {PERCENT} % at both partitions, no conflicts")),
        ("length of a run", format!("{} ms", length.as_millis())),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_lock_table_have_a_part() {
        let of = |name: &str| Work::of(&format!("clearway_partition::{name}"));
        assert_eq!(of("lock::table::LockTable::acquire"), Some(Work::Acquire));
        assert_eq!(of("lock::table::LockTable::release"), Some(Work::Release));
        assert_eq!(of("lock::scope::Scope::grant"), Some(Work::Acquire));
        assert_eq!(of("lock::few::Few<T>::contains"), Some(Work::Table));
        assert_eq!(of("exec::modify::run"), None);
    }
}
