//! How pages go to the disk and come back: chosen at the start, from what is asked for and what there is.
//!
//! By io_uring where the kernel lets us: with many misses at once it takes less processor time a miss than threads do. Past
//! the operating system's cache where the pool takes half of the machine's memory or more: then the cache would hold little
//! that the pool does not; beside a smaller pool it holds much more, and answers several times as many misses a second as
//! the disk (docs/measurements.md).

use crate::config::{Config, DirectIo, IoEngine};
use crate::exit::{ExitCode, Failure};
use clearway_env::{DirectDisk, Disk, IoPool, OsDisk};
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
        let direct = direct.then(|| Arc::new(DirectDisk::new(config.direct_io == DirectIo::On)));
        let disk: Arc<dyn Disk> = match &direct {
            Some(direct) => direct.clone(),
            None => Arc::new(OsDisk),
        };
        Ok(Self { disk, direct, ring })
    }

    /// What the start-up line says; when the files are open.
    pub(crate) fn describe(&self) -> String {
        let engine = if self.ring { "io_uring" } else { "threads" };
        let how = match &self.direct {
            Some(direct) if direct.refused() => {
                tracing::warn!("the file system knows no direct I/O: pages go through the operating system's cache");
                "buffered"
            }
            Some(_) => "direct",
            None => "buffered",
        };
        format!("{how} page I/O by {engine}")
    }
}

/// Bytes of memory that the machine has.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(io_engine: IoEngine, direct_io: DirectIo, buffer_pool: u64) -> Option<String> {
        let mut config = Config { io_engine, direct_io, buffer_pool, ..Config::new("nowhere") };
        PageIo::choose(&mut config).ok().map(|chosen| chosen.describe())
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
        assert_eq!(chosen(E::Uring, D::Off, little), ring.then(|| "buffered page I/O by io_uring".to_owned()));
        let auto = if ring { "direct page I/O by io_uring" } else { "direct page I/O by threads" };
        assert_eq!(chosen(E::Auto, D::Auto, much), says(auto));
    }
}
