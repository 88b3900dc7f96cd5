//! The chart of the README: Clearway beside PostgreSQL in four cases, as one SVG file.
//!
//! It takes the newest record of each experiment and refuses records that documents must not quote.
//! Each panel has its own scale, from zero.

use super::page::escape;
use crate::number::{FEW_REPETITIONS, median, shown, whiskers};
use crate::result::{Record, Samples};
use clearway_harness::Res;
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE: &str = "throughput.svg";

/// One case of the chart.
pub struct Panel {
    /// Title.
    pub title: &'static str,
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Title of the samples that it shows.
    pub samples: &'static str,
}

/// The cases, from left to right and from top to bottom.
pub const PANELS: [Panel; 4] = [
    Panel {
        title: "Point reads (pgbench -S)",
        experiment: "pgbench",
        samples: "select-only, prepared: throughput",
    },
    Panel {
        title: "pgbench tpcb-like",
        experiment: "pgbench",
        samples: "tpcb-like, prepared: throughput",
    },
    Panel {
        title: "One hot row, autocommit",
        experiment: "hot-rows",
        samples: "autocommit v + 1: throughput",
    },
    Panel {
        title: "One hot row, in a block",
        experiment: "hot-rows",
        samples: "FOR UPDATE, then SET v: throughput",
    },
];
/// The clients of all cases.
const CLIENTS: f64 = 100.0;
/// The systems of a panel, ours first, and the CSS classes of their bars.
const SYSTEMS: [(&str, &str); 2] = [("Clearway", "ours"), ("PostgreSQL", "peer")];

/// Panels in a row, and their size.
const ACROSS: usize = 2;
const PANEL: (i32, i32) = (380, 88);
/// Space for the names of the systems, and for the numbers to the right of the bars.
const NAMES: i32 = 84;
const NUMBERS: i32 = 96;
const BAR: i32 = 18;
const BAR_STEP: i32 = 24;
const LINE: i32 = 16;
const STYLE: &str = "text { font: 13px system-ui, 'DejaVu Sans', sans-serif; fill: #1b1f24; } \
    .title { font-weight: 600; } .note { font-size: 11px; fill: #5d6670; } .ours { fill: #0072b2; } \
    .peer { fill: #8a96a3; } .spread { stroke: #1b1f24; } \
    @media (prefers-color-scheme: dark) { text { fill: #e4e7eb; } .note { fill: #9aa4af; } \
    .ours { fill: #58a6e8; } .peer { fill: #76818d; } .spread { stroke: #e4e7eb; } }";

/// Every repetition of the systems in a panel.
type Rates = [Vec<f64>; 2];

/// Writes the chart to `directory` and returns its path.
pub fn write(records: &[Record], directory: &Path) -> Res<PathBuf> {
    let path = directory.join(FILE);
    let svg = svg(records)?;
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&path, svg))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

fn svg(records: &[Record]) -> Res<String> {
    let (mut used, mut most): (Vec<&Record>, _) = (Vec::new(), 0);
    let mut body = String::new();
    for (at, panel) in PANELS.iter().enumerate() {
        let record = newest(records, panel.experiment)?;
        if used.iter().all(|other| other.experiment != record.experiment) {
            used.push(record);
        }
        let corner = ((at % ACROSS) as i32 * PANEL.0, (at / ACROSS) as i32 * PANEL.1);
        let rates = rates(record, panel)?;
        most = rates.iter().map(Vec::len).fold(most, usize::max);
        body += &drawn(panel, &rates, corner);
    }
    let mut y = PANELS.len().div_ceil(ACROSS) as i32 * PANEL.1 + LINE;
    for line in notes(&used, most) {
        body += &format!("<text class=\"note\" x=\"0\" y=\"{y}\">{}</text>\n", escape(&line));
        y += LINE;
    }
    let width = PANEL.0 * ACROSS as i32;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{y}\" \
         viewBox=\"0 0 {width} {y}\">\n<title>Throughput of Clearway and PostgreSQL</title>\n\
         <style>{STYLE}</style>\n{body}</svg>\n"
    ))
}

fn newest<'a>(records: &'a [Record], experiment: &str) -> Res<&'a Record> {
    let of = records.iter().filter(|record| record.experiment == experiment);
    let record = of.max_by(|a, b| a.date.cmp(&b.date)).ok_or_else(|| {
        format!("there is no record of {experiment}\nhint: clearway-lab run {experiment}")
    })?;
    match record.unpublishable() {
        Some(why) => Err(format!("the record of {experiment} cannot be published: {why}")),
        None => Ok(record),
    }
}

fn rates(record: &Record, panel: &Panel) -> Res<Rates> {
    let missing = |what: &str| format!("the record of {} has no {what}", panel.experiment);
    let samples = record.findings.samples.iter().find(|samples| samples.title == panel.samples);
    let samples = samples.ok_or_else(|| missing(panel.samples))?;
    let of = |name: &str| {
        rates_of(samples, name).ok_or_else(|| missing(&format!("{}, {name}", panel.samples)))
    };
    Ok([of(SYSTEMS[0].0)?, of(SYSTEMS[1].0)?])
}

