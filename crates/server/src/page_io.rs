//! How pages go to the disk and come back: chosen at the start, from what is asked for and what
//! there is.
//!
//! By io_uring where the kernel lets us: with many misses at once it takes less processor time a
//! miss than threads do. Past the operating system's cache where the pool takes half of the
//! machine's memory or more: then the cache would hold little that the pool does not; beside a
//! smaller pool it holds much more, and answers several times as many misses a second as the disk
//! (docs/measurements.md). io_uring past the cache has the pool's memory registered, if the kernel
//! lets us: else it must get hold of a page's memory anew for each read.

use crate::config::{Config, DirectIo, IoEngine};
use crate::exit::{ExitCode, Failure};
use clearway_env::{DirectDisk, Disk, IoPool, OsDisk, Registered};
use std::sync::Arc;

/// What was chosen.
pub(crate) struct PageIo {
    /// Data and log.
    pub(crate) disk: Arc<dyn Disk>,
    direct: Option<Arc<DirectDisk>>,
    ring: bool,
}

impl PageIo {
    /// Chooses, and writes the choice into `config` where it left it open.
    ///
    /// # Errors
    /// io_uring is asked for and refused.
    pub(crate) fn choose(config: &mut Config) -> Result<Self, Failure> {
        let ring = match (config.io_engine, IoPool::try_ring()) {
            (IoEngine::Threads, _) => false,
            (_, Ok(())) => true,
            (IoEngine::Auto, Err(error)) => {
                tracing::info!("pages are read by threads: the kernel refuses io_uring: {error}");
                false
            }
            (IoEngine::Uring, Err(error)) => {
                let message = format!("io_engine = uring: the kernel refuses io_uring: {error}");
                return Err(Failure::new(ExitCode::Refused, message));
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

    /// What the start-up line says; when the files are open.
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
                    "the file system knows no direct I/O: pages go through the operating system's cache"
                );
                "buffered"
            }
            Some(_) => "direct",
            None => "buffered",
        };
        format!("{how} page I/O by {engine}")
    }
}

/// How much memory this process may lock, unless it may lock all.
fn locked_memory() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    limit.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10))
}

/// Bytes of memory that the machine has.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(io_engine: IoEngine, direct_io: DirectIo, buffer_pool: u64) -> Option<String> {
        let mut config = Config { io_engine, direct_io, buffer_pool, ..Config::new("nowhere") };
        PageIo::choose(&mut config).ok().map(|chosen| chosen.describe(&Registered::default()))
    }

    #[test]
    fn what_is_asked_for_is_chosen_and_else_what_suits() {
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
    fn the_line_tells_of_registered_buffers() {
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
