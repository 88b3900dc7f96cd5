//! A chart axis: its range, the position of each number on it, and its ticks.

use crate::number::shown;
use crate::result::{Axis, Scale};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// Approximate number of ticks on a linear axis.
const TICKS: f64 = 5.0;
/// Numbers beyond this magnitude, or closer to zero than its inverse, are not measurements and are
/// not drawn.
const MAX_MAGNITUDE: f64 = 1e100;
/// Significant digits of a tick label, if the number has them.
const TICK_DIGITS: i32 = 3;
/// Suffixes of large tick labels, from this power of ten on.
const PREFIXES: [(i32, &str); 3] = [(12, "T"), (9, "G"), (6, "M")];
/// Minimum distance of ticks at measured values on a logarithmic axis, as a share of the axis.
const MIN_TICK_DISTANCE: f64 = 0.05;
/// Margin at either end of a logarithmic axis, as a share of its length.
const LOG_MARGIN: f64 = 0.04;

/// Distance of a logarithmic axis's tick for 0 from the smallest value, as a share of the axis.
const ZERO_DISTANCE: f64 = 0.1;

/// The quantity along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The independent variable: a logarithmic axis has ticks at the measured values.
    Independent,
    /// The measured quantity: a logarithmic axis has ticks at round numbers.
    Measured,
}

/// A chart axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruler {
    /// Position of its start.
    pub from: f64,
    /// Position of its end, greater than `from`.
    pub to: f64,
    /// Tick positions and their labels.
    pub marks: Vec<(f64, String)>,
}

/// Returns the position of a number on an axis of this scale, or `None` if the scale cannot show
/// it.
pub fn position(scale: &Scale, value: f64) -> Option<f64> {
    if !value.is_finite() || value.abs() > MAX_MAGNITUDE {
        return None;
    }
    match scale {
        Scale::Linear => Some(value),
        Scale::Log => (value >= 1.0 / MAX_MAGNITUDE).then(|| value.log10()),
        Scale::Names(names) => (value >= 0.0 && value < names.len() as f64).then_some(value),
    }
}

impl Ruler {
    /// Creates an axis that contains all these positions; returns `None` if there are none.
    pub fn over(axis: &Axis, places: &[f64], direction: Direction) -> Option<Self> {
        let least = places.iter().copied().min_by(f64::total_cmp)?;
        let most = places.iter().copied().max_by(f64::total_cmp)?;
        Some(match (&axis.scale, direction) {
            (Scale::Linear, _) => linear(least.min(0.0), most.max(0.0)),
            (Scale::Log, Direction::Independent) => measured(places, least, most),
            (Scale::Log, Direction::Measured) => round(least, most),
            (Scale::Names(names), _) => named(names),
        })
    }
}

impl Ruler {
    /// Extends a logarithmic axis downwards by a tick for 0, at its start.
    pub fn with_zero(mut self) -> Self {
        self.from -= (self.to - self.from) * ZERO_DISTANCE;
        self.marks.insert(0, (self.from, "0".into()));
        self
    }

    /// Returns the same axis in the other direction.
    pub fn reversed(&self) -> Self {
        Self { from: self.to, to: self.from, marks: self.marks.clone() }
    }
}

/// The interface that plotters draws through.
impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (begin, end): (i32, i32)) -> i32 {
        let share = (position - self.from) / (self.to - self.from);
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
    fn format_ext(&self, position: &f64) -> String {
        self.marks.iter().find(|m| m.0 == *position).map(|m| m.1.clone()).unwrap_or_default()
    }
}

fn linear(least: f64, most: f64) -> Ruler {
    let length = if most - least < 1.0 / MAX_MAGNITUDE { 1.0 } else { most - least };
    let step = round_step(length / TICKS);
    let (first, last) = ((least / step).floor(), ((least + length).max(most) / step).ceil());
    let marks = (0..=(last - first) as u32).map(|at| (first + f64::from(at)) * step);
    Ruler {
        from: first * step,
        to: last * step,
        marks: marks.map(|m| (m, tick_label(m))).collect(),
    }
}

/// Returns the smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least).unwrap_or(10.0);
    factor * power
}

