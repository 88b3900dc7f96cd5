//! Verifies a backup, and restores it as a data directory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use clearway_buffer::{PAGE_SIZE, verify as verify_page};
use clearway_env::{Disk, File, Open};
use clearway_types::{Lsn, PageId, PartitionId};

use super::manifest::{BackupFile, LOG, Manifest, NAME};
use super::{BLOCK, BackupError, BackupProgress, BackupReport, BackupStep, Meter};
use crate::control::Control;
use crate::wal;

/// Upper bound for a manifest's size in bytes: enough for several hundred TiB of data.
const MAX_MANIFEST: u64 = 1 << 30;

/// Receives a block and its offset in the file.
type Sink<'a> = dyn FnMut(&[u8], u64) -> Result<(), BackupError> + 'a;

/// An open backup with a valid manifest.
struct Backup<'a> {
    disk: &'a Arc<dyn Disk>,
    path: &'a Path,
    manifest: Manifest,
}

fn read_manifest(disk: &dyn Disk, backup: &Path) -> Result<Manifest, BackupError> {
    let path = backup.join(NAME);
    let shown = path.display().to_string();
    let file = match disk.open(&path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = backup.display().to_string();
            if !disk.exists(backup).map_err(BackupError::io(format!("cannot use {dir}")))? {
                return Err(BackupError::Missing(dir));
            }
            let why = format!(
                "{dir} has no manifest: it is not a backup, or the backup was not finished"
            );
            return Err(BackupError::Incomplete(why));
        }
        Err(error) => return Err(BackupError::io(format!("cannot open {shown}"))(error)),
    };
    let doing = || BackupError::io(format!("cannot read {shown}"));
    let len = file.len().map_err(doing())?;
    if len > MAX_MANIFEST {
        return Err(BackupError::Incomplete(format!(
            "{shown} is not a manifest: it has {len} bytes"
        )));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).map_err(doing())?;
    Manifest::read(&bytes, &shown)
}

/// Finds the first damaged page of a block by the pages' own checksums.
fn first_bad_page(partition: u16, first: u64, block: &[u8]) -> Option<(u64, String)> {
    let file = Arc::from("the backup");
    let (pages, _) = block.as_chunks::<PAGE_SIZE>();
    pages.iter().zip(first..).find_map(|(page, no)| {
        let id = PageId::new(PartitionId(partition), no as u32);
        verify_page(page, id, &file)
            .err()
            .map(|_| (no * PAGE_SIZE as u64, format!("{id} has a wrong checksum")))
    })
}

impl<'a> Backup<'a> {
    fn open(disk: &'a Arc<dyn Disk>, path: &'a Path) -> Result<Self, BackupError> {
        let manifest = read_manifest(&**disk, path)?;
        Ok(Self { disk, path, manifest })
    }

    fn report(&self) -> BackupReport {
        BackupReport {
            bytes: self.manifest.bytes(),
            begin: self.manifest.begin,
            end: self.manifest.end,
        }
    }

