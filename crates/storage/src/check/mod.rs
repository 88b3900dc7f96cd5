//! Offline check of a data directory: every page, tree and free list, without changing a byte.
//!
//! Recovery runs first, on an `overlay` over the directory. So the check sees what the next start
//! would serve. Then each partition is checked in three passes: its `pages` one by one, its `trees`
//! and lists, and its contents. A caller that can interpret the contents does the last pass (the
//! coordinator: rows and indexes). If recovery fails, only the first pass runs.
//!
//! Invariants
//! 1. The directory is not changed, and no other process has it open.
//! 2. Memory: 24 bytes per page of one partition, and the summaries of nodes up to the given limit.
//!    Recovery's changes are in the scratch file.
//! 3. A check ends without a panic, whatever the bytes are.
//!
//! Locking: none of its own; the checker holds the directory's lock while it lives. A crash leaves
//! nothing.

mod contents;
mod node;
mod overlay;
mod pages;
mod report;
mod trees;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_buffer::Files;
use clearway_env::{Disk, DiskLock, File};
use clearway_types::{Lsn, PartitionId, TreeId};

use crate::access;
use crate::config::NodeConfig;
use crate::control::{Control, State};
use crate::error::{OpenError, OpenErrorKind};
use crate::node::Node;
use crate::wal::{WalConfig, WalError, WalReader};
use overlay::Overlay;
use pages::{Limit, PageFile, Pages};
use trees::Map;

pub use contents::TreeEntry;
pub use node::shown as shown_key;
pub use report::{CheckProgress, FINDINGS, Finding, FindingSeverity, Report};

/// Resources of a check.
pub struct CheckOptions {
    /// An empty file for recovery's changes; it may be removed while it is open.
    pub scratch: Arc<dyn File>,
    /// Frames of recovery's buffer pool, 8 KiB each.
    pub frames: u32,
    /// Size of the log buffer in recovery, in bytes. It is enlarged if an undo needs more.
    pub log_buffer: usize,
    /// Memory for the keys of nodes, in bytes. Nodes beyond it are read a second time.
    pub memory: usize,
}

impl CheckOptions {
    /// Returns the defaults: 144 MiB for recovery, 256 MiB for keys.
    pub fn new(scratch: Arc<dyn File>) -> Self {
        let NodeConfig { frames, wal_buffer_size: log_buffer, .. } = NodeConfig::default();
        Self { scratch, frames, log_buffer, memory: 256 << 20 }
    }
}

/// Receives findings and progress.
pub(crate) struct Out<'a> {
    report: &'a mut Report,
    progress: &'a mut dyn CheckProgress,
    done: &'a mut u64,
    of: u64,
}

impl Out<'_> {
    fn add(&mut self, finding: Finding) {
        self.report.add(finding, self.progress);
    }
    fn pages(&mut self, more: u64) {
        *self.done += more;
        self.progress.pages(*self.done, self.of.max(*self.done));
    }
}

/// Returns true if the data is damaged, rather than the disk failing.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Looks up the value of a key in a tree.
pub type Get<'a> = dyn FnMut(TreeId, &[u8]) -> Option<Vec<u8>> + 'a;

/// A check in progress.
pub struct Checker {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The overlay in which recovery ran; `None` if it failed.
    recovered: Option<Arc<Overlay>>,
    /// The end of the directory's log, and the end after recovery.
    ends: Option<(Lsn, Lsn)>,
    memory: usize,
    maps: Vec<Option<Map>>,
    report: Report,
    done: u64,
    of: u64,
    _lock: Option<DiskLock>,
}

