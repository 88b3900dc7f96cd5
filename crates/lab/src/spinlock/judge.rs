//! The bars of the engine's latch, judged against its peers of the same run.

use super::cases::{Case, Cell, Figures, MORE_THREADS, SECTIONS, Section};
use super::contender::{ENGINE, PARKING_LOT, SPINNING, STD};
use crate::bars::{Bar, Bound, Outcome, Reading};

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

/// The measurements, indexed by case and latch.
pub struct Measured<'a>(pub &'a [Cell]);

impl Measured<'_> {
    /// Returns the median of a latch in a case.
    pub fn of(&self, latch: &str, case: &Case, figure: fn(&Figures) -> f64) -> Option<f64> {
        self.0.iter().find(|cell| cell.latch == latch && cell.case == *case)?.median(figure)
    }

    /// Returns a latch's throughput with this many threads over that with two, as a mean over the
    /// sections.
    pub fn against_its_two(&self, latch: &str, threads: usize) -> Option<f64> {
        mean(SECTIONS.iter().map(|section| {
            let rate = |threads| self.of(latch, &Case { section: *section, threads }, |f| f.rate);
            Some(rate(threads)? / rate(2)?)
        }))
    }

    /// Returns the engine's figure over that of its better peer in one case.
    fn against_peers_in(
        &self,
        case: &Case,
        figure: fn(&Figures) -> f64,
        better: fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let of = |latch: &str| self.of(latch, case, figure);
        Some(
            of(ENGINE)?
                / PEERS
                    .iter()
                    .map(|peer| of(peer))
                    .try_fold(f64::NAN, |a, b| Some(better(a, b?)))?,
        )
    }

    /// Returns [`Self::against_peers_in`] as a mean over the sections.
    fn against_peers(
        &self,
        threads: usize,
        figure: fn(&Figures) -> f64,
        better: fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let in_section = |section: &Section| {
            self.against_peers_in(&Case { section: *section, threads }, figure, better)
        };
        mean(SECTIONS.iter().map(in_section))
    }

    /// Returns the case that a mean hides: the engine's worst one against its peers.
    fn worst_cell(
        &self,
        threads: impl Iterator<Item = usize>,
        figure: fn(&Figures) -> f64,
        better: fn(f64, f64) -> f64,
    ) -> Option<Reading> {
        let cases = threads.flat_map(|threads| SECTIONS.map(|section| Case { section, threads }));
        let ratios =
            cases.filter_map(|case| Some((case, self.against_peers_in(&case, figure, better)?)));
        // Of two ratios, the worse is the one that `better` does not choose.
        let (case, ratio) = ratios.reduce(|a, b| if better(a.1, b.1) == a.1 { b } else { a })?;
        Some(Reading::new(&format!("worst cell: {}", case.name()), ratio, "x", 2))
    }

    /// Returns the case in which the engine loses most against its own throughput with two threads.
    fn worst_own(&self) -> Option<Reading> {
        let rate =
            |section: Section, threads| self.of(ENGINE, &Case { section, threads }, |f| f.rate);
        let cases = self
            .more_threads()
            .flat_map(|threads| SECTIONS.map(|section| Case { section, threads }));
        let ratios = cases.filter_map(|case| {
            let two = rate(case.section, 2)?;
            Some((case, rate(case.section, case.threads)? / two))
        });
        let (case, ratio) = ratios.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Reading::new(&format!("worst cell: {}", case.name()), ratio, "of its 2", 2))
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
        let of = |latch: &'static str| {
            self.of(latch, &Case { section: SECTIONS[0], threads: 1 }, |f| f.cpu_ns)
        };
        let reading = |latch: &'static str| Some(Reading::new(latch, of(latch)?, "ns", 2));
        let peers = [reading(PEERS[0])?, reading(PEERS[1])?];
        let peer = peers.into_iter().min_by(|a, b| a.value.total_cmp(&b.value))?;
        Some(Bar::ratio(ALONE, Bound::AtMost(1.1), reading(ENGINE)?, peer))
    }

    fn two(&self) -> Option<Bar> {
        let value = self.against_peers(2, |f| f.rate, f64::max)?;
        let readings = SECTIONS
            .iter()
            .filter_map(|section| self.rates(&Case { section: *section, threads: 2 }));
        Some(bar(TWO, value, Bound::AtLeast(1.0), readings.flatten().collect()))
    }

    fn own_peak(&self) -> Option<Bar> {
        let kept = |latch: &'static str| {
            self.more_threads().map(move |threads| self.against_its_two(latch, threads))
        };
        let worst = least(kept(ENGINE))?;
        let reading = |latch: &str, (threads, value): (usize, Option<f64>)| {
            Some(Reading::new(&format!("{latch} with {threads}"), value?, "of its 2", 2))
        };
        let ours = self.more_threads().zip(kept(ENGINE)).filter_map(|x| reading(ENGINE, x));
        let spinning = self.more_threads().zip(kept(SPINNING)).filter_map(|x| reading(SPINNING, x));
        let readings = ours.chain(spinning).chain(self.worst_own()).collect();
        Some(bar(MANY, worst, Bound::AtLeast(0.9), readings))
    }

    fn many_peers(&self) -> Option<Bar> {
        let ratios =
            || self.more_threads().map(|threads| self.against_peers(threads, |f| f.rate, f64::max));
        let mut readings = by_threads(self.more_threads().zip(ratios()));
        readings.extend(self.worst_cell(self.more_threads(), |f| f.rate, f64::max));
        Some(bar(MANY_PEERS, least(ratios())?, Bound::AtLeast(1.0), readings))
    }

    fn waits(&self) -> Option<Bar> {
        let threads = || [2].into_iter().chain(self.more_threads());
        let ratios = || threads().map(|t| self.against_peers(t, |f| f.wait_us, f64::min));
        let mut readings = by_threads(threads().zip(ratios()));
        readings.extend(self.worst_cell(threads(), |f| f.wait_us, f64::min));
        Some(bar(WAITS, mean(ratios())?, Bound::AtMost(1.0), readings))
    }

    /// Returns the throughput of the engine's latch and its peers in one case.
    fn rates(&self, case: &Case) -> Option<[Reading; 3]> {
        let reading = |latch: &str| {
            let name = format!("{latch} {}", case.section.name());
            Some(Reading::new(&name, self.of(latch, case, |f| f.rate)?, "/us", 2))
        };
        Some([reading(ENGINE)?, reading(PEERS[0])?, reading(PEERS[1])?])
    }
}

fn bar(name: &str, value: f64, bound: Bound, readings: Vec<Reading>) -> Bar {
    Bar {
        name: name.into(),
        outcome: Outcome::Measured { value, unit: "x".into(), bound, readings },
    }
}

fn by_threads(ratios: impl Iterator<Item = (usize, Option<f64>)>) -> Vec<Reading> {
    ratios
        .filter_map(|(threads, ratio)| {
            Some(Reading::new(&format!("{threads} threads"), ratio?, "x", 2))
        })
        .collect()
}

/// Returns the minimum; `None` if a value is missing or there are none.
fn least(ratios: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let ratios = ratios.collect::<Option<Vec<f64>>>()?;
    ratios.into_iter().min_by(f64::total_cmp)
}

/// Returns the geometric mean; `None` if a value is missing or there are none.
fn mean(ratios: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let logarithms = ratios.map(|ratio| ratio.map(f64::ln)).collect::<Option<Vec<f64>>>()?;
    (!logarithms.is_empty())
        .then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::super::cases::tests::PLAIN;
    use super::super::contender::UNCOUNTED;
    use super::*;

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
}
