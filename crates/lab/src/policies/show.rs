//! Tables, charts and text derived from the measurements.

use super::contender::{Contender, PEERS};
use super::measure::{Measured, THREADS};
use super::race::RunResult;
use super::wrapped::Sharing;
use crate::number::median;
use crate::result::{Axis, Point, Samples, Series};
use crate::table::{Cell, Column, Table};
use clearway_replacement::{PolicyKind, ReplacementKind};

/// A published ratio agrees with ours within this many percentage points.
const AGREES: f64 = 0.3;

/// Returns all tables.
pub fn tables(measured: &[Measured]) -> Vec<Table> {
    let mut tables = vec![hits(measured), published(measured), lost(measured)];
    tables.extend(measured.iter().filter(|m| !m.raced.is_empty()).map(raced));
    tables
}

/// Renders the hit ratios by case. The crates' hit ratios come from one pass of one thread.
fn hits(measured: &[Measured]) -> Table {
    let mut columns = vec![Column::ours("trace and pool", ""), Column::ours("opt", "%")];
    columns.extend(PolicyKind::ALL.iter().map(|kind| Column::ours(kind.name(), "%")));
    columns.extend(PEERS.map(|peer| Column::ours(&peer.to_string(), "%")));
    let row = |of: &Measured| {
        let optimum = of.case.trace.hit_percent(of.optimum);
        let mut row = vec![Cell::text(of.case.name()), Cell::number(optimum, 2)];
        row.extend(PolicyKind::ALL.iter().map(|kind| Cell::number(of.exact(*kind), 2)));
        row.extend(PEERS.map(|peer| Cell::number(of.peer(peer), 2)));
        row
    };
    Table {
        title: "Hit ratios, one thread".into(),
        columns,
        rows: measured.iter().map(row).collect(),
    }
}

/// A published hit ratio and ours.
struct Known {
    case: String,
    policy: PolicyKind,
    published: f64,
    ours: f64,
}

fn known(measured: &[Measured]) -> Vec<Known> {
    let all = measured.iter().flat_map(|of| PolicyKind::ALL.iter().map(move |kind| (of, *kind)));
    let known = all.filter_map(|(of, policy)| {
        let published = of.case.published(policy.name())?;
        Some(Known { case: of.case.name(), policy, published, ours: of.exact(policy)? })
    });
    known.collect()
}

fn published(measured: &[Measured]) -> Table {
    let columns = vec![
        Column::ours("trace and pool", ""),
        Column::ours("policy", ""),
        Column::ours("", "%"),
        Column::published("", "%"),
        Column::ours("difference", "points"),
    ];
    let row = |known: &Known| {
        let mut row = vec![Cell::text(known.case.clone()), Cell::text(known.policy.name())];
        row.extend(
            [known.ours, known.published, known.ours - known.published]
                .map(|value| Cell::number(value, 2)),
        );
        row
    };
    let rows = known(measured).iter().map(row).collect();
    Table { title: "Hit ratios beside published ones".into(), columns, rows }
}

/// Renders the largest loss of each policy in each wrapper, and the case.
fn lost(measured: &[Measured]) -> Table {
    let mut sharings: Vec<(Sharing, u32)> = Vec::new();
    for wrapped in measured.iter().flat_map(|of| &of.wrapped) {
        if !sharings.contains(&(wrapped.sharing, wrapped.threads)) {
            sharings.push((wrapped.sharing, wrapped.threads));
        }
    }
    let mut columns = vec![Column::ours("policy", "")];
    for (sharing, threads) in &sharings {
        columns.push(Column::ours(&format!("{sharing}, {threads} threads"), "points"));
        columns.push(Column::ours("on", ""));
    }
    let row = |policy: &PolicyKind| {
        let mut row = vec![Cell::text(policy.name())];
        for (sharing, threads) in &sharings {
            let lost = measured
                .iter()
                .filter_map(|of| Some((of.lost(*policy, *sharing, *threads)?, of.case.name())));
            let worst = lost.max_by(|a, b| a.0.total_cmp(&b.0));
            row.push(Cell::number(worst.as_ref().map(|(lost, _)| *lost), 2));
            row.push(worst.map_or(Cell::Empty, |(_, case)| Cell::text(case)));
        }
        row
    };
    let title =
        "Hit ratio lost compared with the exact policy because hits are reported late: worst case of each"
            .into();
    Table { title, columns, rows: PolicyKind::ALL.iter().map(row).collect() }
}

/// Renders the caches of one case.
fn raced(of: &Measured) -> Table {
    let columns = vec![
        Column::ours("cache", ""),
        Column::ours("1 thread", "/us"),
        Column::ours("2 threads", "/us"),
        Column::ours("hits, 1 thread", "%"),
        Column::ours("hits, 2 threads", "%"),
    ];
    let row = |contender: Contender| {
        let mut row = vec![Cell::text(contender.to_string())];
        let figures: [fn(&RunResult) -> f64; 2] = [|ran| ran.rate, |ran| ran.hit_percent];
        for figure in figures {
            row.extend(
                THREADS
                    .map(|threads| Cell::measured(&of.repetitions(contender, threads, figure), 2)),
            );
        }
        row
    };
    let title = format!("{}: as a cache, medians", of.case.name());
    Table { title, columns, rows: contenders(of).into_iter().map(row).collect() }
}

fn contenders(of: &Measured) -> Vec<Contender> {
    of.raced.iter().filter(|raced| raced.threads == 1).map(|raced| raced.contender).collect()
}

