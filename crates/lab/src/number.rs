//! Formatting and statistics of numbers.

/// Formats a number with thousands separators and this many decimals. NaN and infinity are shown as
/// "no value".
pub fn shown(value: f64, digits: u8) -> String {
    if !value.is_finite() {
        return "no value".into();
    }
    let text = format!("{:.*}", usize::from(digits), value.abs());
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut out = String::new();
    if value < 0.0 && text.contains(|c: char| c.is_ascii_digit() && c != '0') {
        out.push('-');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    fraction.map_or(out.clone(), |fraction| format!("{out}.{fraction}"))
}

/// Returns the median of the finite numbers, the lower one of two; `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Returns the median absolute deviation of the finite numbers: the median of their distances from
/// the median, the upper one of two, so that two repetitions show their difference. `None` for
/// fewer than two numbers.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances = sorted(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>());
    if distances.len() > 1 { distances.get(distances.len() / 2).copied() } else { None }
}

/// Returns the lower and upper quartile of the finite numbers, interpolated linearly.
fn quartiles(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let at = |share: f64| {
        let place = share * last as f64;
        let below = sorted[place.floor() as usize];
        below + (sorted[place.ceil() as usize] - below) * place.fract()
    };
    Some((at(0.25), at(0.75)))
}

/// With no more finite numbers than this, whiskers end at the lowest and the highest one.
pub const FEW_REPETITIONS: usize = 3;

/// Returns the ends of a whisker: minimum and maximum of a few finite numbers, else the quartiles.
pub fn whiskers(values: &[f64]) -> Option<(f64, f64)> {
    let finite = values.iter().filter(|value| value.is_finite()).count();
    if finite <= FEW_REPETITIONS { spread(values) } else { quartiles(values) }
}

/// Returns the minimum and maximum of the finite numbers.
pub fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    Some((*sorted.first()?, *sorted.last()?))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_separators() {
        assert_eq!(shown(0.0, 0), "0");
        assert_eq!(shown(999.4, 0), "999");
        assert_eq!(shown(-1234.5, 1), "-1,234.5");
        assert_eq!(shown(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(shown(-0.001, 1), "0.0");
        assert_eq!(shown(f64::INFINITY, 1), "no value");
    }

    #[test]
    fn deviation_ignores_outliers_and_needs_two_values() {
        assert_eq!(deviation(&[10.0, 12.0, 1000.0]), Some(2.0));
        assert_eq!(deviation(&[10.0, 13.0]), Some(3.0));
        assert_eq!(deviation(&[5.0, 5.0, 5.0, f64::NAN]), Some(0.0));
        assert_eq!((deviation(&[5.0, f64::NAN]), deviation(&[])), (None, None));
    }

    #[test]
    fn quartiles_interpolate_between_repetitions() {
        assert_eq!(quartiles(&[4.0, 0.0, f64::NAN, 2.0]), Some((1.0, 3.0)));
        assert_eq!(quartiles(&[0.0, 1.0, 2.0, 3.0, 100.0]), Some((1.0, 3.0)));
        assert_eq!((quartiles(&[7.0]), quartiles(&[])), (Some((7.0, 7.0)), None));
    }

    #[test]
    fn whiskers_of_few_repetitions_span_all() {
        assert_eq!(whiskers(&[100.0, 0.0, f64::NAN, 10.0]), Some((0.0, 100.0)));
        assert_eq!(whiskers(&[0.0, 1.0, 2.0, 3.0, 100.0]), Some((1.0, 3.0)));
        assert_eq!(whiskers(&[]), None);
    }

    #[test]
    fn median_ignores_nan_and_infinity() {
        assert_eq!(median(&[3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(spread(&[3.0, 1.0, f64::INFINITY]), Some((1.0, 3.0)));
        assert_eq!(spread(&[]), None);
    }
}
