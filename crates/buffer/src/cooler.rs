//! The cooler: a thread that frees frames ahead of need.
//!
//! When free frames run low it takes victims as the policy proposes them: clean ones leave at once, dirty ones are written
//! in a batch first. Nobody who wants a frame writes a page or searches for a victim itself.

use crate::frame::FreeFrame;
use crate::policy::Probe;
use crate::pool::Core;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::thread::{self, JoinHandle};
use clearway_types::FrameId;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

static COOLER: Class = Class::new("buffer.cooler");

pub(crate) struct Cooler {
    thread: Latch<Option<JoinHandle<()>>>,
}

impl Cooler {
    pub fn start(core: Arc<Core>) -> io::Result<Self> {
        let run = move || {
            // Unwind safe: after a panic the pool gives out no more frames, and so says the answer to all who wait; the
            // panic hook has reported the cause.
            if catch_unwind(AssertUnwindSafe(|| core.keep_cool())).is_err() {
                core.dispatch(core.free.stop());
            }
        };
        let thread = thread::Builder::new().name("cooler".to_owned()).spawn(run)?;
        Ok(Self { thread: Latch::new(&COOLER, Some(thread)) })
    }

    /// Waits for the thread's end, which the free list's `stop` has brought about; unless it is this very thread, when a
    /// callback in it has dropped the pool.
    pub fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // A panic in it has been reported by the hook.
            let _ended = thread.join();
        }
    }
}

impl Core {
    fn keep_cool(self: &Arc<Self>) {
        let mut fruitful = true;
        while !self.free.wait_for_work(fruitful) {
            fruitful = self.cool();
        }
    }

    /// One round; whether any frame became free.
    fn cool(self: &Arc<Self>) -> bool {
        let need = self.free.deficit().max(1);
        let (clean, dirty) = self.choose_victims(need);
        let mut freed = clean.len();
        self.dispatch(self.free.put(clean));
        if !dirty.is_empty() {
            let written = match self.write_batch(&dirty, false) {
                Ok(written) => written,
                Err(error) => {
                    tracing::error!(%error, "the buffer pool cannot write pages");
                    Vec::new()
                }
            };
            let claimed: Vec<_> = written.into_iter().filter_map(|f| self.claim(f)).collect();
            claimed.iter().for_each(|f| self.replacement.remove(f.id()));
            freed += claimed.len();
            self.dispatch(self.free.put(claimed));
        }
        if freed == 0 {
            self.dispatch(self.free.age(self.failed.get()));
        }
        freed > 0
    }

    /// Takes up to `need` clean victims, and names dirty ones for the rest; in the policy's order, so that a dirty page is
    /// not passed over for a clean one that is more useful.
    fn choose_victims(&self, need: usize) -> (Vec<FreeFrame>, Vec<FrameId>) {
        let (mut clean, mut dirty) = (Vec::new(), Vec::new());
        let writable = self.failed.get().is_none();
        while clean.len() + dirty.len() < need && dirty.len() < self.write_batch {
            let mut claimed = None;
            let taken = self.replacement.evict(None, &mut |frame| match self.frame(frame).idle() {
                None => Probe::Skip,
                Some(true) => {
                    if writable && !dirty.contains(&frame) {
                        dirty.push(frame);
                    }
                    let enough = clean.len() + dirty.len() >= need || dirty.len() >= self.write_batch;
                    if enough { Probe::Stop } else { Probe::Skip }
                }
                Some(false) => {
                    claimed = self.claim(frame);
                    if claimed.is_some() { Probe::Take } else { Probe::Skip }
                }
            });
            if taken.is_none() {
                break;
            }
            clean.extend(claimed);
        }
        (clean, dirty)
    }
}
