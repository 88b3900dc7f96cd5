//! Takes a backup of a running database, or of a directory that no process has open.

use std::path::Path;
use std::sync::Arc;

use clearway_buffer::{Files, PAGE_SIZE, PageIo, lsn};
use clearway_env::Disk;
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_types::{Lsn, PageId, PartitionId};

use super::lost::{FIRST_PAGES, LostPages, is_empty, pages_in_use};
use super::manifest::{LOG, Manifest, NAME, data_name};
use super::output::Output;
use super::{BLOCK, BackupError, BackupProgress, BackupReport, BackupStep, Meter};
use crate::access;
use crate::control::{Control, State, is_in_new_file_system};
use crate::error::{OpenError, StorageError};
use crate::opening::prove_end;
use crate::wal::{Span, WalConfig, WalReader};

/// The pin's value while no backup is running.
pub(crate) const UNPINNED: u64 = u64::MAX;

/// Prevents truncation of the log at or after the pinned LSN while it lives.
pub(crate) struct LogPin<'a>(&'a AtomicU64);

impl<'a> LogPin<'a> {
    /// Pins the whole log. Returns `Busy` if it is already pinned.
    pub(crate) fn take(pin: &'a AtomicU64) -> Result<Self, BackupError> {
        // Relaxed, here and below. After pinning, the caller takes a checkpoint. The control file's
        // monitor orders the pin before every later checkpoint. An earlier checkpoint may not have
        // seen the pin, but it kept everything that the caller's checkpoint needs.
        match pin.compare_exchange(UNPINNED, 0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(Self(pin)),
            Err(_) => Err(BackupError::Busy),
        }
    }

    /// Allows truncation of the log before `lsn`.
    pub(crate) fn raise(&self, lsn: Lsn) {
        self.0.store(lsn.0, Ordering::Relaxed);
    }
}

impl Drop for LogPin<'_> {
    fn drop(&mut self) {
        self.0.store(UNPINNED, Ordering::Relaxed);
    }
}

/// Creates the target directory of a backup or a restore, with a durable name. It may exist if it
/// is empty, or the root of a new file system.
pub(crate) fn new_target(disk: &dyn Disk, target: &Path) -> Result<(), BackupError> {
    let shown = target.display();
    let io = || BackupError::io(format!("cannot use {shown}"));
    if disk.exists(target).map_err(io())? {
        // Listing fails if the target is not a directory.
        let usable = |names: Vec<String>| names.iter().all(|name| is_in_new_file_system(name));
        if !disk.list(target).is_ok_and(usable) {
            return Err(BackupError::Occupied(shown.to_string()));
        }
        access::refuse_shared(disk, target)?;
    }
    disk.create_dir_all(target).map_err(BackupError::io(format!("cannot create {shown}")))?;
    access::sync_parents(disk, target).map_err(io())
}

/// The source of a copy.
pub(crate) struct Source<'a> {
    pub(crate) disk: &'a Arc<dyn Disk>,
    pub(crate) files: &'a Files,
    pub(crate) log: Span,
    /// The checkpoint.
    pub(crate) state: State,
}