fn measured(places: &[f64], least: f64, most: f64) -> Ruler {
    let room = ((most - least) * LOG_MARGIN).max(LOG_MARGIN);
    let mut sorted = places.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut marks: Vec<(f64, String)> = Vec::new();
    for position in sorted {
        if marks
            .last()
            .is_none_or(|(last, _)| position - last >= (most - least + room) * MIN_TICK_DISTANCE)
        {
            marks.push((position, tick_label(10f64.powf(position))));
        }
    }
    Ruler { from: least - room, to: most + room, marks }
}

fn round(least: f64, most: f64) -> Ruler {
    // Up to two decades: ticks at 1, 2 and 5. Many decades: not every power of ten has a
    // tick.
    let decades = most - least;
    let factors: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / 10.0).ceil().max(1.0) as usize;
    let powers = (least.floor() as i32..=most.ceil() as i32 + every as i32).step_by(every);
    let all: Vec<f64> =
        powers.flat_map(|p| factors.iter().map(move |f| f64::from(p) + f.log10())).collect();
    let from = all.iter().copied().rfind(|p| *p <= least).unwrap_or(least);
    let to = all.iter().copied().find(|p| *p >= most && *p > from).unwrap_or(most);
    let marks = all.into_iter().filter(|p| (from..=to).contains(p));
    Ruler { from, to, marks: marks.map(|p| (p, tick_label(10f64.powf(p)))).collect() }
}

fn named(names: &[String]) -> Ruler {
    let marks = names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect();
    Ruler { from: -0.5, to: names.len() as f64 - 0.5, marks }
}

/// Formats a number with only the digits it needs; large numbers in millions (M) and so on.
fn tick_label(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if !(-6..15).contains(&magnitude) {
        return format!("{value:.0e}");
    }
    let (power, prefix) =
        PREFIXES.into_iter().find(|(power, _)| magnitude >= *power).unwrap_or((0, ""));
    let digits = (TICK_DIGITS - 1 - (magnitude - power)).max(0);
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
        let places: Vec<f64> = values.iter().filter_map(|v| position(&axis.scale, *v)).collect();
        Ruler::over(axis, &places, Direction::Measured).unwrap()
    }

    #[test]
    fn linear_ticks_are_round_and_include_zero() {
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
    fn large_ticks_use_suffixes() {
        assert_eq!(
            labels(&up(&Axis::linear("", ""), &[4.1e6])),
            ["0", "1 M", "2 M", "3 M", "4 M", "5 M"]
        );
        assert_eq!(
            labels(&up(&Axis::log("", ""), &[2e8, 3e9])),
            ["200 M", "500 M", "1 G", "2 G", "5 G"]
        );
        assert_eq!([999_999.0, 1.25e6, 1e30].map(tick_label), ["999,999", "1.25 M", "1e30"]);
    }

    #[test]
    fn log_ticks_of_measured_axes_are_round() {
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
    fn log_ticks_of_independent_axes_are_measured_values() {
        let places: Vec<f64> = [100.0, 1.0, 16.0, 16.5].iter().map(|v: &f64| v.log10()).collect();
        let ruler = Ruler::over(&Axis::log("", ""), &places, Direction::Independent).unwrap();
        assert_eq!(labels(&ruler), ["1", "16", "100"]);
        assert!(ruler.from < 0.0 && ruler.to > 2.0);
    }

    #[test]
    fn axes_contain_extreme_values() {
        let strange = [1.0 / MAX_MAGNITUDE, 1e-20, 0.3, 1.0, 7.0, 1e12, MAX_MAGNITUDE];
        for axis in [Axis::linear("", ""), Axis::log("", "")] {
            for direction in [Direction::Independent, Direction::Measured] {
                for (a, b) in strange.iter().flat_map(|a| strange.iter().map(move |b| (*a, *b))) {
                    let places =
                        [position(&axis.scale, a).unwrap(), position(&axis.scale, b).unwrap()];
                    let ruler = Ruler::over(&axis, &places, direction).unwrap();
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
    fn nan_and_nonpositive_logs_have_no_position() {
        assert_eq!(position(&Scale::Linear, f64::NAN), None);
        assert_eq!(position(&Scale::Linear, f64::INFINITY), None);
        assert_eq!(position(&Scale::Log, 0.0), None);
        assert_eq!(position(&Scale::Log, -1.0), None);
        assert_eq!(position(&Scale::Names(vec!["a".into()]), 1.0), None);
        assert_eq!(Ruler::over(&Axis::linear("", ""), &[], Direction::Measured), None);
    }
}
