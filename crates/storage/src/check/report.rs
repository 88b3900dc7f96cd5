//! Reporting of a check: findings as they occur, and all of them at the end.

use std::fmt;

use crate::node::RecoveryReport;

/// Findings beyond this number are counted, but neither reported nor kept.
pub const FINDINGS: usize = 10_000;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingSeverity {
    /// Data is lost, or queries will return wrong results.
    Damage,
    /// Informational and harmless: the next start repairs it, or it is not needed.
    Note,
}

/// A problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub severity: FindingSeverity,
    /// The file, relative to the data directory.
    pub file: String,
    /// The page of the file, for page files.
    pub page: Option<u32>,
    /// The offset in the file where the problem is or starts, in bytes.
    pub offset: Option<u64>,
    /// The expected and the actual content.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            FindingSeverity::Damage => "damage",
            FindingSeverity::Note => "note",
        };
        write!(f, "{severity}: {}", self.file)?;
        if let Some(page) = self.page {
            write!(f, " page {page}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " offset {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Receives the progress of a check.
pub trait CheckProgress {
    /// Reports that `done` of `of` pages are done. Each page counts twice: once for itself, once
    /// for its place and content.
    fn pages(&mut self, done: u64, of: u64) {
        let _ = (done, of);
    }
    /// Reports a finding immediately.
    fn found(&mut self, finding: &Finding) {
        let _ = finding;
    }
}

/// Ignores all progress.
impl CheckProgress for () {}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings in order, at most [`FINDINGS`].
    pub findings: Vec<Finding>,
    /// Number of damage findings, including those that were not kept.
    pub damage: u64,
    /// Number of notes.
    pub notes: u64,
    /// Number of partitions.
    pub partitions: u16,
    /// Pages that were checked.
    pub pages: u64,
    /// Of those, pages on free lists.
    pub free: u64,
    /// Number of trees, summed over the partitions.
    pub trees: u64,
    /// Number of keys in the trees.
    pub entries: u64,
    /// Bytes of log that were read.
    pub log_bytes: u64,
    /// What recovery did to the copy that was checked; `None` if it failed.
    pub recovery: Option<RecoveryReport>,
}

impl Report {
    /// Returns true if there is no damage.
    pub fn is_sound(&self) -> bool {
        self.damage == 0
    }

    /// Records a finding and reports it.
    pub fn add(&mut self, finding: Finding, progress: &mut dyn CheckProgress) {
        match finding.severity {
            FindingSeverity::Damage => self.damage += 1,
            FindingSeverity::Note => self.notes += 1,
        }
        if self.findings.len() < FINDINGS {
            progress.found(&finding);
            self.findings.push(finding);
        }
    }
}
