//! Messages of the engine itself to partitions.

use clearway_partition::{Body, FragmentOrigin, Message, Stake};
use clearway_types::TxnId;

/// Creates a message whose answer no client waits for.
pub(crate) fn control(txn: TxnId, body: Body) -> Message {
    Message {
        txn,
        stake: Stake::Rows(0),
        origin: FragmentOrigin { worker: 0, session: 0, seq: 0 },
        body,
    }
}