/// Returns a hit-ratio chart of every case, and a throughput chart of its caches.
pub fn samples(measured: &[Measured]) -> Vec<Samples> {
    measured.iter().flat_map(|of| std::iter::once(hit_chart(of)).chain(rate_chart(of))).collect()
}

fn hit_chart(of: &Measured) -> Samples {
    let peers = PEERS.iter().filter_map(|peer| Some((peer.to_string(), of.peer(*peer)?)));
    let mut bars = vec![("opt".to_owned(), of.case.trace.hit_percent(of.optimum))];
    bars.extend(
        of.exact
            .iter()
            .map(|(kind, misses)| (kind.name().to_owned(), of.case.trace.hit_percent(*misses))),
    );
    bars.extend(peers);
    let points = bars
        .iter()
        .enumerate()
        .map(|(at, (_, percent))| Point { x: at as f64, y: vec![*percent] })
        .collect();
    Samples {
        title: format!("{}: hit ratio", of.case.name()),
        x: Axis::names("policy", bars.into_iter().map(|(name, _)| name).collect()),
        y: Axis::linear("hit ratio", "%"),
        series: vec![Series { name: "one thread".into(), points }],
        drawn: true,
        marked: None,
    }
}

fn rate_chart(of: &Measured) -> Option<Samples> {
    let names: Vec<Contender> = contenders(of);
    let points = |threads| {
        let raced = of.raced.iter().filter(move |raced| raced.threads == threads);
        raced.enumerate().map(|(at, raced)| Point {
            x: at as f64,
            y: raced.ran.iter().map(|r| r.rate).collect(),
        })
    };
    let series = THREADS.map(|threads| Series {
        name: format!("threads: {threads}"),
        points: points(threads).collect(),
    });
    (!names.is_empty()).then(|| Samples {
        title: format!("{}: as a cache", of.case.name()),
        x: Axis::names("cache", names.iter().map(Contender::to_string).collect()),
        y: Axis::linear("throughput", "/us"),
        series: series.to_vec(),
        drawn: of.case.is_raced(),
        marked: None,
    })
}

/// Summarises each policy's distance from the best one.
pub fn found(measured: &[Measured]) -> Vec<String> {
    let mut losses: Vec<(PolicyKind, f64, f64)> = Vec::new();
    for kind in PolicyKind::ALL {
        let below = |of: &Measured| {
            let best =
                PolicyKind::ALL.iter().filter_map(|kind| of.exact(*kind)).fold(0.0, f64::max);
            of.exact(*kind).map(|percent| best - percent)
        };
        let below: Vec<f64> = measured.iter().filter_map(below).collect();
        let worst = below.iter().copied().fold(0.0, f64::max);
        losses.push((*kind, below.iter().sum::<f64>() / below.len().max(1) as f64, worst));
    }
    losses.sort_by(|a, b| a.1.total_cmp(&b.1));
    let words: Vec<String> = losses
        .iter()
        .map(|(kind, mean, worst)| format!("{kind} {mean:.1} (at worst {worst:.1})"))
        .collect();
    if measured.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "Percentage points of hit ratio below the best policy of each case, on average: {}.",
        words.join(", ")
    )]
}

/// Summarises the throughput as a cache: the default, the fastest of ours, and the crates.
pub fn as_a_cache(measured: &[Measured]) -> Vec<String> {
    let one = |of: &Measured, threads: usize| {
        let raced = of.raced.iter().filter(|raced| raced.threads == threads);
        let rates: Vec<(Contender, f64)> = raced
            .filter_map(|raced| {
                let rates: Vec<f64> = raced.ran.iter().map(|ran| ran.rate).collect();
                Some((raced.contender, median(&rates)?))
            })
            .collect();
        let ours = rates.iter().filter(|(contender, _)| matches!(contender, Contender::Ours(_)));
        let fastest = ours.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let default = Contender::Ours(ReplacementKind::default());
        let others = std::iter::once(default).chain(PEERS);
        let others = others.filter_map(|c| rates.iter().find(|(contender, _)| *contender == c));
        let shown: Vec<String> =
            others.map(|(contender, rate)| format!("{contender} {rate:.2}")).collect();
        Some(format!(
            "{} as a cache, threads: {threads}, accesses a microsecond: the fastest of ours, {}, {:.2}; beside it {}.",
            of.case.name(),
            fastest.0,
            fastest.1,
            shown.join(", ")
        ))
    };
    let raced = measured.iter().filter(|of| of.case.is_raced());
    raced.flat_map(|of| THREADS.into_iter().filter_map(move |threads| one(of, threads))).collect()
}

/// Summarises the agreement with published ratios.
pub fn agreement(measured: &[Measured]) -> Vec<String> {
    let known = known(measured);
    let off: Vec<String> = known
        .iter()
        .filter(|known| (known.ours - known.published).abs() > AGREES)
        .map(|k| {
            format!(
                "{} on {}: {:.2} % and published {:.2} %",
                k.policy, k.case, k.ours, k.published
            )
        })
        .collect();
    if known.is_empty() {
        return Vec::new();
    }
    let agree = format!(
        "{} of {} published ratios are within {AGREES} percentage points of ours.",
        known.len() - off.len(),
        known.len()
    );
    if off.is_empty() { vec![agree] } else { vec![agree, format!("Not so: {}.", off.join("; "))] }
}
