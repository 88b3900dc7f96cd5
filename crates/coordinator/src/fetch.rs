//! Page waits: collects the pages that a suspended transaction is missing and posts one mail when
//! all of them are resident.
//!
//! Invariant: the pages stay pinned in their frames ([`Held`]) until the retry has run, even while
//! its message waits for the baton or in the partition's line. So an attempt that needs no more
//! pages than the pool holds makes progress. No page is kept for a transaction that waits for log
//! space: on a full disk that may take long, and others need the frames.

use crate::engine::Engine;
use crate::mailbox::{Held, Mail};
use crate::message::control;
use clearway_buffer::{MissingPage, Pin};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, Message};
use clearway_storage::StorageError;
use clearway_types::{PartitionId, SqlError, TxnId};
use std::sync::Arc;

static GATHERING: Class = Class::new("coordinator.fetched");

type Done = Box<dyn FnOnce(Held) + Send>;

struct Gathering {
    left: usize,
    held: Held,
    done: Option<Done>,
}

impl Gathering {
    /// Adds a result. Returns everything if this was the last, and any pins to drop.
    fn add(&mut self, result: Result<Pin, SqlError>) -> (Option<(Done, Held)>, Held) {
        self.left -= 1;
        let unused = match (result, &mut self.held) {
            (Ok(pin), Ok(held)) => {
                held.push(pin);
                Ok(Vec::new())
            }
            (Ok(pin), Err(_)) => Ok(vec![pin]),
            (Err(e), held) => std::mem::replace(held, Err(e)),
        };
        let done = if self.left == 0 { self.done.take() } else { None };
        (done.map(|done| (done, std::mem::replace(&mut self.held, Ok(Vec::new())))), unused)
    }
}

/// Fetches all of `wants`, then posts [`Mail::Fetched`] to `worker`. The request is named by its
/// partition, transaction and number.
pub(crate) fn fetch(
    engine: &Arc<Engine>,
    worker: u16,
    (partition, txn, request): (PartitionId, TxnId, u64),
    wants: Vec<MissingPage>,
) {
    let of_reply = engine.clone();
    log_first(engine, wants, move |held| {
        of_reply.mailbox(worker).post(Mail::Fetched { partition, txn, request, held })
    });
}

/// Waits for log space, then for all pages, then calls `done`. On an error it calls `done` early.
fn log_first(
    engine: &Arc<Engine>,
    wants: Vec<MissingPage>,
    done: impl FnOnce(Held) + Send + 'static,
) {
    let (room, pages): (Vec<_>, Vec<_>) =
        wants.into_iter().partition(|want| matches!(want, MissingPage::Log { .. }));
    let of_pages = engine.clone();
    gather(engine, room, move |room| match room {
        Ok(_) => gather(&of_pages, pages, done),
        Err(error) => done(Err(error)),
    });
}

/// Calls `done` when all of `wants` have been fetched or have failed.
fn gather(engine: &Arc<Engine>, wants: Vec<MissingPage>, done: impl FnOnce(Held) + Send + 'static) {
    if wants.is_empty() {
        return done(Ok(Vec::new()));
    }
    let held = Ok(Vec::with_capacity(wants.len()));
    let gathering = Gathering { left: wants.len(), held, done: Some(Box::new(done)) };
    let gathering = Arc::new(Latch::new(&GATHERING, gathering));
    for want in wants {
        let gathering = gathering.clone();
        engine.pool().fetch(
            want,
            Box::new(move |result| {
                let result = result.map_err(|e| StorageError::Page(e).into());
                let (all, _unused) = gathering.lock().add(result);
                // The latch has been released.
                if let Some((done, held)) = all {
                    done(held);
                }
            }),
        );
    }
}

/// Returns the message that resumes a suspended transaction, or ends it with the error.
pub(crate) fn wake_up(txn: TxnId, request: u64, held: Held) -> Message {
    let body = match held {
        Ok(held) => Body::Resume(held),
        Err(error) => Body::Unavailable { request, error },
    };
    control(txn, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineConfig;
    use clearway_storage::NodeConfig;
    use clearway_testkit::MemDisk;
    use std::path::Path;
    use std::sync::mpsc;

    #[test]
    fn waiting_for_log_space_keeps_no_frames() {
        const FRAMES: u32 = 64;
        let node = NodeConfig {
            partitions: Some(1),
            frames: FRAMES,
            wal_segment_size: 1 << 20,
            ..Default::default()
        };
        let disk = Arc::new(MemDisk::new());
        let engine = Engine::open(
            disk,
            Path::new("/data"),
            EngineConfig { node, ..Default::default() },
            Vec::new(),
        );
        let engine = engine.expect("a new directory");
        let (send, receive) = mpsc::channel();
        let all = MissingPage::Log { bytes: u64::MAX / 4, must: true };
        for _ in 0..2 {
            let send = send.clone();
            log_first(&engine, vec![MissingPage::Frames(FRAMES / 2), all], move |held| {
                send.send(held.is_err()).expect("the test waits")
            });
        }
        assert!(receive.try_recv().is_err(), "there is never that much space");
        engine.pool().fetch_blocking(MissingPage::Frames(FRAMES / 2)).expect("the frames are free");
        engine.shutdown().expect("the engine has not failed");
        assert_eq!(
            receive.iter().take(2).collect::<Vec<_>>(),
            [true, true],
            "waiters learn of the shutdown"
        );
    }
}
