//! The I/O engine for pages and whether they bypass the system's cache: chosen at startup from the
//! configuration and the machine.
//!
//! io_uring, if the kernel allows it: with many concurrent misses it takes less processor time per
//! miss than threads. Direct I/O, if the pool has at least half of the memory: the
//! system's cache would then hold little that the pool does not. Beside a smaller pool the cache
//! holds much more, and serves several times as many misses per second as the disk
//! (docs/measurements.md). With io_uring and direct I/O the pool's memory is registered, if the
//! kernel allows it: otherwise the kernel must pin a page's memory for each read.

use crate::config::{Config, DirectIo, IoEngine};
use crate::exit::{ExitCode, ExitFailure};
use crate::memory::memory;
use clearway_env::{DirectDisk, Disk, IoPool, OsDisk, Registered};
use std::sync::Arc;

/// The choice.
pub(crate) struct PageIo {
    /// The disk for data and log.
    pub(crate) disk: Arc<dyn Disk>,
    direct: Option<Arc<DirectDisk>>,
    ring: bool,
}

impl PageIo {
    /// Makes the choice, and writes it into `config` where the configuration says auto.
    ///
    /// # Errors
    /// The configuration requires io_uring and the kernel refuses it.
    pub(crate) fn choose(config: &mut Config) -> Result<Self, ExitFailure> {
        let ring = match (config.io_engine, IoPool::try_ring()) {
            (IoEngine::Threads, _) => false,
            (_, Ok(())) => true,
            (IoEngine::Auto, Err(error)) => {
                tracing::info!("using threads for page I/O: the kernel refuses io_uring: {error}");
                false
            }
            (IoEngine::Uring, Err(error)) => {
                let message = format!("io_engine = uring: the kernel refuses io_uring: {error}");
                return Err(ExitFailure::new(ExitCode::Refused, message));
            }
        };
        config.io_engine = if ring { IoEngine::Uring } else { IoEngine::Threads };
        let direct = match config.direct_io {
            DirectIo::On => true,
            DirectIo::Off => false,
            DirectIo::Auto => config.buffer_pool >= memory() / 2,
        };
        let required = config.direct_io == DirectIo::On;
        config.direct_io = if direct { DirectIo::On } else { DirectIo::Off };
        let direct = direct.then(|| Arc::new(DirectDisk::new(required)));
        let disk: Arc<dyn Disk> = match &direct {
            Some(direct) => direct.clone(),
            None => Arc::new(OsDisk),
        };
        Ok(Self { disk, direct, ring })
    }

    /// Describes the choice for the log. Call it after the files have been opened.
    pub(crate) fn describe(&self, registered: &Registered) -> String {
        let engine = match registered {
            _ if !self.ring => "threads".to_owned(),
            Registered { refused: Some(error), bytes, wanted } => {
                let (mib, limit) = (|bytes| bytes >> 20, locked_memory());
                let (bytes, wanted) = (mib(*bytes), mib(*wanted));
                format!(
                    "io_uring, {bytes} of {wanted} MiB in registered buffers ({error}; RLIMIT_MEMLOCK: {limit})"
                )
            }
            Registered { wanted: 0, .. } => "io_uring".to_owned(),
            Registered { bytes, .. } => {
                format!("io_uring, {} MiB in registered buffers", bytes >> 20)
            }
        };
        let how = match &self.direct {
            Some(direct) if direct.refused() => {
                tracing::warn!(
                    "the file system does not support direct I/O: pages go through the system's cache"
                );
                "buffered"
            }
            Some(_) => "direct",
            None => "buffered",
        };
        format!("{how} page I/O by {engine}")
    }
}

/// Returns the limit on locked memory, as text.
fn locked_memory() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    limit.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(io_engine: IoEngine, direct_io: DirectIo, buffer_pool: u64) -> Option<String> {
        let mut config = Config { io_engine, direct_io, buffer_pool, ..Config::new("nowhere") };
        PageIo::choose(&mut config).ok().map(|chosen| chosen.describe(&Registered::default()))
    }

    #[test]
    fn auto_chooses_by_kernel_and_memory() {
        use {DirectIo as D, IoEngine as E};
        let says = |text: &str| Some(text.to_owned());
        let (little, much) = (128 << 20, 1 << 44);
        assert_eq!(chosen(E::Threads, D::Off, much), says("buffered page I/O by threads"));
        assert_eq!(chosen(E::Threads, D::On, little), says("direct page I/O by threads"));
        assert_eq!(chosen(E::Threads, D::Auto, little), says("buffered page I/O by threads"));
        assert_eq!(chosen(E::Threads, D::Auto, much), says("direct page I/O by threads"));
        let ring = IoPool::try_ring().is_ok();
        assert_eq!(
            chosen(E::Uring, D::Off, little),
            ring.then(|| "buffered page I/O by io_uring".to_owned())
        );
        let auto = if ring { "direct page I/O by io_uring" } else { "direct page I/O by threads" };
        assert_eq!(chosen(E::Auto, D::Auto, much), says(auto));
    }

    #[test]
    fn description_shows_registered_buffers() {
        let of = |ring, registered: &Registered| {
            PageIo { disk: Arc::new(OsDisk), direct: None, ring }.describe(registered)
        };
        let none = Registered::default();
        let all = Registered { bytes: 130 << 20, wanted: 130 << 20, refused: None };
        assert_eq!(of(true, &none), "buffered page I/O by io_uring");
        assert_eq!(of(true, &all), "buffered page I/O by io_uring, 130 MiB in registered buffers");
        let refused = Some(Arc::new(std::io::Error::from(std::io::ErrorKind::OutOfMemory)));
        let line = of(true, &Registered { bytes: 2 << 20, wanted: 130 << 20, refused });
        let begin = "buffered page I/O by io_uring, 2 of 130 MiB in registered buffers (out of memory; RLIMIT_MEMLOCK: ";
        assert!(line.starts_with(begin), "{line}");
        assert_eq!(of(false, &none), "buffered page I/O by threads");
    }
}
