//! A ruler along an axis of a chart: from where to where it goes, where a number has its place, and
//! which places are marked.

use crate::number::shown;
use crate::result::{Axis, Scale};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// About so many marks on an axis of equal steps.
const MARKS: f64 = 5.0;
/// Numbers further from zero than this, and closer to it than its inverse, are no measurements, and
/// leave no room for marks.
const LARGEST: f64 = 1e100;
/// Digits that a mark has at least, if the number has them.
const DIGITS: i32 = 3;
/// What stands for powers of ten from the first that has no room beside an axis.
const PREFIXES: [(i32, &str); 3] = [(12, "T"), (9, "G"), (6, "M")];
/// Marks on an axis of factors that stand on measured numbers are at least this part of the axis
/// apart.
const APART: f64 = 0.05;
/// What an axis of factors leaves free at either end, as a part of its length.
const ROOM: f64 = 0.04;

/// Which way a ruler lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Along what was set: a logarithmic ruler is marked where something was measured.
    Across,
    /// Along what was measured: a logarithmic ruler is marked at round numbers.
    Up,
}

/// A ruler.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruler {
    /// The place that it begins at.
    pub from: f64,
    /// The place that it ends at, after `from`.
    pub to: f64,
    /// Places that are marked, and what stands there.
    pub marks: Vec<(f64, String)>,
}

/// Where a number stands on an axis of this scale; nothing for what has no place there.
pub fn place(scale: &Scale, value: f64) -> Option<f64> {
    if !value.is_finite() || value.abs() > LARGEST {
        return None;
    }
    match scale {
        Scale::Linear => Some(value),
        Scale::Log => (value >= 1.0 / LARGEST).then(|| value.log10()),
        Scale::Names(names) => (value >= 0.0 && value < names.len() as f64).then_some(value),
    }
}

impl Ruler {
    /// A ruler on which all these places are; there must be one.
    pub fn over(axis: &Axis, places: &[f64], lies: Lies) -> Option<Self> {
        let least = places.iter().copied().min_by(f64::total_cmp)?;
        let most = places.iter().copied().max_by(f64::total_cmp)?;
        Some(match (&axis.scale, lies) {
            (Scale::Linear, _) => linear(least.min(0.0), most.max(0.0)),
            (Scale::Log, Lies::Across) => measured(places, least, most),
            (Scale::Log, Lies::Up) => round(least, most),
            (Scale::Names(names), _) => named(names),
        })
    }
}

/// plotters draws along it.
impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (begin, end): (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        begin + (share * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.iter().map(|m| m.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, place: &f64) -> String {
        self.marks.iter().find(|m| m.0 == *place).map(|m| m.1.clone()).unwrap_or_default()
    }
}

fn linear(least: f64, most: f64) -> Ruler {
    let length = if most - least < 1.0 / LARGEST { 1.0 } else { most - least };
    let step = round_step(length / MARKS);
    let (first, last) = ((least / step).floor(), ((least + length).max(most) / step).ceil());
    let marks = (0..=(last - first) as u32).map(|at| (first + f64::from(at)) * step);
    Ruler { from: first * step, to: last * step, marks: marks.map(|m| (m, brief(m))).collect() }
}

/// The least of 1, 2, 5, 10, 20, ... that is not below.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least).unwrap_or(10.0);
    factor * power
}

fn measured(places: &[f64], least: f64, most: f64) -> Ruler {
    let room = ((most - least) * ROOM).max(ROOM);
    let mut sorted = places.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut marks: Vec<(f64, String)> = Vec::new();
    for place in sorted {
        if marks.last().is_none_or(|(last, _)| place - last >= (most - least + room) * APART) {
            marks.push((place, brief(10f64.powf(place))));
        }
    }
    Ruler { from: least - room, to: most + room, marks }
}

fn round(least: f64, most: f64) -> Ruler {
    // Within two decades also 2 and 5 of each, over many decades not even every power of ten.
    let decades = most - least;
    let factors: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / 10.0).ceil().max(1.0) as usize;
    let powers = (least.floor() as i32..=most.ceil() as i32 + every as i32).step_by(every);
    let all: Vec<f64> =
        powers.flat_map(|p| factors.iter().map(move |f| f64::from(p) + f.log10())).collect();
    let from = all.iter().copied().rfind(|p| *p <= least).unwrap_or(least);
    let to = all.iter().copied().find(|p| *p >= most && *p > from).unwrap_or(most);
    let marks = all.into_iter().filter(|p| (from..=to).contains(p));
    Ruler { from, to, marks: marks.map(|p| (p, brief(10f64.powf(p)))).collect() }
}

