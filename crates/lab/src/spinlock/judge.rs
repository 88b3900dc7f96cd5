//! The bars of the engine's latch, judged against its peers of the same run.

use super::cases::{Case, Cell, Figures, MORE_THREADS, SECTIONS};
use super::contender::{ENGINE, PARKING_LOT, SPINNING, STD};
use crate::bars::{Bar, Bound, Reading};
use crate::place::{self, Missing};

/// One thread that only acquires and releases.
pub const ALONE: &str =
    "alone: processor time to acquire and release, against the better of std and parking_lot";
/// Two threads.
pub const TWO: &str =
    "2 threads: throughput against the better of std and parking_lot, mean over the sections";
/// More threads than cores, relative to two threads.
pub const MANY: &str = "8 to 64 threads: throughput against its own with 2, mean over the sections, the worst thread count";
/// More threads than cores, against the peers.
pub const MANY_PEERS: &str = "8 to 64 threads: throughput against the better of std and parking_lot, mean over the sections, the worst thread count";
/// The longest waits.
pub const WAITS: &str =
    "2 to 64 threads: p99.9 wait against the better of std and parking_lot, mean over the cases";

const PEERS: [&str; 2] = [STD, PARKING_LOT];

/// Reads a number from a round.
type Read = fn(&Figures) -> f64;

/// Ratios of cells in the same state of the cores.
#[derive(Clone, Debug, Default)]
pub struct Ratios {
    judged: Vec<(Case, f64)>,
    /// The number of cases without such a ratio.
    not_judged: usize,
}

impl Ratios {
    /// Returns the ratios of these cases; `None` if one was not measured.
    fn of(
        cases: impl Iterator<Item = Case>,
        ratio: impl Fn(&Case) -> Result<f64, Missing>,
    ) -> Option<Self> {
        let mut all = Self::default();
        for case in cases {
            match ratio(&case) {
                Ok(ratio) => all.judged.push((case, ratio)),
                Err(Missing::NoCommonState) => all.not_judged += 1,
                Err(Missing::Unmeasured) => return None,
            }
        }
        Some(all)
    }

    /// Returns their geometric mean; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        mean(self.judged.iter().map(|(_, ratio)| *ratio))
    }

    /// Returns the case that a mean hides: the one with the worse ratio, which of two ratios is the
    /// one that `better` does not choose.
    fn worst(all: &[(usize, Self)], better: fn(f64, f64) -> f64, unit: &str) -> Option<Reading> {
        let ratios = all.iter().flat_map(|(_, ratios)| ratios.judged.iter().copied());
        let (case, ratio) = ratios.reduce(|a, b| if better(a.1, b.1) == a.1 { b } else { a })?;
        Some(Reading::new(&format!("worst cell: {}", case.name()), ratio, unit, 2))
    }
}

fn sections(threads: usize) -> impl Iterator<Item = Case> {
    SECTIONS.into_iter().map(move |section| Case { section, threads })
}

/// The measurements, indexed by case and latch.
pub struct Measured<'a>(pub &'a [Cell]);