    /// Reads one file; verifies each block before passing it to `sink` with its offset.
    fn read(
        &self,
        number: usize,
        entry: &BackupFile,
        meter: &mut Meter<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), BackupError> {
        let shown = self.path.join(&entry.name).display().to_string();
        let damaged = |offset, what| BackupError::Damaged { file: shown.clone(), offset, what };
        let file = match self.disk.open(&self.path.join(&entry.name), Open::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(0, "it is missing".to_owned()));
            }
            Err(error) => return Err(BackupError::io(format!("cannot open {shown}"))(error)),
        };
        let doing = || BackupError::io(format!("cannot read {shown}"));
        let len = file.len().map_err(doing())?;
        if len != entry.size {
            return Err(damaged(
                len.min(entry.size),
                format!("it has {len} bytes, {} were expected", entry.size),
            ));
        }
        let mut block = vec![0; BLOCK];
        for (i, &expected) in (0_u64..).zip(&entry.sums) {
            let at = i * BLOCK as u64;
            let block = &mut block[..(entry.size - at).min(BLOCK as u64) as usize];
            file.read_exact_at(block, at).map_err(doing())?;
            let found = crc32c::crc32c(block);
            if found != expected {
                let pages = (entry.name != LOG)
                    .then(|| first_bad_page(number as u16, at / PAGE_SIZE as u64, block));
                let (offset, place) = pages.flatten().unwrap_or_else(|| {
                    (at, format!("somewhere up to {}", at + block.len() as u64))
                });
                return Err(damaged(
                    offset,
                    format!("{place}; checksum {expected:08x} expected, {found:08x} found"),
                ));
            }
            sink(block, at)?;
            meter.more(block.len() as u64)?;
        }
        Ok(())
    }

    /// Writes the partitions' files and the log into `dir`, and makes them durable.
    fn write(&self, dir: &Path, meter: &mut Meter<'_>) -> Result<(), BackupError> {
        let io = |doing: &str, path: &Path| BackupError::io(format!("{doing} {}", path.display()));
        let (data, log) = (dir.join("data"), dir.join("wal"));
        self.disk.create_dir_all(&data).map_err(io("cannot create", &data))?;
        for (number, entry) in self.manifest.files.iter().enumerate() {
            if entry.name == LOG {
                let Manifest { begin, end, segment_size, .. } = self.manifest;
                let segments =
                    wal::Restored::create(self.disk.clone(), &log, segment_size, begin, end)?;
                self.read(number, entry, meter, &mut |bytes, at| {
                    segments.write(Lsn(begin.0 + at), bytes).map_err(io("cannot write", &log))
                })?;
                segments.finish().map_err(io("cannot write", &log))?;
                continue;
            }
            let path = dir.join(&entry.name);
            let file: Arc<dyn File> =
                self.disk.open(&path, Open::Create).map_err(io("cannot create", &path))?;
            self.read(number, entry, meter, &mut |bytes, at| {
                file.write_all_at(bytes, at).map_err(io("cannot write", &path))
            })?;
            file.sync_data().map_err(io("cannot sync", &path))?;
        }
        self.disk.sync_dir(&data).map_err(io("cannot sync", &data))
    }
}

/// Restores a backup as a data directory, and verifies everything that it copies. `dir` must not
/// exist, or must be empty or the root of a new file system. The next start on it runs recovery.
pub fn restore(
    disk: Arc<dyn Disk>,
    backup: &Path,
    dir: &Path,
    step: &mut BackupStep<'_>,
) -> Result<BackupReport, BackupError> {
    let backup = Backup::open(&disk, backup)?;
    super::new_target(&*disk, dir)?;
    // While it is being filled, a server must not mistake the directory for a new one.
    let _lock = crate::access::lock(&*disk, dir)?;
    let progress = BackupProgress { done: 0, total: backup.manifest.bytes() };
    backup.write(dir, &mut Meter { progress, step: &mut |p| step(p) })?;
    disk.sync_dir(dir).map_err(BackupError::io(format!("cannot sync {}", dir.display())))?;
    Control::open(&*disk, &dir.join("control"))?.write(backup.manifest.state())?;
    disk.sync_dir(dir).map_err(BackupError::io(format!("cannot sync {}", dir.display())))?;
    Ok(backup.report())
}

/// Verifies the checksums of a backup, and nothing else.
pub fn verify(
    disk: Arc<dyn Disk>,
    backup: &Path,
    step: &mut BackupStep<'_>,
) -> Result<BackupReport, BackupError> {
    let backup = Backup::open(&disk, backup)?;
    let progress = BackupProgress { done: 0, total: backup.manifest.bytes() };
    let mut meter = Meter { progress, step: &mut |p| step(p) };
    for (number, entry) in backup.manifest.files.iter().enumerate() {
        backup.read(number, entry, &mut meter, &mut |_, _| Ok(()))?;
    }
    Ok(backup.report())
}
