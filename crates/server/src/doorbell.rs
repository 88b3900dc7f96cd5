//! The workers' doorbells. A ring wakes the worker's mio event loop.

use clearway_latch::Wake;

/// A worker's doorbell.
pub type Doorbell = clearway_latch::Doorbell<EventLoop>;

/// The event loop of a worker.
pub struct EventLoop(pub mio::Waker);

impl Wake for EventLoop {
    fn wake(&self) {
        // An error means that the event loop is gone, so there is nothing to wake.
        let _ = self.0.wake();
    }
}
