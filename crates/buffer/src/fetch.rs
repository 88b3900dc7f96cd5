//! Bringing pages in, asynchronously: each page is read once however many wait for it.
//!
//! A read that is under way has an entry in the page table's `loading`, with its waiters. The frame enters the page table
//! only when the page is in it, so that no frame ever holds half a page. If the page is created meanwhile
//! (`superseded`), the waiters get the created one; if that has left the pool again, the page is read again.

use crate::error::PageError;
use crate::frame::FreeFrame;
use crate::free::{Granted, Need};
use crate::guard::Keep;
use crate::pool::{Core, Want, count};
use crate::table::{Loading, Shard};
use clearway_types::{FrameId, PageId};
use std::sync::{Arc, mpsc};

/// Gets what was fetched.
pub type FetchDone = Box<dyn FnOnce(Result<Keep, PageError>) + Send>;

impl Core {
    pub fn fetch(self: &Arc<Self>, want: Want, done: FetchDone) {
        let need = match want {
            Want::Page(id) => {
                let mut shard = self.table.latch(id);
                if let Some(frame) = self.table.find_latched(&shard, self.frames(), id) {
                    self.frame(frame).pin(1);
                    drop(shard);
                    return done(Ok(Keep::page(self.clone(), frame)));
                }
                if let Some(loading) = shard.loading.get_mut(&id) {
                    loading.waiters.push(done);
                    return;
                }
                shard.loading.insert(id, Loading { waiters: vec![done], superseded: false });
                Need::Page(id)
            }
            Want::Frames(n) if n as usize > self.frames().len() / 2 => return done(Err(PageError::NoFrames)),
            Want::Frames(n) => Need::Frames(n, done),
        };
        self.dispatch(self.free.ask(need));
    }

    pub fn fetch_blocking(self: &Arc<Self>, want: Want) -> Result<Keep, PageError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // The receiver waits, so that the send succeeds.
        self.fetch(want, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap_or(Err(PageError::Closed))
    }

    /// Acts on what the free list has granted or refused.
    pub fn dispatch(self: &Arc<Self>, granted: impl IntoIterator<Item = Granted>) {
        for one in granted {
            match one {
                Granted::Page(id, frame) => {
                    let core = self.clone();
                    self.io_pool.submit(Box::new(move || core.load(id, frame)));
                }
                Granted::Frames(n, done) => done(Ok(Keep::frames(self.clone(), n))),
                Granted::Refused(Need::Frames(_, done), error) => done(Err(error)),
                Granted::Refused(Need::Page(id), error) => self.refuse(id, &error),
            }
        }
    }

    /// Reads a page into a frame. On an I/O thread.
    fn load(self: &Arc<Self>, id: PageId, mut frame: FreeFrame) {
        loop {
            let result = self.io.read(id, self.arena.free_bytes(&mut frame));
            count(&self.counters.reads, 1);
            let mut shard = self.table.latch(id);
            if let Some(resident) = self.table.find_latched(&shard, self.frames(), id) {
                let waiters = end_loading(&mut shard, id);
                self.frame(resident).pin(waiters.len() as u64);
                drop(shard);
                self.dispatch(self.free.put([frame]));
                return self.complete(waiters, resident);
            }
            if let Some(loading) = shard.loading.get_mut(&id)
                && loading.superseded
            {
                loading.superseded = false;
                continue;
            }
            let waiters = end_loading(&mut shard, id);
            if let Err(error) = result {
                drop(shard);
                self.dispatch(self.free.put([frame]));
                waiters.into_iter().for_each(|done| done(Err(error.clone())));
                return;
            }
            let frame = self.publish(frame, id, waiters.len() as u64, None);
            self.table.link(&shard, self.frames(), id, frame);
            drop(shard);
            // While the waiters' pins keep the page, so that it cannot have left the policy before it comes.
            self.replacement.miss(frame, id);
            return self.complete(waiters, frame);
        }
    }

    /// Ends a read that gets no frame.
    fn refuse(self: &Arc<Self>, id: PageId, error: &PageError) {
        let mut shard = self.table.latch(id);
        let waiters = end_loading(&mut shard, id);
        match self.table.find_latched(&shard, self.frames(), id) {
            Some(created) => {
                self.frame(created).pin(waiters.len() as u64);
                drop(shard);
                self.complete(waiters, created);
            }
            None => {
                drop(shard);
                waiters.into_iter().for_each(|done| done(Err(error.clone())));
            }
        }
    }

    /// Gives each waiter one of the pins that the page has for them.
    fn complete(self: &Arc<Self>, waiters: Vec<FetchDone>, frame: FrameId) {
        waiters.into_iter().for_each(|done| done(Ok(Keep::page(self.clone(), frame))));
    }
}

fn end_loading(shard: &mut Shard<FetchDone>, id: PageId) -> Vec<FetchDone> {
    shard.loading.remove(&id).map(|loading| loading.waiters).unwrap_or_default()
}
