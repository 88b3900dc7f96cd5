//! The bars of the source's figure 2 and tables II and III: its claims about batch, queue and
//! threshold sizes.

use super::grid::Grid;
use super::real::RunResult;
use super::workload::Kind;
use crate::bars::{Bar, Bound, Reading};
use crate::simulator::{Outcome, TOLERANCE};

/// The bars of figure 2.
pub const FIG2: [&str; 2] = [FALLS_MEASURED, FALLS_SIMULATED];
const FALLS_MEASURED: &str = "measured with 8 threads: time at the latch with a batch over that with the next smaller one, worst step";
const FALLS_SIMULATED: &str = "simulated with 16 processors: time at the latch with a batch over that with the next smaller one, worst step";

/// The bars of table II.
pub const TABLE2: [&str; 4] = [BEATS_MEASURED, BEATS_SIMULATED, FALLS, FLAT];
const BEATS_MEASURED: &str =
    "measured: throughput with S = 2 over that of prefetching alone, worst workload";
const BEATS_SIMULATED: &str =
    "simulated: throughput with S = 2 over that of prefetching alone, worst workload";
const FALLS: &str =
    "simulated: fall of contention from S = 2 to S = 8 over the published fall, worst workload";
const FLAT: &str = "measured: throughput with S = 64 over that with S = 8, worst workload";
/// According to the source, throughput hardly gains beyond S = 8.
const HARDLY_GAINS: f64 = 1.1;

/// The bars of table III.
pub const TABLE3: [&str; 2] = [MIN_FALL, SHARPLY];
const MIN_FALL: &str = "simulated: contention at T = 1 over that at T = 32, worst workload";
const SHARPLY: &str = "simulated: contention at T = 64 over that at T = 32, worst workload";
/// According to the source, contention rises sharply if no try precedes the wait.
const SHARP_RISE: f64 = 2.0;

/// Judges figure 2: the curve falls monotonically.
pub fn falls_all_the_way(grid: &Grid<f64>, measured: &str, simulated: &str) -> Vec<Bar> {
    let bar = |name, system: &str| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for cell in grid.cells.iter().filter(|cell| cell.system == system) {
            points.push((cell.x, grid.at(system, cell.x, |ns| *ns)?));
        }
        let step = |pair: &[(f64, f64)]| (pair[1].1 / pair[0].1, pair[0], pair[1]);
        let (value, smaller, larger) =
            points.windows(2).map(step).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let reading =
            |(batch, ns): (f64, f64)| Reading::new(&format!("batch of {batch}"), ns, "ns", 1);
        Some(Bar::measured(
            name,
            value,
            "x",
            Bound::AtMost(1.0),
            vec![reading(larger), reading(smaller)],
        ))
    };
    [bar(FALLS_MEASURED, measured), bar(FALLS_SIMULATED, simulated)].into_iter().flatten().collect()
}

/// Measured and simulated results by size, and of prefetching alone at position `alone`.
pub struct BySize<'a> {
    /// Measured, by workload and size.
    pub measured: &'a Grid<RunResult>,
    /// Simulated, by workload and size.
    pub simulated: &'a Grid<Outcome>,
    /// Prefetching alone, measured.
    pub measured_alone: &'a Grid<RunResult>,
    /// Prefetching alone, simulated.
    pub simulated_alone: &'a Grid<Outcome>,
    /// Position of prefetching alone.
    pub alone: f64,
}

/// The ratio of two figures on one workload.
struct Ratio {
    kind: Kind,
    value: f64,
    over: Reading,
    under: Reading,
}

