//! The bars of the policies. The throughput as a cache has no bar: we claim nothing about it.

use super::measure::Measured;
use super::wrapped::{Sharing, THREADS};
use crate::bars::{Bar, Bound, Reading};
use clearway_replacement::{PolicyKind, ReplacementKind, WrapperKind};

/// Names of all bars.
pub const BARS: [&str; 3] = [LOST[0], LOST[1], BEHIND];

/// The trace on which the source's queues are said to lose a lot.
const MULTI1: &str = "lirs_multi1";
/// Hit ratio lost because hits are reported late. A policy that only marks hits loses none.
const LOST: [&str; 2] = [
    "regression check, 64 threads: hit ratio that the default, which marks hits at once, loses to the exact policy on any trace",
    "regression check, 128 threads: hit ratio that the default, which marks hits at once, loses to the exact policy on any trace",
];
/// Maximum loss, in percentage points.
const MAX_LOSS: f64 = 0.1;
const BEHIND: &str = "hit ratio of the arbiter below that of the best single policy, on any trace";
/// Maximum distance of the arbiter, in percentage points.
const MAX_BEHIND: f64 = 1.0;

/// Returns all bars.
pub fn bars(measured: &[Measured]) -> Vec<Bar> {
    let mut bars: Vec<Bar> = LOST
        .into_iter()
        .zip(THREADS)
        .filter_map(|(name, threads)| lost(measured, name, threads))
        .collect();
    bars.extend(behind(measured));
    bars
}

/// The hit ratio that one policy loses on one trace.
struct Loss<'a> {
    of: &'a Measured,
    policy: PolicyKind,
    sharing: Sharing,
    points: f64,
}

impl Loss<'_> {
    fn place(&self) -> String {
        format!("{} in {} on {}", self.policy, self.sharing, self.of.case.name())
    }
}

/// Returns the largest loss among the selected policies and traces.
fn worst<'a>(
    measured: &'a [Measured],
    threads: u32,
    sharing: Sharing,
    wanted: impl Fn(&Measured, PolicyKind) -> bool,
) -> Option<Loss<'a>> {
    let all =
        measured.iter().flat_map(|of| PolicyKind::ALL.iter().map(move |policy| (of, *policy)));
    let lost = all.filter(|(of, policy)| wanted(of, *policy)).filter_map(|(of, policy)| {
        Some(Loss { of, policy, sharing, points: of.lost(policy, sharing, threads)? })
    });
    lost.max_by(|a, b| a.points.total_cmp(&b.points))
}

/// Judges the default by its worst trace. The other readings show the loss of any policy in the
/// default wrapper and in the source's wrapper, the latter also on the trace where it is said to be
/// large.
fn lost(measured: &[Measured], name: &str, threads: u32) -> Option<Bar> {
    let (policy, sharing) = Sharing::of(ReplacementKind::default())?;
    let default = worst(measured, threads, sharing, |_, of| of == policy)?;
    let exact = default.of.exact(policy)?;
    let ours = Reading::new(&default.place(), exact - default.points, "%", 2);
    let (source, combining) =
        (Sharing::Kind(WrapperKind::Batched), Sharing::Kind(WrapperKind::default()));
    let beside = [
        worst(measured, threads, combining, |_, _| true),
        worst(measured, threads, source, |of, _| of.case.trace.name == MULTI1),
        worst(measured, threads, source, |_, _| true),
    ];
    let beside = beside.into_iter().flatten();
    let beside = beside.map(|lost| {
        Reading::new(&format!("at most lost: {}", lost.place()), lost.points, "points", 2)
    });
    let beside = std::iter::once(Reading::new(&format!("{policy} alone"), exact, "%", 2))
        .chain(beside)
        .collect();
    Some(bar(name, default.points, "points", Bound::AtMost(MAX_LOSS), ours, beside))
}

/// Judges the arbiter on the trace where it is furthest behind the best policy.
fn behind(measured: &[Measured]) -> Option<Bar> {
    let one = |of: &Measured| {
        let singles = PolicyKind::ALL.iter().filter(|kind| **kind != PolicyKind::Arbiter);
        let exact = singles.filter_map(|kind| Some((*kind, of.exact(*kind)?)));
        let (best, percent) = exact.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let arbiter = of.exact(PolicyKind::Arbiter)?;
        let ours = Reading::new(&format!("arbiter on {}", of.case.name()), arbiter, "%", 2);
        Some((percent - arbiter, ours, Reading::new(best.name(), percent, "%", 2)))
    };
    let (value, ours, best) = measured.iter().filter_map(one).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(bar(BEHIND, value, "points", Bound::AtMost(MAX_BEHIND), ours, vec![best]))
}

fn bar(
    name: &str,
    value: f64,
    unit: &str,
    bound: Bound,
    ours: Reading,
    beside: Vec<Reading>,
) -> Bar {
    Bar::measured(name, value, unit, bound, std::iter::once(ours).chain(beside).collect())
}

#[cfg(test)]
mod tests {
    use super::super::cases::Case;
    use super::super::wrapped::Wrapped;
    use super::*;
    use crate::bars::Outcome;
    use clearway_traces::Trace;
    use std::rc::Rc;

    fn measured() -> Measured {
        let case =
            Case { trace: Rc::new(Trace::new("drawn", [1, 1, 1, 1])), frames: 1, known: &[] };
        let (policy, sharing) = Sharing::of(ReplacementKind::default()).unwrap();
        let shared = |(policy, sharing, misses)| {
            THREADS.map(|threads| Wrapped { policy, sharing, threads, misses })
        };
        let lru = |wrapper| (PolicyKind::Lru, Sharing::Kind(wrapper), 4);
        let all = [(policy, sharing, 3), lru(WrapperKind::default()), lru(WrapperKind::Batched)];
        let wrapped = all.into_iter().flat_map(shared).collect();
        let exact = vec![(PolicyKind::Lru, 2), (policy, 2), (PolicyKind::Arbiter, 3)];
        Measured { case, optimum: 1, exact, wrapped, peers: Vec::new(), raced: Vec::new() }
    }

    #[test]
    fn bars_show_the_worst_loss_and_other_losses() {
        let bars = bars(&[measured()]);
        let values: Vec<f64> = bars
            .iter()
            .filter_map(|bar| match &bar.outcome {
                Outcome::Measured { value, .. } => Some(*value),
                Outcome::NotHere { .. } => None,
            })
            .collect();
        assert_eq!(values, [25.0, 25.0, 25.0]);
        let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(names, BARS);
        let Outcome::Measured { readings, .. } = &bars[0].outcome else { panic!("measured") };
        let readings: Vec<f64> = readings.iter().map(|reading| reading.value).collect();
        assert_eq!(readings, [25.0, 50.0, 50.0, 50.0], "the default, alone, and what others lose");
    }
}