impl Measured<'_> {
    fn cell(&self, latch: &str, case: &Case) -> Option<&Cell> {
        self.0.iter().find(|cell| cell.latch == latch && cell.case == *case)
    }

    /// Returns the medians of cells, in the same state of the cores: near if all have such rounds.
    fn medians<const N: usize>(
        &self,
        cells: [(&str, Case); N],
        figure: Read,
    ) -> Result<[f64; N], Missing> {
        let cells = cells.map(|(latch, case)| self.cell(latch, &case));
        let has = |cell: &&Cell, cores| cell.count(cores) > 0;
        place::medians(cells, has, |cell, cores| cell.median_in(cores, figure))
    }

    /// Returns the figure of one latch over another's in the same case.
    pub fn ratio(
        &self,
        latch: &str,
        other: &str,
        case: &Case,
        figure: Read,
    ) -> Result<f64, Missing> {
        let [ours, theirs] = self.medians([(latch, *case), (other, *case)], figure)?;
        Ok(ours / theirs)
    }

    /// Returns a latch's throughput with this many threads over that with two, by section.
    pub fn against_its_two(&self, latch: &str, threads: usize) -> Option<Ratios> {
        Ratios::of(sections(threads), |case| {
            let two = Case { threads: 2, ..*case };
            let [many, two] = self.medians([(latch, *case), (latch, two)], |f| f.rate)?;
            Ok(many / two)
        })
    }

    /// Returns the engine's figure over that of its better peer, by section.
    fn against_peers(
        &self,
        threads: usize,
        figure: Read,
        better: fn(f64, f64) -> f64,
    ) -> Option<Ratios> {
        Ratios::of(sections(threads), |case| {
            let [ours, std, parking_lot] =
                self.medians([ENGINE, PEERS[0], PEERS[1]].map(|latch| (latch, *case)), figure)?;
            Ok(ours / better(std, parking_lot))
        })
    }

    /// Returns the thread counts above the number of cores that were measured.
    pub fn more_threads(&self) -> impl Iterator<Item = usize> {
        MORE_THREADS
            .into_iter()
            .filter(|threads| self.0.iter().any(|cell| cell.case.threads == *threads))
    }

    /// Returns the bars whose cases were run.
    pub fn bars(&self) -> Vec<Bar> {
        [self.alone(), self.two(), self.own_peak(), self.many_peers(), self.waits()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn alone(&self) -> Option<Bar> {
        let case = Case { section: SECTIONS[0], threads: 1 };
        // A thread alone needs no state of the cores.
        let of = |latch: &'static str| self.cell(latch, &case)?.median(|f| f.cpu_ns);
        let reading = |latch: &'static str| Some(Reading::new(latch, of(latch)?, "ns", 2));
        let peers = [reading(PEERS[0])?, reading(PEERS[1])?];
        let peer = peers.into_iter().min_by(|a, b| a.value.total_cmp(&b.value))?;
        Some(Bar::ratio(ALONE, Bound::AtMost(1.1), reading(ENGINE)?, peer))
    }

    fn two(&self) -> Option<Bar> {
        let ratios = [(2, self.against_peers(2, |f| f.rate, f64::max)?)];
        let readings = sections(2).filter_map(|case| self.rates(&case)).flatten().collect();
        Some(bar(TWO, ratios[0].1.mean(), Bound::AtLeast(1.0), readings, &ratios))
    }

    fn own_peak(&self) -> Option<Bar> {
        let kept = |latch: &'static str| {
            by_threads(self.more_threads(), |threads| self.against_its_two(latch, threads))
        };
        let ours = kept(ENGINE)?;
        let spinning = kept(SPINNING).unwrap_or_default();
        let readings =
            [(ENGINE, &ours), (SPINNING, &spinning)].into_iter().flat_map(|(name, of)| {
                means(of).map(move |(threads, mean)| {
                    Reading::new(&format!("{name} with {threads}"), mean, "of its 2", 2)
                })
            });
        let readings = readings.chain(Ratios::worst(&ours, f64::max, "of its 2")).collect();
        Some(bar(MANY, least(&ours), Bound::AtLeast(0.9), readings, &ours))
    }

    fn many_peers(&self) -> Option<Bar> {
        let ratios = by_threads(self.more_threads(), |threads| {
            self.against_peers(threads, |f| f.rate, f64::max)
        })?;
        let readings = of_threads(&ratios).chain(Ratios::worst(&ratios, f64::max, "x")).collect();
        Some(bar(MANY_PEERS, least(&ratios), Bound::AtLeast(1.0), readings, &ratios))
    }

    fn waits(&self) -> Option<Bar> {
        let ratios = by_threads([2].into_iter().chain(self.more_threads()), |threads| {
            self.against_peers(threads, |f| f.wait_us, f64::min)
        })?;
        let readings = of_threads(&ratios).chain(Ratios::worst(&ratios, f64::min, "x")).collect();
        let value = mean(means(&ratios).map(|(_, mean)| mean));
        Some(bar(WAITS, value, Bound::AtMost(1.0), readings, &ratios))
    }

    /// Returns the throughput of the engine's latch and its peers in one case, in the state of the
    /// cores that all have.
    fn rates(&self, case: &Case) -> Option<[Reading; 3]> {
        let latches = [ENGINE, PEERS[0], PEERS[1]];
        let rates = self.medians(latches.map(|latch| (latch, *case)), |f| f.rate).ok()?;
        let name = |latch: &str| format!("{latch} {}", case.section.name());
        let reading = |at: usize| Reading::new(&name(latches[at]), rates[at], "/us", 2);
        Some([0, 1, 2].map(reading))
    }
}

