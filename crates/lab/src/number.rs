//! Numbers for people, and the numbers that stand for many.

/// With thousands separated by commas and so many digits behind the point; what is no number says so.
pub fn shown(value: f64, digits: u8) -> String {
    if !value.is_finite() {
        return "no value".into();
    }
    let text = format!("{:.*}", usize::from(digits), value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
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

/// The middle of the numbers among these, the lower one of two; `None` where there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Least and greatest of the numbers among these.
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
    fn thousands_are_separated() {
        assert_eq!(shown(0.0, 0), "0");
        assert_eq!(shown(999.4, 0), "999");
        assert_eq!(shown(-1234.5, 1), "-1,234.5");
        assert_eq!(shown(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(shown(-0.001, 1), "0.0");
        assert_eq!(shown(f64::INFINITY, 1), "no value");
    }

    #[test]
    fn a_median_is_of_what_was_measured_and_is_a_number() {
        assert_eq!(median(&[3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(spread(&[3.0, 1.0, f64::INFINITY]), Some((1.0, 3.0)));
        assert_eq!(spread(&[]), None);
    }
}