impl BySize<'_> {
    /// Judges table II: a short queue beats prefetching alone, and contention keeps falling where
    /// throughput no longer gains.
    pub fn table2(&self, from: u32, to: u32, published: [f64; 3]) -> Vec<Bar> {
        let short = f64::from(from);
        let measured = |kind: Kind| {
            let alone = self.measured_alone.at(kind.name(), self.alone, |ran| ran.rate)?;
            ratio(kind, "/us", ("S = 2", self.rate(kind, short)?), ("prefetching", alone))
        };
        let simulated = |kind: Kind| {
            let ours = self.simulated.at(kind.name(), short, Outcome::rate)?;
            let alone = self.simulated_alone.at(kind.name(), self.alone, Outcome::rate)?;
            ratio(kind, "/us", ("S = 2", ours), ("prefetching", alone))
        };
        let fall = |(kind, published): (Kind, f64)| {
            // A run without a wait counts as one wait in a million accesses.
            let falls = self.contention(kind, from)? / self.contention(kind, to)?.max(1.0);
            let one = ratio(kind, "x", ("simulated", falls), ("published", published))?;
            Some(Ratio { value: one.value.min(1.0 / one.value), ..one })
        };
        let flat = |kind: Kind| {
            ratio(
                kind,
                "/us",
                ("S = 64", self.rate(kind, 64.0)?),
                ("S = 8", self.rate(kind, f64::from(to))?),
            )
        };
        let falls = Kind::ALL.into_iter().zip(published).filter_map(fall).collect();
        let bars = [
            least(BEATS_MEASURED, Kind::ALL.into_iter().filter_map(measured).collect(), 1.0),
            least(BEATS_SIMULATED, Kind::ALL.into_iter().filter_map(simulated).collect(), 1.0),
            least(FALLS, falls, 1.0 - TOLERANCE),
            most(FLAT, Kind::ALL.into_iter().filter_map(flat).collect(), HARDLY_GAINS),
        ];
        bars.into_iter().flatten().collect()
    }

    /// Judges table III: contention falls until T = 32 and rises sharply at T = S.
    pub fn table3(&self) -> Vec<Bar> {
        let over = |tried: u32| {
            let one = move |kind: Kind| {
                let [over, under] = [tried, 32].map(|threshold| self.contention(kind, threshold));
                let name = format!("T = {tried}");
                ratio(kind, "per million", (&name, over?), ("T = 32", under?.max(1.0)))
            };
            Kind::ALL.into_iter().filter_map(one).collect()
        };
        [least(MIN_FALL, over(1), 1.0), least(SHARPLY, over(64), SHARP_RISE)]
            .into_iter()
            .flatten()
            .collect()
    }

    fn rate(&self, kind: Kind, x: f64) -> Option<f64> {
        self.measured.at(kind.name(), x, |ran| ran.rate)
    }

    fn contention(&self, kind: Kind, x: u32) -> Option<f64> {
        self.simulated.at(kind.name(), x.into(), Outcome::contention)
    }
}

fn ratio(kind: Kind, unit: &str, over: (&str, f64), under: (&str, f64)) -> Option<Ratio> {
    let reading = |(what, value): (&str, f64)| {
        Reading::new(&format!("{}, {what}", kind.name()), value, unit, 2)
    };
    let value = over.1 / under.1;
    value.is_finite().then(|| Ratio { kind, value, over: reading(over), under: reading(under) })
}

/// Judges a claim about all workloads by the worst one. Returns `None` unless all were run.
fn least(name: &str, ratios: Vec<Ratio>, bound: f64) -> Option<Bar> {
    let worst = |ratios: Vec<Ratio>| ratios.into_iter().min_by(|a, b| a.value.total_cmp(&b.value));
    judged(name, ratios, worst, Bound::AtLeast(bound))
}

fn most(name: &str, ratios: Vec<Ratio>, bound: f64) -> Option<Bar> {
    let worst = |ratios: Vec<Ratio>| ratios.into_iter().max_by(|a, b| a.value.total_cmp(&b.value));
    judged(name, ratios, worst, Bound::AtMost(bound))
}