/// Creates a bar on a value computed from ratios. Its last reading is the number of cells that were
/// not judged. Without a value, all of them.
fn bar(
    name: &str,
    value: Option<f64>,
    bound: Bound,
    readings: Vec<Reading>,
    ratios: &[(usize, Ratios)],
) -> Bar {
    let not_judged: usize = ratios.iter().map(|(_, ratios)| ratios.not_judged).sum();
    match value {
        Some(value) => Bar::measured(name, value, "x", bound, readings).without(not_judged),
        None => Bar::without_all(name, not_judged),
    }
}

/// Returns the ratios of each thread count; `None` if a cell was not measured, or there are none.
fn by_threads(
    threads: impl Iterator<Item = usize>,
    ratios: impl Fn(usize) -> Option<Ratios>,
) -> Option<Vec<(usize, Ratios)>> {
    let all: Option<Vec<_>> = threads.map(|threads| Some((threads, ratios(threads)?))).collect();
    all.filter(|all| !all.is_empty())
}

/// Returns the means of the thread counts that have one.
fn means(ratios: &[(usize, Ratios)]) -> impl Iterator<Item = (usize, f64)> {
    ratios.iter().filter_map(|(threads, ratios)| Some((*threads, ratios.mean()?)))
}

fn of_threads(ratios: &[(usize, Ratios)]) -> impl Iterator<Item = Reading> {
    means(ratios).map(|(threads, ratio)| Reading::new(&format!("{threads} threads"), ratio, "x", 2))
}

/// Returns the minimum of the means; `None` if there are none.
fn least(ratios: &[(usize, Ratios)]) -> Option<f64> {
    means(ratios).map(|(_, mean)| mean).min_by(f64::total_cmp)
}

