//! Reports the rows that are hot now, for the views.

use super::Partition;
use crate::lock::HotRow;
use crate::message::{Out, Outbox, TakeHotRows};
use clearway_storage::Trees;

impl<T: Trees> Partition<T> {
    /// Leaves the hot rows in the outbox; the code that carries it out formats them.
    pub(super) fn report_hot_rows(&self, take: TakeHotRows, out: &mut Outbox) {
        out.push(Out::HotRows {
            partition: self.id,
            rows: self.locks.hot_rows(HotRow::MOST),
            take,
        });
    }
}
