//! The doorbells of workers, whose event loops are mio's.

use clearway_latch::Wake;

/// A worker's doorbell.
pub type Doorbell = clearway_latch::Doorbell<EventLoop>;

/// The event loop of a worker.
pub struct EventLoop(pub mio::Waker);

impl Wake for EventLoop {
    fn wake(&self) {
        // An error would mean that the event loop is gone, and then nobody needs waking.
        let _ = self.0.wake();
    }
}
