//! The source's analytic model of two partitions.
//!
//! `f` is the fraction of transactions at both partitions. Rates are transactions a second of both
//! partitions together.
//!
//! The formulas are recalled from the paper and checked for consistency with its section 5 only.

use clearway_cluster::SchemeKind;

/// Parameters, in microseconds unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// CPU time of a transaction at one partition, without undo.
    pub single: f64,
    /// The same with undo.
    pub single_undo: f64,
    /// Time of a transaction at both partitions under blocking.
    pub multi: f64,
    /// CPU time of that at each partition.
    pub multi_cpu: f64,
    /// Factor of locks on CPU time.
    pub locking: f64,
}

impl Model {
    /// The source's measurements.
    pub const SOURCE: Self =
        Self { single: 64.0, single_undo: 73.0, multi: 211.0, multi_cpu: 55.0, locking: 1.132 };

    /// Returns the rate under a scheme; `None` if the source has no formula for it.
    pub fn rate(&self, scheme: SchemeKind, f: f64) -> Option<f64> {
        Some(match scheme {
            SchemeKind::Blocking => self.blocking(f),
            SchemeKind::Speculative => self.speculative(f),
            SchemeKind::Locking => self.locking(f),
            _ => return None,
        })
    }

    /// Returns the time that a partition stalls for a transaction at both.
    pub fn stall(&self) -> f64 {
        self.multi - self.multi_cpu
    }

    fn blocking(&self, f: f64) -> f64 {
        2e6 / (2.0 * f * self.multi + (1.0 - f) * self.single)
    }

    /// Transactions at both partitions are speculated on, too.
    fn speculative(&self, f: f64) -> f64 {
        let hidden = self.hidden(f);
        let visible = (1.0 - f) - 2.0 * f * hidden;
        2e6 / (2.0 * f * (self.multi_cpu + hidden * self.single_undo) + visible * self.single)
    }

    /// Returns the transactions at one partition that run during a stall.
    fn hidden(&self, f: f64) -> f64 {
        let room = (self.stall() - self.multi_cpu) / self.single_undo;
        if f > 0.0 { room.min((1.0 - f) / (2.0 * f)) } else { 0.0 }
    }

    /// Locks are always taken.
    fn locking(&self, f: f64) -> f64 {
        2e6 / (self.locking * (2.0 * f * self.multi_cpu + (1.0 - f) * self.single_undo))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_and_locking_cross_where_the_source_says() {
        let model = Model::SOURCE;
        let ahead = |f| model.blocking(f) > model.locking(f);
        assert!(ahead(0.0585) && !ahead(0.0595));
    }

    #[test]
    fn speculation_is_ahead_of_locking_as_the_source_says() {
        let model = Model::SOURCE;
        for f in [0.3, 0.4, 0.5] {
            let ratio = model.speculative(f) / model.locking(f);
            assert!((1.125..1.135).contains(&ratio), "{f}: {ratio}");
        }
    }

    #[test]
    fn schemes_without_active_transactions_have_one_rate() {
        let model = Model::SOURCE;
        assert_eq!(model.stall(), 156.0);
        let rate = |scheme| model.rate(scheme, 0.0);
        assert_eq!(rate(SchemeKind::Blocking), Some(31_250.0));
        assert_eq!(rate(SchemeKind::Speculative), Some(31_250.0));
        assert_eq!(rate(SchemeKind::Hybrid), None);
    }
}
