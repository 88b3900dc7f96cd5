//! Waiting for pages: turns a suspended transaction's wants into one mail when all of them are in the pool.
//!
//! Invariant: the pages stay in their frames ([`Held`]) until the retry has run, so that an attempt that wants no more pages than the
//! pool can hold makes progress.

use crate::engine::Engine;
use crate::mailbox::Mail;
use clearway_buffer::{Keep, Want};
use clearway_partition::{Body, Message, Origin};
use clearway_storage::StorageError;
use clearway_sync::{Mutex, PoisonError};
use clearway_types::{PartitionId, SqlError, TxnId};
use std::sync::Arc;

/// What a retry needs, kept in the pool until dropped; or why it cannot be had.
pub(crate) type Held = Result<Vec<Keep>, SqlError>;

struct Gathering {
    left: usize,
    held: Held,
}

/// Fetches all of `wants`, then posts [`Mail::Fetched`] to `worker`.
pub(crate) fn fetch(engine: &Arc<Engine>, worker: u16, partition: PartitionId, txn: TxnId, wants: Vec<Want>) {
    if wants.is_empty() {
        engine.mailbox(worker).post(Mail::Fetched { partition, txn, held: Ok(Vec::new()) });
        return;
    }
    let gathering = Arc::new(Mutex::new(Gathering { left: wants.len(), held: Ok(Vec::with_capacity(wants.len())) }));
    for want in wants {
        let (gathering, engine_of_reply) = (gathering.clone(), engine.clone());
        engine.pool().fetch(
            want,
            Box::new(move |result| {
                let mut g = gathering.lock().unwrap_or_else(PoisonError::into_inner);
                g.left -= 1;
                match result {
                    Ok(keep) => {
                        if let Ok(held) = &mut g.held {
                            held.push(keep);
                        }
                    }
                    Err(e) => g.held = Err(StorageError::Page(e).into()),
                }
                if g.left == 0 {
                    let held = std::mem::replace(&mut g.held, Ok(Vec::new()));
                    engine_of_reply.mailbox(worker).post(Mail::Fetched { partition, txn, held });
                }
            }),
        );
    }
}

/// The message that lets a suspended transaction go on, or end with the error.
pub(crate) fn wake_up(txn: TxnId, held: &Held) -> Message {
    let body = match held {
        Ok(_) => Body::Resume,
        Err(e) => Body::Unavailable(e.clone()),
    };
    Message { txn, origin: Origin { worker: 0, session: 0, seq: 0 }, body }
}