fn named(names: &[String]) -> Ruler {
    let marks = names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect();
    Ruler { from: -0.5, to: names.len() as f64 - 0.5, marks }
}

/// A number with no more digits than tell it, large ones in millions (M) and so on.
fn brief(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if !(-6..15).contains(&magnitude) {
        return format!("{value:.0e}");
    }
    let (power, prefix) =
        PREFIXES.into_iter().find(|(power, _)| magnitude >= *power).unwrap_or((0, ""));
    let digits = (DIGITS - 1 - (magnitude - power)).max(0);
    let text = shown(value / 10f64.powi(power), digits as u8);
    let text = if digits == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    if prefix.is_empty() { text.to_owned() } else { format!("{text} {prefix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ruler: &Ruler) -> Vec<&str> {
        ruler.marks.iter().map(|m| m.1.as_str()).collect()
    }

    fn up(axis: &Axis, values: &[f64]) -> Ruler {
        let places: Vec<f64> = values.iter().filter_map(|v| place(&axis.scale, *v)).collect();
        Ruler::over(axis, &places, Lies::Up).unwrap()
    }

    #[test]
    fn equal_steps_begin_at_zero_and_are_round() {
        let axis = Axis::linear("", "");
        assert_eq!(
            labels(&up(&axis, &[180_718.0])),
            ["0", "50,000", "100,000", "150,000", "200,000"]
        );
        assert_eq!(labels(&up(&axis, &[0.23, 0.9])), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&up(&axis, &[-1.0, 1.0])), ["-1", "-0.5", "0", "0.5", "1"]);
        assert_eq!(labels(&up(&axis, &[0.0])), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn large_numbers_are_told_in_millions() {
        assert_eq!(
            labels(&up(&Axis::linear("", ""), &[4.1e6])),
            ["0", "1 M", "2 M", "3 M", "4 M", "5 M"]
        );
        assert_eq!(
            labels(&up(&Axis::log("", ""), &[2e8, 3e9])),
            ["200 M", "500 M", "1 G", "2 G", "5 G"]
        );
        assert_eq!([999_999.0, 1.25e6, 1e30].map(brief), ["999,999", "1.25 M", "1e30"]);
    }

    #[test]
    fn factors_are_marked_at_round_numbers_upwards() {
        let axis = Axis::log("", "");
        assert_eq!(
            labels(&up(&axis, &[1.5, 40_000.0])),
            ["1", "10", "100", "1,000", "10,000", "100,000"]
        );
        assert_eq!(labels(&up(&axis, &[3.0, 40.0])), ["2", "5", "10", "20", "50"]);
        assert_eq!(labels(&up(&axis, &[10.0])), ["10", "20"]);
        assert_eq!(labels(&up(&axis, &[0.002, 0.004])), ["0.002", "0.005"]);
    }

    #[test]
    fn factors_are_marked_where_something_was_measured_across() {
        let places: Vec<f64> = [100.0, 1.0, 16.0, 16.5].iter().map(|v: &f64| v.log10()).collect();
        let ruler = Ruler::over(&Axis::log("", ""), &places, Lies::Across).unwrap();
        assert_eq!(labels(&ruler), ["1", "16", "100"]);
        assert!(ruler.from < 0.0 && ruler.to > 2.0);
    }

    #[test]
    fn every_place_is_on_its_ruler_however_strange() {
        let strange = [1.0 / LARGEST, 1e-20, 0.3, 1.0, 7.0, 1e12, LARGEST];
        for axis in [Axis::linear("", ""), Axis::log("", "")] {
            for lies in [Lies::Across, Lies::Up] {
                for (a, b) in strange.iter().flat_map(|a| strange.iter().map(move |b| (*a, *b))) {
                    let places = [place(&axis.scale, a).unwrap(), place(&axis.scale, b).unwrap()];
                    let ruler = Ruler::over(&axis, &places, lies).unwrap();
                    assert!(ruler.from < ruler.to && ruler.to.is_finite(), "{a} {b} {ruler:?}");
                    assert!(
                        places.iter().all(|p| (ruler.from..=ruler.to).contains(p)),
                        "{a} {b} {ruler:?}"
                    );
                    assert!((1..=25).contains(&ruler.marks.len()), "{a} {b} {ruler:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_or_has_no_logarithm_has_no_place() {
        assert_eq!(place(&Scale::Linear, f64::NAN), None);
        assert_eq!(place(&Scale::Linear, f64::INFINITY), None);
        assert_eq!(place(&Scale::Log, 0.0), None);
        assert_eq!(place(&Scale::Log, -1.0), None);
        assert_eq!(place(&Scale::Names(vec!["a".into()]), 1.0), None);
        assert_eq!(Ruler::over(&Axis::linear("", ""), &[], Lies::Up), None);
    }
}
