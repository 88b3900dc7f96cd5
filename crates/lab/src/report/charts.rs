//! Which charts the report draws of an experiment's samples.
//!
//! 1. As in the tables, runs with cores apart are left out where there are others.
//! 2. No chart has more than [`MAX_SERIES`] series: more are split by policy or by variant.
//! 3. A chart has at least two positions. Otherwise it is a number, which the tables have.

use super::ruler::position;
use crate::place::{self, LINE};
use crate::result::{Findings, Samples, Scale, Series};

/// Series of a chart, at most: as many as there are colours.
const MAX_SERIES: usize = 8;

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What is drawn.
    pub samples: Samples,
    /// Whether runs with cores apart are left out.
    pub near_only: bool,
}

/// Returns the charts of all samples that are drawn.
pub fn charts(findings: &Findings) -> Vec<Chart> {
    let drawn = findings.samples.iter().filter(|samples| samples.drawn);
    let prepared = drawn.map(|samples| near(findings, samples));
    let split = prepared.flat_map(|Chart { samples, near_only }| {
        split(samples).into_iter().map(move |samples| Chart { samples, near_only })
    });
    split.collect()
}

/// Returns true if the samples have numbers at two positions at least, or are columns of names.
pub fn has_positions(samples: &Samples) -> bool {
    if matches!(samples.x.scale, Scale::Names(_)) {
        return true;
    }
    let points = samples.series.iter().flat_map(|series| &series.points);
    let mut measured = points.filter(|point| point.y.iter().any(|y| y.is_finite()));
    let places = || measured.next().and_then(|point| position(&samples.x.scale, point.x));
    let places: Vec<f64> = std::iter::from_fn(places).collect();
    places.iter().any(|place| *place != places[0])
}

/// Leaves out runs with cores apart, at points that have others. The times of the cache line are
/// other samples of the same experiment.
fn near(findings: &Findings, samples: &Samples) -> Chart {
    let mut chart = Chart { samples: samples.clone(), near_only: false };
    let lines = || findings.samples.iter().filter(|other| other.title.ends_with(LINE));
    let shortest = place::shortest_trip(lines().flat_map(values));
    let is_of = |other: &&Samples| {
        let title = other.title.strip_suffix(LINE);
        title.is_some_and(|title| samples.title.starts_with(title)) && samples.title != other.title
    };
    let Some(lines) = lines().find(is_of) else { return chart };
    for series in &mut chart.samples.series {
        let Some(of) = lines.series.iter().find(|of| of.name == series.name) else { continue };
        for point in &mut series.points {
            let Some(times) = of.points.iter().find(|of| of.x == point.x) else { continue };
            let is_near =
                |at: usize| times.y.get(at).is_none_or(|ns| !place::is_apart(*ns, shortest));
            let near: Vec<f64> =
                (0..point.y.len()).filter(|at| is_near(*at)).map(|at| point.y[at]).collect();
            if !near.is_empty() && near.len() < point.y.len() {
                (point.y, chart.near_only) = (near, true);
            }
        }
    }
    chart
}

fn values(samples: &Samples) -> impl Iterator<Item = f64> {
    samples.series.iter().flat_map(|series| &series.points).flat_map(|point| &point.y).copied()
}

/// Splits samples with too many series.
fn split(samples: Samples) -> Vec<Samples> {
    if samples.series.len() <= MAX_SERIES {
        return vec![samples];
    }
    by_group(&samples).unwrap_or_else(|| by_number(&samples))
}

/// What a series has in common with others: text before `: ` (a protocol), a policy in lower case
/// before `/`, or the text after the first comma (a variant).
fn group(name: &str) -> Option<&str> {
    let is_policy = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let before = name.split_once(": ").map(|(protocol, _)| protocol);
    let policy = name.split_once('/').map(|(policy, _)| policy);
    before
        .or_else(|| policy.filter(|policy| policy.chars().all(is_policy)))
        .or_else(|| name.split_once(", ").map(|(_, variant)| variant))
}

/// Returns one chart for each group. Series without a group, groups of one series, and a group
/// whose name ends that of another (the plain load) are in the charts of all others, except for
/// those of a protocol. Returns `None` if charts would still have too many series.
fn by_group(samples: &Samples) -> Option<Vec<Samples>> {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for group in samples.series.iter().filter_map(|series| group(&series.name)) {
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, size)) => *size += 1,
            None => groups.push((group, 1)),
        }
    }
    let ends = |name: &str| groups.iter().any(|(of, _)| of.ends_with(&format!(", {name}")));
    let plain: Vec<&str> = groups.iter().map(|(name, _)| *name).filter(|name| ends(name)).collect();
    let own = |name: &str| {
        let size = groups.iter().find(|(of, _)| *of == name).map_or(0, |(_, size)| *size);
        size > 1 && !plain.contains(&name)
    };
    let chart = |name: &str| {
        let is_protocol = samples.series.iter().any(|s| s.name.starts_with(&format!("{name}: ")));
        let is_in = |series: &&Series| match group(&series.name) {
            Some(of) if own(of) => of == name,
            _ => !is_protocol,
        };
        let label = plain.iter().find_map(|plain| name.strip_suffix(&format!(", {plain}")));
        part(samples, label.unwrap_or(name), samples.series.iter().filter(is_in).cloned().collect())
    };
    let charts: Vec<Samples> =
        groups.iter().map(|(name, _)| *name).filter(|name| own(name)).map(chart).collect();
    let fits = |chart: &Samples| chart.series.len() <= MAX_SERIES;
    (!charts.is_empty() && charts.iter().all(fits)).then_some(charts)
}