fn judged(
    name: &str,
    ratios: Vec<Ratio>,
    worst: impl FnOnce(Vec<Ratio>) -> Option<Ratio>,
    bound: Bound,
) -> Option<Bar> {
    let complete = Kind::ALL.iter().all(|kind| ratios.iter().any(|ratio| ratio.kind == *kind));
    let Ratio { value, over, under, .. } = worst(ratios).filter(|_| complete)?;
    Some(Bar::measured(name, value, "x", bound, vec![over, under]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;
    use crate::place::tests::NEAR;

    fn grid<F>() -> Grid<F> {
        Grid { title: String::new(), x: "S", cells: Vec::new() }
    }

    fn ran(rate: f64) -> RunResult {
        RunResult {
            rate,
            transactions: 1.0,
            response_us: 1.0,
            accesses: 1e6,
            waits: 0.0,
            sleeps: 0.0,
            place: NEAR,
        }
    }

    fn played(waits: u64) -> Outcome {
        Outcome { accesses: 1_000_000, elapsed_ns: 1e9, waits, ..Outcome::default() }
    }

    #[test]
    fn one_rise_fails_the_falling_curve_bar() {
        let mut grid = grid();
        for (x, ns) in [(1.0, 100.0), (2.0, 60.0), (4.0, 66.0), (8.0, 10.0)] {
            grid.record("measured", x, ns);
            grid.record("simulated", x, 100.0 / x);
        }
        let bars = falls_all_the_way(&grid, "measured", "simulated");
        assert_eq!(
            bars.iter().map(|bar| bar.verdict(false)).collect::<Vec<_>>(),
            [Verdict::Short, Verdict::Ok]
        );
        assert!(
            bars[0].explained().contains("1.10 x")
                && bars[0].explained().contains("batch of 4 66.0 ns"),
            "{bars:?}"
        );
    }

    #[test]
    fn claims_are_judged_by_the_worst_workload() {
        let [mut measured, mut measured_alone] = [grid(), grid()];
        let [mut simulated, mut simulated_alone] = [grid(), grid()];
        for (kind, alone) in Kind::ALL.into_iter().zip([4.0, 5.5, 4.5]) {
            for (size, rate, waits) in [(2.0, 5.0, 9_000), (8.0, 8.0, 90), (64.0, 8.4, 0)] {
                measured.record(kind.name(), size, ran(rate));
                simulated.record(kind.name(), size, played(waits));
            }
            for (threshold, waits) in [(1.0, 300), (32.0, 100)] {
                simulated.record(kind.name(), threshold, played(waits));
            }
            measured_alone.record(kind.name(), 0.0, ran(alone));
            simulated_alone.record(kind.name(), 0.0, played(0));
        }
        let by_size = BySize {
            measured: &measured,
            simulated: &simulated,
            measured_alone: &measured_alone,
            simulated_alone: &simulated_alone,
            alone: 0.0,
        };
        let bars = by_size.table2(2, 8, [100.0, 105.0, 50.0]);
        let verdicts: Vec<(&str, Verdict)> =
            bars.iter().map(|bar| (bar.name.as_str(), bar.verdict(false))).collect();
        let expected = [
            (BEATS_MEASURED, Verdict::Short),
            (BEATS_SIMULATED, Verdict::Ok),
            (FALLS, Verdict::Short),
            (FLAT, Verdict::Ok),
        ];
        assert_eq!(verdicts, expected);
        assert!(bars[0].explained().starts_with("0.91 x"), "{}", bars[0].explained());
        assert!(bars[0].explained().contains(Kind::Dbt2.name()), "{}", bars[0].explained());
        let verdicts: Vec<Verdict> =
            by_size.table3().iter().map(|bar| bar.verdict(false)).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Short], "contention at T = 64 is none");
    }

    #[test]
    fn claims_about_all_workloads_need_all() {
        let one = ratio(Kind::Dbt1, "x", ("a", 2.0), ("b", 1.0)).unwrap();
        assert_eq!(least(BEATS_MEASURED, vec![one], 1.0), None);
    }
}