impl Checker {
    /// Locks the directory, and runs recovery on a copy of what it changes. Blocks.
    ///
    /// # Errors
    /// The directory cannot be checked: a server has it open, it is not a data directory, or the
    /// disk fails. Damage is not an error.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: CheckOptions,
        progress: &mut dyn CheckProgress,
    ) -> Result<Self, OpenError> {
        let io = || OpenError::io(format!("cannot check {}", dir.display()));
        if !disk.exists(&dir.join("control")).map_err(io())? {
            let what = format!("{} is not a data directory: it has no control file", dir.display());
            return Err(OpenError::Refused(what));
        }
        let lock_file = access::lock_file(dir);
        // Without the lock file no server has the directory open; creating it would change the
        // directory.
        let lock = if disk.exists(&lock_file).map_err(io())? {
            let lock = disk.lock(&lock_file);
            Some(lock.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => OpenError::InUse(dir.display().to_string()),
                _ => io()(error),
            })?)
        } else {
            None
        };
        let overlay = Arc::new(Overlay::new(disk.clone(), options.scratch));
        let mut checker = Self {
            disk,
            dir: dir.to_owned(),
            recovered: None,
            ends: None,
            memory: options.memory,
            maps: Vec::new(),
            report: Report::default(),
            done: 0,
            of: 0,
            _lock: lock,
        };
        let config = NodeConfig {
            frames: options.frames,
            wal_buffer_size: options.log_buffer,
            io_threads: 2,
            ..NodeConfig::default()
        };
        checker.recover(overlay, config, progress)?;
        Ok(checker)
    }

    fn recover(
        &mut self,
        overlay: Arc<Overlay>,
        config: NodeConfig,
        progress: &mut dyn CheckProgress,
    ) -> Result<(), OpenError> {
        let control = match Control::open(&*overlay, &self.dir.join("control")) {
            Ok(control) => control,
            Err(error) => return self.cannot_recover("control", error, progress),
        };
        let state = control.state();
        for offset in
            control.damaged_slots().map_err(OpenError::io("cannot read the control file"))?
        {
            // Either slot is sufficient, and the next start rewrites both.
            let what = "a valid or an empty slot expected, neither found; the other slot is used"
                .to_owned();
            self.tell(FindingSeverity::Note, "control", Some(offset), what, progress);
        }
        if !state.complete {
            self.note(
                "control",
                "the directory was not completely created: the next start recreates it",
                progress,
            );
            return Ok(());
        }
        self.report.partitions = state.partitions;
        self.maps.resize_with(state.partitions.into(), || None);
        let disk: Arc<dyn Disk> = overlay.clone();
        let copies = Files::open(&*disk, &self.dir.join("data"), state.partitions)
            .and_then(|files| files.bad_copies());
        for (offset, what) in copies? {
            self.tell(
                FindingSeverity::Note,
                "data/double-write.data",
                Some(offset),
                what.to_owned(),
                progress,
            );
        }
        if self.check_log(&state, progress)? {
            self.run_recovery(overlay, config, progress)?;
        }
        let mut pages = 0;
        for partition in 0..self.report.partitions {
            pages += u64::from(self.page_file(PartitionId(partition))?.pages);
        }
        self.of = pages * if self.recovered.is_some() { 2 } else { 1 };
        Ok(())
    }

    /// Reads the log as recovery does, but searches further beyond its end. If the log is damaged,
    /// reports it and returns false.
    fn check_log(
        &mut self,
        state: &State,
        progress: &mut dyn CheckProgress,
    ) -> Result<bool, OpenError> {
        let config = WalConfig { dir: self.dir.join("wal"), ..WalConfig::default() };
        let opened = WalReader::open(self.disk.clone(), &config, state.scan_from);
        let mut read = |reader: &mut WalReader| {
            reader.search_far();
            while let Some(entry) = reader.next()? {
                self.report.log_bytes += entry.end.0 - entry.start.0;
            }
            let proof = format!(
                "the control file says that the log was on the disk up to {}",
                state.durable
            );
            reader.must_reach(state.durable, &proof)
        };
        let (error, place) = match opened {
            Ok(mut reader) => match read(&mut reader) {
                Ok(()) => return Ok(true),
                Err(WalError::Corrupt { lsn, reason }) => {
                    let place = reader.place(lsn);
                    (WalError::Corrupt { lsn, reason }, Some(place))
                }
                Err(error) => (error, None),
            },
            Err(error) => (error, None),
        };
        match &error {
            WalError::Io(io) if !is_damage(io) => return Err(error.into()),
            _ => {}
        }
        let (file, offset) = place.unwrap_or((self.dir.join("wal"), 0));
        let file = file.strip_prefix(&self.dir).unwrap_or(&file).display().to_string();
        let what = format!("{error}; only single pages are checked");
        self.tell(FindingSeverity::Damage, &file, (offset > 0).then_some(offset), what, progress);
        Ok(false)
    }

    fn run_recovery(
        &mut self,
        overlay: Arc<Overlay>,
        config: NodeConfig,
        progress: &mut dyn CheckProgress,
    ) -> Result<(), OpenError> {
        let disk: Arc<dyn Disk> = overlay.clone();
        // The checkpoint writes the recovered pages to the overlay's files.
        match Node::open(disk, &self.dir, config).and_then(|node| node.checkpoint().map(|()| node))
        {
            Ok(node) => {
                let report = node.recovery().clone();
                self.ends = Some((report.log_end, node.wal().appended()));
                node.shutdown();
                if report.repaired > 0 {
                    let what =
                        format!("{} pages are torn: the next start repairs them", report.repaired);
                    self.note("data/double-write.data", &what, progress);
                }
                self.report.recovery = Some(report);
                self.recovered = Some(overlay);
            }
            Err(error) => self.cannot_recover(".", error, progress)?,
        }
        Ok(())
    }

    /// Reports damage as a finding; returns any other failure as an error.
    fn cannot_recover(
        &mut self,
        file: &str,
        error: OpenError,
        progress: &mut dyn CheckProgress,
    ) -> Result<(), OpenError> {
        let damaged = match &error {
            error if error.kind() == OpenErrorKind::Panicked => false,
            OpenError::Storage(_) | OpenError::Catalog(_) => true,
            OpenError::Io { error, .. } => is_damage(error),
            OpenError::InUse(_) | OpenError::Refused(_) | OpenError::Shared(_) => false,
        };
        if !damaged {
            return Err(error);
        }
        let what = format!("recovery fails, so only single pages are checked: {error}");
        self.tell(FindingSeverity::Damage, file, None, what, progress);
        Ok(())
    }

    fn note(&mut self, file: &str, what: &str, progress: &mut dyn CheckProgress) {
        self.tell(FindingSeverity::Note, file, None, what.to_owned(), progress);
    }

    fn tell(
        &mut self,
        severity: FindingSeverity,
        file: &str,
        offset: Option<u64>,
        what: String,
        progress: &mut dyn CheckProgress,
    ) {
        self.report
            .add(Finding { severity, file: file.to_owned(), page: None, offset, what }, progress);
    }

    fn page_file(&self, partition: PartitionId) -> Result<PageFile, OpenError> {
        // Check below the overlay whether the file exists: recovery creates missing files.
        let below = PageFile::open(&*self.disk, &self.dir, partition);
        let file = match &self.recovered {
            Some(overlay) if below.as_ref().is_ok_and(PageFile::is_there) => {
                PageFile::open(&**overlay, &self.dir, partition)
            }
            _ => below,
        };
        file.map_err(OpenError::io("cannot open a file of pages"))
    }

    /// Returns the number of partitions; 0 if unknown.
    pub fn partitions(&self) -> u16 {
        self.report.partitions
    }

    /// Returns true if recovery ran, so that more than single pages can be checked.
    pub fn is_recovered(&self) -> bool {
        self.recovered.is_some()
    }

    /// Checks a partition's pages, its free list and its trees. Call it once for each partition,
    /// before any other method for that partition.
    pub fn structure(
        &mut self,
        partition: PartitionId,
        progress: &mut dyn CheckProgress,
    ) -> Result<(), OpenError> {
        let file = self.page_file(partition)?;
        let limit = Limit { ends: self.ends, overlay: self.recovered.as_deref() };
        let mut out = Out { report: &mut self.report, progress, done: &mut self.done, of: self.of };
        if !file.is_there() {
            out.add(file.finding(FindingSeverity::Damage, None, "the file is missing"));
        }
        let pages = Pages::look(file, &limit, self.memory, &mut out);
        if self.recovered.is_some() {
            self.maps[usize::from(partition.0)] = Some(trees::walk(pages, &mut out));
        }
        Ok(())
    }

    fn map(&self, partition: PartitionId) -> Option<&Map> {
        self.maps.get(usize::from(partition.0))?.as_ref()
    }

    /// Returns true if a tree exists and all its pages are valid.
    pub fn is_whole(&self, partition: PartitionId, tree: TreeId) -> bool {
        self.map(partition).is_some_and(|map| map.trees.iter().any(|t| t.id == tree && t.whole))
    }

    /// Returns the trees of a partition.
    pub fn trees(&self, partition: PartitionId) -> Vec<TreeId> {
        self.map(partition).map_or(Vec::new(), |map| map.trees.iter().map(|t| t.id).collect())
    }

    /// Visits all entries of all trees of a partition in page order, except those of damaged pages.
    /// A string that `visit` returns becomes a finding about the entry. Call it once for each
    /// partition.
    pub fn scan(
        &mut self,
        partition: PartitionId,
        progress: &mut dyn CheckProgress,
        visit: &mut dyn FnMut(TreeEntry<'_>) -> Option<String>,
    ) {
        let Some(map) = self.maps.get_mut(usize::from(partition.0)).and_then(Option::as_mut) else {
            return;
        };
        let mut out = Out { report: &mut self.report, progress, done: &mut self.done, of: self.of };
        contents::scan(map, &mut out, &mut |entry, out| {
            if let Some(what) = visit(entry) {
                out.add(map.file.damage(entry.page, what));
            }
        });
        map.leaves = Vec::new();
    }

    /// Visits a whole tree in key order. `visit` also gets a function that looks up keys in the
    /// partition's other trees.
    ///
    /// # Errors
    /// The disk's errors.
    pub fn each(
        &self,
        partition: PartitionId,
        tree: TreeId,
        visit: &mut dyn FnMut(TreeEntry<'_>, &mut Get<'_>),
    ) -> io::Result<()> {
        let Some(map) = self.map(partition) else { return Ok(()) };
        contents::Reader::new(map).each(tree, &mut |reader, entry| {
            visit(entry, &mut |tree, key| reader.get(tree, key).ok().flatten());
        })
    }

    /// Returns the value of a key of an intact tree.
    ///
    /// # Errors
    /// The disk's errors.
    pub fn get(
        &self,
        partition: PartitionId,
        tree: TreeId,
        key: &[u8],
    ) -> io::Result<Option<Vec<u8>>> {
        self.map(partition).map_or(Ok(None), |map| contents::Reader::new(map).get(tree, key))
    }

    /// Adds a finding about a partition or one of its pages.
    pub fn add(
        &mut self,
        severity: FindingSeverity,
        partition: PartitionId,
        page: Option<u32>,
        what: String,
        progress: &mut dyn CheckProgress,
    ) {
        let finding = match self.map(partition) {
            Some(map) => map.file.finding(severity, page, what),
            None => return self.tell(severity, "data", None, what, progress),
        };
        self.report.add(finding, progress);
    }

    /// Returns all findings.
    pub fn finish(self) -> Report {
        self.report
    }
}