/// Returns the geometric mean; `None` if there are no values.
fn mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = ratios.map(f64::ln).collect();
    (!logarithms.is_empty())
        .then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::super::cases::tests::PLAIN;
    use super::super::contender::UNCOUNTED;
    use super::*;
    use crate::bars::{Outcome, Verdict};
    use crate::place::tests::{APART, NEAR};

    /// Returns the cells of a latch whose throughput drops by the factor `loss` with more than two
    /// threads.
    fn cells(latch: &'static str, rate: f64, wait_us: f64, loss: f64) -> Vec<Cell> {
        let rounds = |threads| {
            let rate = if threads > 2 { rate * loss } else { rate };
            vec![Figures { rate, wait_us, cpu_ns: 1e3 / rate, ..PLAIN }; 3]
        };
        let cases = SECTIONS
            .iter()
            .flat_map(|s| [1, 2, 8, 64].map(|threads| Case { section: *s, threads }));
        cases.map(|case| Cell { case, latch, rounds: rounds(case.threads) }).collect()
    }

    fn value(bar: &Bar) -> f64 {
        let Outcome::Measured { value, .. } = bar.outcome else { panic!("{bar:?}") };
        (value * 1e6).round() / 1e6
    }

    #[test]
    fn bars_use_the_better_peer_and_the_worst_thread_count() {
        let mut all = cells(ENGINE, 10.0, 4.0, 0.5);
        for other in [
            cells(STD, 8.0, 5.0, 1.0),
            cells(PARKING_LOT, 12.5, 8.0, 0.4),
            cells(SPINNING, 9.0, 1.0, 0.01),
        ] {
            all.extend(other);
        }
        let bars = Measured(&all).bars();
        let values: Vec<(&str, f64)> =
            bars.iter().map(|bar| (bar.name.as_str(), value(bar))).collect();
        let want = [(ALONE, 1.25), (TWO, 0.8), (MANY, 0.5), (MANY_PEERS, 0.625), (WAITS, 0.8)];
        assert_eq!(values, want);
        assert!(
            bars[2].explained().contains("ttas with 64 0.01 of its 2"),
            "{}",
            bars[2].explained()
        );
    }

    #[test]
    fn bars_name_the_worst_cell_behind_a_mean() {
        let mut all = cells(ENGINE, 10.0, 4.0, 1.0);
        let worst = Case { section: SECTIONS[2], threads: 8 };
        let cell = all.iter_mut().find(|cell| cell.case == worst).unwrap();
        for figures in &mut cell.rounds {
            (figures.rate, figures.wait_us) = (2.5, 40.0);
        }
        all.extend(cells(STD, 10.0, 8.0, 1.0));
        all.extend(cells(PARKING_LOT, 5.0, 8.0, 1.0));
        let bars = Measured(&all).bars();
        let explained = |name| bars.iter().find(|bar| bar.name == name).unwrap().explained();
        let rates = explained(MANY_PEERS);
        assert!(rates.contains("worst cell: 100/1000 ns, 8 threads 0.25 x"), "{rates}");
        let own = explained(MANY);
        assert!(own.contains("worst cell: 100/1000 ns, 8 threads 0.25 of its 2"), "{own}");
        assert!(explained(WAITS).contains("worst cell: 100/1000 ns, 8 threads 5.00 x"), "{bars:?}");
    }

    #[test]
    fn unmeasured_cases_are_not_judged() {
        assert_eq!(Measured(&[]).bars(), []);
        let uncounted = cells(UNCOUNTED, 1.0, 1.0, 1.0);
        assert_eq!(Measured(&uncounted).bars(), [], "the engine counts its latches");
        let ours = cells(ENGINE, 1.0, 1.0, 1.0);
        assert_eq!(Measured(&ours).bars().len(), 1, "only the one that needs no peer");
    }

    /// Returns the cells of the engine and its peers. In some cases, rounds have other places: all
    /// rounds of a latch, or with `true` only its first.
    fn placed(of: &[(Case, &str, bool)]) -> Vec<Cell> {
        let mut all = cells(ENGINE, 10.0, 4.0, 1.0);
        all.extend(cells(STD, 8.0, 4.0, 1.0));
        all.extend(cells(PARKING_LOT, 5.0, 4.0, 1.0));
        for (case, latch, only_first) in of {
            let cell = all.iter_mut().find(|cell| cell.case == *case && cell.latch == *latch);
            let rounds = &mut cell.unwrap().rounds;
            let count = if *only_first { 1 } else { rounds.len() };
            for figures in &mut rounds[..count] {
                // Twice as fast, so that the state shows.
                (figures.place, figures.rate) = (APART, figures.rate * 2.0);
            }
        }
        all
    }

    fn of_two(of: &[(Case, &str, bool)]) -> Bar {
        Measured(&placed(of)).bars().into_iter().find(|bar| bar.name == TWO).unwrap()
    }

    #[test]
    fn latches_are_compared_in_a_common_state() {
        let case = Case { section: SECTIONS[1], threads: 2 };
        assert_eq!(NEAR.cores, PLAIN.place.cores);
        let mixed = of_two(&[(case, ENGINE, true), (case, STD, true)]);
        assert_eq!(value(&mixed), 1.25, "near, as all have such rounds");
        let apart = of_two(&[(case, ENGINE, true), (case, STD, false), (case, PARKING_LOT, true)]);
        assert_eq!(value(&apart), 1.25, "apart, as all have such rounds");
        let explained = apart.explained();
        assert!(explained.contains("counted 50/50 ns 20.00 /us"), "{explained}");
        assert!(!explained.contains("not judged"), "{explained}");
    }

    #[test]
    fn cells_without_a_common_state_are_not_judged() {
        let case = Case { section: SECTIONS[1], threads: 2 };
        let bar = of_two(&[(case, STD, false)]);
        assert_eq!(value(&bar), 1.25, "of the other sections");
        let explained = bar.explained();
        assert!(explained.contains("cells not judged: 1"), "{explained}");
        assert!(!explained.contains("50/50 ns"), "{explained}");
        let none: Vec<_> = sections(2).map(|case| (case, STD, false)).collect();
        let bar = of_two(&none);
        assert_eq!(bar.verdict(false), Verdict::NotHere);
        assert!(bar.explained().starts_with("4 cells not judged"), "{bar:?}");
    }

    #[test]
    fn thread_counts_are_compared_in_a_common_state() {
        let eight = Case { section: SECTIONS[0], threads: 8 };
        let all = placed(&[(eight, ENGINE, false)]);
        let bars = Measured(&all).bars();
        let own = bars.iter().find(|bar| bar.name == MANY).unwrap();
        assert_eq!(value(own), 1.0);
        assert!(own.explained().contains("cells not judged: 1"), "{own:?}");
    }
}
