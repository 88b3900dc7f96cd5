//! Repeats rounds whose cores were apart, so that every cell has rounds with near cores.
//!
//! The host keeps the cores apart for seconds or minutes. So a repetition at once would mostly
//! find them apart again, and repetitions wait until all ordinary rounds are over. Time is bounded:
//! if a quarter of all rounds, repetitions included, are apart, all of them can be repeated.

use super::cases::{Cell, Figures, mark_apart};
use crate::place::Cores;
use clearway_harness::Res;
use std::time::Duration;

/// Repetitions take at most one part in this many of the time of the ordinary rounds.
pub const SHARE: u32 = 3;

/// Repeats rounds until each cell of several threads has as many rounds with near cores as it had
/// rounds, or until the repetitions have taken `bound`. Cells with the fewest near rounds come
/// first, and of these the ones repeated least. A round of the cell at an index takes `length`.
/// Returns the number of repetitions, and leaves all rounds marked.
pub fn repeat(
    cells: &mut [Cell],
    bound: Duration,
    length: impl Fn(usize) -> Duration,
    mut round: impl FnMut(usize) -> Res<Figures>,
) -> Res<usize> {
    let wanted: Vec<usize> = cells.iter().map(|cell| cell.rounds.len()).collect();
    let (mut repeated, mut taken) = (0, Duration::ZERO);
    loop {
        // Again for each repetition: its trip may be the shortest.
        mark_apart(cells);
        let near = |at: usize| cells[at].count(Cores::Near);
        let left = (0..cells.len())
            .filter(|at| near(*at) < wanted[*at] && taken + length(*at) <= bound)
            .min_by_key(|at| (near(*at), cells[*at].rounds.len() - wanted[*at]));
        let Some(at) = left else { return Ok(repeated) };
        let figures = round(at)?;
        cells[at].rounds.push(figures);
        taken += length(at);
        repeated += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::tests::PLAIN;
    use super::super::cases::{Case, SECTIONS};
    use super::*;
    use crate::place::Place;
    use crate::place::tests::{APART, NEAR};

    fn cell(threads: usize, places: &[Place]) -> Cell {
        let rounds = places.iter().map(|place| Figures { place: *place, ..PLAIN }).collect();
        Cell { case: Case { section: SECTIONS[0], threads }, latch: "x", rounds }
    }

    /// Repeats rounds of 1 s, which have these places in turn. Returns the cells that were
    /// repeated, in order.
    fn repeated(cells: &mut [Cell], bound_s: u64, places: &[Place]) -> Vec<usize> {
        let (mut order, mut places) = (Vec::new(), places.iter().cycle());
        let second = |_| Duration::from_secs(1);
        let count = repeat(cells, Duration::from_secs(bound_s), second, |at| {
            order.push(at);
            Ok(Figures { place: *places.next().unwrap(), ..PLAIN })
        });
        assert_eq!(count, Ok(order.len()));
        order
    }

    #[test]
    fn rounds_apart_are_repeated_until_they_are_near() {
        let mut cells = [cell(2, &[NEAR, APART]), cell(8, &[APART, APART]), cell(2, &[NEAR, NEAR])];
        let order = repeated(&mut cells, 100, &[APART, NEAR]);
        assert_eq!(order, [1, 1, 0, 0, 1, 1], "the cell without a near round first");
        assert_eq!(cells.each_ref().map(|cell| cell.count(Cores::Near)), [2, 2, 2]);
        assert_eq!(cells[1].count(Cores::Apart), 4, "the record keeps them");
    }

    #[test]
    fn repetitions_are_bounded() {
        let mut cells = [cell(2, &[NEAR, APART]), cell(8, &[APART, APART]), cell(8, &[APART])];
        let order = repeated(&mut cells, 5, &[APART]);
        assert_eq!(order, [1, 2, 1, 2, 1], "in turn, while nothing is near");
        assert_eq!(repeated(&mut cells, 0, &[NEAR]), [0; 0]);
    }

    #[test]
    fn a_thread_alone_is_not_repeated() {
        let mut cells = [cell(1, &[APART]), cell(2, &[NEAR])];
        assert_eq!(repeated(&mut cells, 100, &[NEAR]), [0; 0]);
    }

    #[test]
    fn a_faster_repetition_makes_others_apart() {
        let mut cells = [cell(2, &[NEAR, APART])];
        let faster = Place { line_ns: 20.0, ..NEAR };
        assert_eq!(repeated(&mut cells, 100, &[faster]), [0, 0], "50 ns is apart beside 20 ns");
        assert_eq!(cells[0].count(Cores::Near), 2);
    }
}
