//! Writes a file of a backup from front to back, with one checksum per block.

use std::path::Path;
use std::sync::Arc;

use clearway_env::{Disk, File, Open};

use super::manifest::BackupFile;
use super::{BLOCK, BackupError, Meter};

/// A file of a backup that is being written.
pub(super) struct Output {
    entry: BackupFile,
    file: Arc<dyn File>,
    shown: String,
    block: Vec<u8>,
}

impl Output {
    /// Creates the file, which must not exist.
    pub(super) fn create(disk: &dyn Disk, target: &Path, name: &str) -> Result<Self, BackupError> {
        let path = target.join(name);
        let shown = path.display().to_string();
        let file = disk
            .open(&path, Open::Create)
            .map_err(BackupError::io(format!("cannot create {shown}")))?;
        let entry = BackupFile { name: name.to_owned(), size: 0, sums: Vec::new() };
        Ok(Self { entry, file, shown, block: Vec::new() })
    }

    /// Appends bytes.
    pub(super) fn write(
        &mut self,
        mut bytes: &[u8],
        meter: &mut Meter<'_>,
    ) -> Result<(), BackupError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.put(meter)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, meter: &mut Meter<'_>) -> Result<(), BackupError> {
        let doing = || BackupError::io(format!("cannot write {}", self.shown));
        self.file.write_all_at(&self.block, self.entry.size).map_err(doing())?;
        let n = self.block.len() as u64;
        self.entry.sums.push(crc32c::crc32c(&self.block));
        self.entry.size += n;
        self.block.clear();
        meter.more(n)
    }

    /// Makes the file durable and returns its manifest entry.
    pub(super) fn finish(mut self, meter: &mut Meter<'_>) -> Result<BackupFile, BackupError> {
        if !self.block.is_empty() {
            self.put(meter)?;
        }
        self.file.sync_data().map_err(BackupError::io(format!("cannot sync {}", self.shown)))?;
        Ok(self.entry)
    }
}