fn rates_of(samples: &Samples, name: &str) -> Option<Vec<f64>> {
    let series = samples.series.iter().find(|series| series.name == name)?;
    let rates = &series.points.iter().find(|point| point.x == CLIENTS)?.y;
    median(rates).map(|_| rates.clone())
}

fn drawn(panel: &Panel, rates: &Rates, (left, top): (i32, i32)) -> String {
    let middle = rates.each_ref().map(|rates| median(rates).unwrap_or(f64::NAN));
    let ends = rates.each_ref().map(|rates| whiskers(rates).unwrap_or((f64::NAN, f64::NAN)));
    let most = ends.iter().map(|end| end.1).chain(middle).fold(f64::MIN_POSITIVE, f64::max);
    let room = f64::from(PANEL.0 - NAMES - NUMBERS);
    let at = |rate: f64| left + NAMES + (rate / most * room).round() as i32;
    let mut out = format!(
        "<text class=\"title\" x=\"{left}\" y=\"{}\">{}: {}x</text>\n",
        top + LINE,
        escape(panel.title),
        shown(middle[0] / middle[1], 1)
    );
    for (number, (name, class)) in SYSTEMS.into_iter().enumerate() {
        let y = top + LINE + 8 + number as i32 * BAR_STEP;
        let (rate, (low, high)) = (middle[number], ends[number]);
        let (text, centre) = (y + BAR - 5, y + BAR / 2);
        out += &format!(
            "<text x=\"{left}\" y=\"{text}\">{name}</text>\n\
             <rect class=\"{class}\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{BAR}\"/>\n\
             <line class=\"spread\" x1=\"{}\" x2=\"{}\" y1=\"{centre}\" y2=\"{centre}\"/>\n\
             <text x=\"{}\" y=\"{text}\">{} TPS</text>\n",
            left + NAMES,
            at(rate) - left - NAMES,
            at(low),
            at(high),
            at(rate.max(high)) + 6,
            shown(rate, 0)
        );
    }
    out
}

/// Returns the lines under the panels: what the bars are, and commit and machine of each record.
/// `most` is the largest number of repetitions.
fn notes(used: &[&Record], most: usize) -> Vec<String> {
    let span = match most <= FEW_REPETITIONS {
        true => format!("lines span all {most} repetitions"),
        false => "lines span the quartiles of the repetitions".into(),
    };
    let mut lines =
        vec![format!("{CLIENTS} clients; bars are medians, {span}; each panel has its own scale")];
    for record in used {
        let origin = format!("commit {}, {}", record.commit, record.date);
        lines.push(format!("{}: {origin}; {}", record.experiment, record.machine));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Axis, Point, Series, example};
    use clearway_harness::tools::TempDir;

    fn record(experiment: &str, date: &str, rate: f64) -> Record {
        let mut record = Record { experiment: experiment.into(), date: date.into(), ..example() };
        let series = |name: &str, rate: f64| {
            let point =
                |x: f64| Point { x, y: vec![rate * x / 100.0, rate * x / 100.0 * 1.2, f64::NAN] };
            Series { name: name.into(), points: vec![point(1.0), point(100.0)] }
        };
        let samples = |panel: &Panel| Samples {
            title: panel.samples.into(),
            x: Axis::log("clients", ""),
            y: Axis::linear("throughput", "TPS"),
            series: vec![series("Clearway", rate), series("PostgreSQL", rate / 4.0)],
            drawn: true,
            marked: None,
        };
        let panels = PANELS.iter().filter(|panel| panel.experiment == experiment);
        record.findings.samples = panels.map(samples).collect();
        record
    }

    fn records() -> Vec<Record> {
        vec![
            record("pgbench", "2026-01-02 00:00 UTC", 180_000.0),
            record("pgbench", "2026-01-01 00:00 UTC", 70_000.0),
            record("hot-rows", "2026-01-03 00:00 UTC", 20_000.0),
        ]
    }

    #[test]
    fn chart_shows_the_newest_records_and_their_origin() {
        let directory = TempDir::new("figures").unwrap();
        let path = write(&records(), &directory.path().join("img")).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        assert_eq!(svg.matches("<rect").count(), 8);
        for part in [
            "Point reads (pgbench -S): 4.0x",
            ">180,000 TPS<",
            ">45,000 TPS<",
            ">20,000 TPS<",
            "lines span all 3 repetitions",
            "pgbench: commit abc123, 2026-01-02 00:00 UTC; a &lt;chip&gt;, 2 cores",
            "hot-rows: commit abc123, 2026-01-03",
        ] {
            assert!(svg.contains(part), "`{part}` is not in\n{svg}");
        }
        assert!(!svg.contains("70,000") && !svg.contains("NaN"));
    }

    #[test]
    fn missing_and_unpublishable_records_are_refused() {
        let why = svg(&records()[..2]).unwrap_err();
        assert!(why.contains("no record of hot-rows") && why.contains("hint:"), "{why}");
        let mut quick = records();
        quick[0].quick = true;
        assert!(svg(&quick).unwrap_err().contains("cannot be published"));
        let mut partial = records();
        partial[2].findings.samples.pop();
        assert!(svg(&partial).unwrap_err().contains("has no FOR UPDATE"));
    }
}