impl Source<'_> {
    /// Copies everything to `target`, an existing empty directory. `end` returns the end of the
    /// log. It is called after the pages have been copied, and the log must be in its files up to
    /// that LSN.
    pub(crate) fn copy(
        mut self,
        target: &Path,
        program: &str,
        end: impl FnOnce() -> Result<Lsn, BackupError>,
        step: &mut BackupStep<'_>,
    ) -> Result<BackupReport, BackupError> {
        let partitions = self.state.partitions;
        let data = target.join("data");
        self.disk
            .create_dir_all(&data)
            .map_err(BackupError::io(format!("cannot create {}", data.display())))?;
        let mut pages = 0;
        for partition in (0..partitions).map(PartitionId) {
            pages += u64::from(self.files.page_count(partition)?);
        }
        let mut meter = Meter {
            progress: BackupProgress { done: 0, total: pages * PAGE_SIZE as u64 },
            step: &mut |p| step(p),
        };
        let mut entries = Vec::new();
        let mut newest = (Lsn(0), PageId::new(PartitionId(0), 0));
        let mut lost = LostPages::default();
        for partition in (0..partitions).map(PartitionId) {
            let mut out = Output::create(&**self.disk, target, &data_name(partition.0))?;
            self.copy_pages(partition, &mut out, &mut newest, &mut lost, &mut meter)?;
            entries.push(out.finish(&mut meter)?);
        }
        let end = end()?;
        let (newest, page) = newest;
        if newest > end {
            // Either the write-ahead rule was violated, or the disk lost log that it had
            // acknowledged as durable.
            let what = "its LSN is beyond the end of the log";
            return Err(OpenError::from(StorageError::Corrupt { page, what }).into());
        }
        let begin = self.state.scan_from;
        meter.progress.total += end.0.saturating_sub(begin.0);
        let mut log = Output::create(&**self.disk, target, LOG)?;
        let (mut at, redo) = (begin, self.state.redo);
        let mut sink = |bytes: &[u8]| {
            lost.recreated(at, bytes, redo).map_err(OpenError::from)?;
            at.0 += bytes.len() as u64;
            log.write(bytes, &mut meter)
        };
        self.log.read(begin, end, &mut sink)?;
        lost.none_left().map_err(OpenError::from)?;
        entries.push(log.finish(&mut meter)?);
        let State { redo, next_txn, .. } = self.state;
        let (program, segment_size) = (program.to_owned(), self.log.segment_size());
        let manifest = Manifest {
            program,
            partitions,
            redo,
            begin,
            end,
            next_txn,
            segment_size,
            files: entries,
        };
        self.finish(target, &data, &manifest)?;
        Ok(BackupReport { bytes: manifest.bytes(), begin, end })
    }

    fn copy_pages(
        &self,
        partition: PartitionId,
        out: &mut Output,
        newest: &mut (Lsn, PageId),
        lost: &mut LostPages,
        meter: &mut Meter<'_>,
    ) -> Result<(), BackupError> {
        // Pages added to the file after this point have only changes logged after the checkpoint;
        // redo creates them.
        let pages = self.files.page_count(partition)?;
        let mut in_use = FIRST_PAGES;
        let mut block = vec![0; BLOCK];
        for first in (0..pages).step_by(BLOCK / PAGE_SIZE) {
            let n = ((pages - first) as usize).min(BLOCK / PAGE_SIZE);
            let run = &mut block[..n * PAGE_SIZE];
            self.files.read_run(PageId::new(partition, first), run)?;
            for (no, page) in (first..).zip(run.chunks_exact(PAGE_SIZE)) {
                if lsn(page) > newest.0 {
                    *newest = (lsn(page), PageId::new(partition, no));
                }
                if no == 0 {
                    in_use = pages_in_use(page);
                }
                if no < in_use && is_empty(page) {
                    lost.add(partition, no, no + 1);
                }
            }
            out.write(run, meter)?;
        }
        lost.add(partition, pages, in_use);
        Ok(())
    }

    /// Syncs everything else before the manifest is written.
    fn finish(&self, target: &Path, data: &Path, manifest: &Manifest) -> Result<(), BackupError> {
        let io = || BackupError::io(format!("cannot finish {}", target.display()));
        self.disk.sync_dir(data).map_err(io())?;
        self.disk.sync_dir(target).map_err(io())?;
        let file = self.disk.open(&target.join(NAME), clearway_env::Open::Create).map_err(io())?;
        file.write_all_at(manifest.encode().as_bytes(), 0).map_err(io())?;
        file.sync_data().map_err(io())?;
        self.disk.sync_dir(target).map_err(io())
    }
}

/// Takes a backup of a directory that no server has open. The directory may be as a crash left it:
/// torn pages are first repaired in place, as the next start would do. `program` is the version
/// that the manifest names.
///
/// # Errors
/// [`OpenError::InUse`] as [`BackupError::Source`] if a server has the directory open. If the log
/// is damaged, nothing is changed, as at a start.
pub fn take_offline(
    disk: Arc<dyn Disk>,
    dir: &Path,
    target: &Path,
    program: &str,
    step: &mut BackupStep<'_>,
) -> Result<BackupReport, BackupError> {
    let control = dir.join("control");
    let io = || BackupError::io(format!("cannot use {}", dir.display()));
    if !disk.exists(&control).map_err(io())? {
        return Err(OpenError::Refused(format!(
            "{} is not a data directory: it has no control file",
            dir.display()
        ))
        .into());
    }
    let _lock = crate::access::lock(&*disk, dir)?;
    let state = Control::open(&*disk, &control)?.state();
    if !state.complete {
        return Err(OpenError::Refused(format!(
            "{} was never completely created: it contains no data",
            dir.display()
        ))
        .into());
    }
    for partition in 0..state.partitions {
        let path = dir.join(data_name(partition));
        if !disk.exists(&path).map_err(io())? {
            return Err(OpenError::Refused(format!("{} is missing", path.display())).into());
        }
    }
    let config = WalConfig { dir: dir.join("wal"), ..WalConfig::default() };
    let mut reader = WalReader::open(disk.clone(), &config, state.scan_from)?;
    while reader.next()?.is_some() {}
    let end = reader.position();
    let files = || Ok(Arc::new(Files::open(&*disk, &dir.join("data"), state.partitions)?));
    let (files, _) = prove_end(&mut reader, &state, files)?;
    files.restore_torn()?;
    new_target(&*disk, target)?;
    Source { disk: &disk, files: &files, log: reader.into_span(), state }.copy(
        target,
        program,
        || Ok(end),
        step,
    )
}