/// Splits series without groups into charts of about the same size, each with the first series.
fn by_number(samples: &Samples) -> Vec<Samples> {
    let Some((first, others)) = samples.series.split_first() else { return Vec::new() };
    let charts = others.len().div_ceil(MAX_SERIES - 1);
    let size = others.len().div_ceil(charts);
    let one = |(at, others): (usize, &[Series])| {
        let series = std::iter::once(first).chain(others).cloned().collect();
        part(samples, &format!("part {} of {charts}", at + 1), series)
    };
    others.chunks(size).enumerate().map(one).collect()
}

fn part(samples: &Samples, label: &str, series: Vec<Series>) -> Samples {
    let title = format!("{}; {label}", samples.title);
    Samples { title, series, ..samples.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Axis, Point};

    fn samples(title: &str, names: &[&str], y: &[f64]) -> Samples {
        let point = |x: f64| Point { x, y: y.to_vec() };
        let series =
            |name: &&str| Series { name: (*name).into(), points: vec![point(1.0), point(2.0)] };
        Samples {
            title: title.into(),
            x: Axis::log("threads", ""),
            y: Axis::linear("throughput", ""),
            series: names.iter().map(series).collect(),
            drawn: true,
            marked: None,
        }
    }

    fn names(of: &[&str]) -> Vec<(String, Vec<String>)> {
        let named = |chart: Samples| {
            (chart.title, chart.series.into_iter().map(|series| series.name).collect())
        };
        split(samples("t", of, &[1.0])).into_iter().map(named).collect()
    }

    #[test]
    fn many_policies_have_a_chart_each() {
        let mut all = vec!["clock-sweep"];
        let wrapped: Vec<String> = ["2q", "lirs", "mq"]
            .iter()
            .flat_map(|policy| {
                ["locked", "batched", "combining"].map(|how| format!("{policy}/{how}"))
            })
            .collect();
        all.extend(wrapped.iter().map(String::as_str));
        all.push("2q/locked, published");
        let charts = names(&all);
        let titles: Vec<&str> = charts.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["t; 2q", "t; lirs", "t; mq"]);
        let first =
            ["clock-sweep", "2q/locked", "2q/batched", "2q/combining", "2q/locked, published"];
        assert_eq!(charts[0].1, first);
        assert_eq!(charts[2].1, ["clock-sweep", "mq/locked", "mq/batched", "mq/combining"]);
    }

    #[test]
    fn each_variant_is_beside_the_plain_load() {
        let schemes = ["blocking", "speculative", "locking"];
        let all: Vec<String> = ["", ", 20 % conflict", ", all conflict"]
            .iter()
            .flat_map(|variant| schemes.map(|scheme| format!("{scheme}{variant}, driver (ii)")))
            .collect();
        let charts = names(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let titles: Vec<&str> = charts.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["t; 20 % conflict", "t; all conflict"]);
        assert_eq!(charts[1].1.len(), 6);
        assert_eq!(charts[1].1[..4], [&all[0..3], &all[6..7]].concat());
    }

    #[test]
    fn a_protocol_has_a_chart_of_its_own() {
        let all = [
            "M, 0 us",
            "M, 2 us",
            "M/S, 0 us",
            "M/S, 2 us",
            "TCP",
            "WAIT_DIE: M, 0 us",
            "WAIT_DIE: M/S, 0 us",
            "WAIT_DIE: TCP",
            "two-sided, 0 us",
        ];
        let charts = names(&all);
        assert_eq!(charts[0].1, ["M, 0 us", "M/S, 0 us", "TCP", "two-sided, 0 us"]);
        assert_eq!(charts[1].1, ["M, 2 us", "M/S, 2 us", "TCP"]);
        assert_eq!(charts[2].1.len(), 3);
    }

    #[test]
    fn series_without_groups_are_split_by_number() {
        let all: Vec<String> = (0..12).map(|at| format!("latch {at}")).collect();
        let charts = names(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let sizes: Vec<usize> = charts.iter().map(|(_, series)| series.len()).collect();
        assert_eq!(sizes, [7, 6]);
        assert!(charts.iter().all(|(_, series)| series[0] == "latch 0"));
        assert_eq!(names(&all[..8].iter().map(String::as_str).collect::<Vec<_>>()).len(), 1);
    }

    #[test]
    fn rounds_with_cores_apart_are_not_drawn() {
        let rates = samples("0/0 ns: throughput", &["tas", "std"], &[65.0, 91.0, 90.0]);
        let mut lines = samples(&format!("0/0 ns: {LINE}"), &["tas", "std"], &[300.0, 50.0, 60.0]);
        lines.drawn = false;
        // This latch has no other rounds.
        lines.series[1].points[1].y = vec![300.0; 3];
        let other = samples("100/1000 ns: throughput", &["tas"], &[1.0, 2.0]);
        let findings =
            Findings { samples: vec![rates, lines, other.clone()], ..Findings::default() };
        let charts = charts(&findings);
        assert!(charts[0].near_only && !charts[1].near_only);
        let series = &charts[0].samples.series;
        assert_eq!(series[0].points[0].y, [91.0, 90.0]);
        assert_eq!(series[1].points[1].y, [65.0, 91.0, 90.0]);
        assert_eq!(charts[1].samples, other);
    }

    #[test]
    fn a_single_position_is_no_chart() {
        let mut one = samples("t", &["a", "b"], &[1.0]);
        assert!(has_positions(&one));
        one.series.iter_mut().for_each(|series| series.points[1].y = vec![f64::NAN]);
        assert!(!has_positions(&one));
        one.x = Axis::names("protocol", vec!["simple".into(), "prepared".into()]);
        assert!(has_positions(&one));
        one.series.clear();
        one.x = Axis::log("x", "");
        assert!(!has_positions(&one));
    }
}
