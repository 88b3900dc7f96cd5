//! Waiting for pages: turns a suspended transaction's wants into one mail when all of them are in
//! the pool.
//!
//! Invariant: the pages stay in their frames ([`Held`]) until the retry has run, also where its
//! message waits for the baton or in line for the partition, so that an attempt that wants no more
//! pages than the pool can hold makes progress. Nothing is kept for a transaction while it waits
//! for room in the log: on a full disk that may be long, and others want the frames.

use crate::engine::Engine;
use crate::mailbox::Mail;
use crate::port::control;
use clearway_buffer::{MissingPage, Pin};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, Message};
use clearway_storage::StorageError;
use clearway_types::{PartitionId, SqlError, TxnId};
use std::sync::Arc;

static GATHERING: Class = Class::new("coordinator.fetched");

/// What a retry needs, kept in the pool until dropped; or why it cannot be had.
pub(crate) type Held = Result<Vec<Pin>, SqlError>;

type Done = Box<dyn FnOnce(Held) + Send>;

struct Gathering {
    left: usize,
    held: Held,
    done: Option<Done>,
}

impl Gathering {
    /// Adds what has come: all of it, if this was the last, and what is not kept after all.
    fn add(&mut self, result: Result<Pin, SqlError>) -> (Option<(Done, Held)>, Held) {
        self.left -= 1;
        let useless = match (result, &mut self.held) {
            (Ok(keep), Ok(held)) => {
                held.push(keep);
                Ok(Vec::new())
            }
            (Ok(keep), Err(_)) => Ok(vec![keep]),
            (Err(e), held) => std::mem::replace(held, Err(e)),
        };
        let done = if self.left == 0 { self.done.take() } else { None };
        (done.map(|done| (done, std::mem::replace(&mut self.held, Ok(Vec::new())))), useless)
    }
}

/// Fetches all of `wants`, then posts [`Mail::Fetched`] to `worker`.
pub(crate) fn fetch(
    engine: &Arc<Engine>,
    worker: u16,
    partition: PartitionId,
    txn: TxnId,
    wants: Vec<MissingPage>,
) {
    let of_reply = engine.clone();
    log_first(engine, wants, move |held| {
        of_reply.mailbox(worker).post(Mail::Fetched { partition, txn, held })
    });
}

/// Calls `done` when there is room in the log and then all else has come, or when something cannot
/// be had.
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

/// Calls `done` when all of `wants` have come, or the last of them if one cannot.
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
                let (all, _useless) = gathering.lock().add(result);
                // The latch is free again.
                if let Some((done, held)) = all {
                    done(held);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineConfig;
    use clearway_env::MemDisk;
    use clearway_storage::NodeConfig;
    use std::path::Path;
    use std::sync::mpsc;

    #[test]
    fn who_waits_for_room_in_the_log_keeps_no_frames() {
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
        let (tell, told) = mpsc::channel();
        let all = MissingPage::Log { bytes: u64::MAX / 4, must: true };
        for _ in 0..2 {
            let tell = tell.clone();
            log_first(&engine, vec![MissingPage::Frames(FRAMES / 2), all], move |held| {
                tell.send(held.is_err()).expect("the test waits")
            });
        }
        assert!(told.try_recv().is_err(), "nobody has so much room");
        engine
            .pool()
            .fetch_blocking(MissingPage::Frames(FRAMES / 2))
            .expect("frames that nobody keeps");
        engine.shutdown().expect("it has not failed");
        assert_eq!(
            told.iter().take(2).collect::<Vec<_>>(),
            [true, true],
            "who waits is told of the end"
        );
    }
}
