//! Waiting for pages: turns a suspended transaction's wants into one mail when all of them are in the pool.
//!
//! Invariant: the pages stay in their frames ([`Held`]) until the retry has run, also where its message waits for the baton or in line for the
//! partition, so that an attempt that wants no more pages than the pool can hold makes progress.

use crate::engine::Engine;
use crate::mailbox::Mail;
use crate::port::control;
use clearway_buffer::{Keep, Want};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, Message};
use clearway_storage::StorageError;
use clearway_types::{PartitionId, SqlError, TxnId};
use std::sync::Arc;

static GATHERING: Class = Class::new("coordinator.fetched");

/// What a retry needs, kept in the pool until dropped; or why it cannot be had.
pub(crate) type Held = Result<Vec<Keep>, SqlError>;

struct Gathering {
    left: usize,
    held: Held,
}

impl Gathering {
    /// Adds what has come: all of it, if this was the last, and what is not kept after all.
    fn add(&mut self, result: Result<Keep, SqlError>) -> (Option<Held>, Held) {
        self.left -= 1;
        let useless = match (result, &mut self.held) {
            (Ok(keep), Ok(held)) => {
                held.push(keep);
                Ok(Vec::new())
            }
            (Ok(keep), Err(_)) => Ok(vec![keep]),
            (Err(e), held) => std::mem::replace(held, Err(e)),
        };
        let all = (self.left == 0).then(|| std::mem::replace(&mut self.held, Ok(Vec::new())));
        (all, useless)
    }
}

/// Fetches all of `wants`, then posts [`Mail::Fetched`] to `worker`.
pub(crate) fn fetch(engine: &Arc<Engine>, worker: u16, partition: PartitionId, txn: TxnId, wants: Vec<Want>) {
    if wants.is_empty() {
        engine.mailbox(worker).post(Mail::Fetched { partition, txn, held: Ok(Vec::new()) });
        return;
    }
    let gathering =
        Arc::new(Latch::new(&GATHERING, Gathering { left: wants.len(), held: Ok(Vec::with_capacity(wants.len())) }));
    for want in wants {
        let (gathering, engine_of_reply) = (gathering.clone(), engine.clone());
        engine.pool().fetch(
            want,
            Box::new(move |result| {
                let result = result.map_err(|e| StorageError::Page(e).into());
                let (all, _useless) = gathering.lock().add(result);
                // The latch is free again.
                if let Some(held) = all {
                    engine_of_reply.mailbox(worker).post(Mail::Fetched { partition, txn, held });
                }
            }),
        );
    }
}

/// The message that lets a suspended transaction go on, or end with the error.
pub(crate) fn wake_up(txn: TxnId, held: Held) -> Message {
    let body = match held {
        Ok(held) => Body::Resume(held),
        Err(e) => Body::Unavailable(e),
    };
    control(txn, body)
}
