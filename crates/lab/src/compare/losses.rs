//! Where the first contender is behind although its rate may be higher.

use super::{CPU, Comparison, P99, of};
use crate::number;

impl Comparison {
    /// Reports the cases in which the first contender has a longer 99th percentile, or needs more
    /// CPU time for a transaction, than the last.
    pub fn losses(&self) -> Option<String> {
        let (first, last) = (self.contenders.first()?, self.contenders.last()?);
        let parts = [("a longer p99", P99), ("more CPU time per transaction", CPU)];
        let parts = parts.map(|(what, measure)| {
            let behind: Vec<String> = self
                .cases
                .iter()
                .filter_map(|case| {
                    let ours = of(case.samples.first()?, &measure)?;
                    let theirs = of(case.samples.last()?, &measure)?;
                    let [shown, beside] = [ours, theirs].map(|n| number::shown(n, measure.digits));
                    let unit = measure.unit;
                    (ours > theirs)
                        .then(|| format!("{} ({shown} beside {beside} {unit})", case.run.name()))
                })
                .collect();
            let behind = if behind.is_empty() { "no case".into() } else { behind.join(", ") };
            format!("{what} in {behind}")
        });
        Some(format!("Of medians, {first} has {} than {last}.", parts.join("; and ")))
    }
}

#[cfg(test)]
mod tests {
    use crate::compare::tests::comparison;

    #[test]
    fn losses_name_case_and_values() {
        let mut comparison = comparison();
        for (samples, us) in comparison.cases[0].samples.iter_mut().zip([5.0, 4.0]) {
            samples.iter_mut().for_each(|sample| sample.server_cpu_us = us);
        }
        let said = comparison.losses().unwrap();
        let cpu =
            "more CPU time per transaction in select-only -M prepared -c 16 (5.0 beside 4.0 us)";
        assert!(said.contains(cpu), "{said}");
        assert!(said.starts_with("Of medians, a has a longer p99 in "), "{said}");
        assert!(said.ends_with(" than b."), "{said}");
    }
}
