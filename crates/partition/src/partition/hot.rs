//! Which rows are hot now, for people who look.

use super::Partition;
use crate::lock::HotRow;
use crate::message::{Out, Outbox, TakeHotRows};
use crate::trees::Trees;

impl<T: Trees> Partition<T> {
    /// Leaves the hot rows in the outbox: they are put into words by who carries that out.
    pub(super) fn tell_hot_rows(&self, take: TakeHotRows, out: &mut Outbox) {
        out.push(Out::HotRows {
            partition: self.id,
            rows: self.locks.hot_rows(HotRow::MOST),
            take,
        });
    }
}
