//! What a check tells: findings as they come, and all of them in the end.

use std::fmt;

use crate::node::RecoveryReport;

/// Findings beyond this many are counted, and neither told nor kept.
pub const FINDINGS: usize = 10_000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something has been lost, or will be answered wrongly.
    Damage,
    /// Worth knowing, and harmless: the next start mends it, or nobody needs it.
    Note,
}

/// Something that is not as it should be, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, from the data directory on.
    pub file: String,
    /// The page of the file, for files of pages.
    pub page: Option<u32>,
    /// Where in the file it lies or starts, in bytes.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Damage => "damage",
            Severity::Note => "note",
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

/// Who wants to know how far a check is.
pub trait Progress {
    /// So many pages of `of` are done. Each page counts twice: once for itself, once for its place
    /// and content.
    fn pages(&mut self, done: u64, of: u64) {
        let _ = (done, of);
    }
    /// A finding, at once.
    fn found(&mut self, finding: &Finding) {
        let _ = finding;
    }
}

/// Nobody.
impl Progress for () {}

/// What a check has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings, in the order in which they came; at most [`FINDINGS`].
    pub findings: Vec<Finding>,
    /// How many findings are damage, those that were not kept among them.
    pub damage: u64,
    /// How many findings are notes.
    pub notes: u64,
    /// Partitions.
    pub partitions: u16,
    /// Pages that were checked.
    pub pages: u64,
    /// Of those, pages on free lists.
    pub free: u64,
    /// Trees, those of each partition counted.
    pub trees: u64,
    /// Keys in them.
    pub entries: u64,
    /// Bytes of log that were read.
    pub log_bytes: u64,
    /// What recovery did to the copy that was checked; `None` if it could not run.
    pub recovery: Option<RecoveryReport>,
}

impl Report {
    /// Whether there is no damage.
    pub fn is_sound(&self) -> bool {
        self.damage == 0
    }

    /// Notes a finding and tells it.
    pub fn add(&mut self, finding: Finding, progress: &mut dyn Progress) {
        match finding.severity {
            Severity::Damage => self.damage += 1,
            Severity::Note => self.notes += 1,
        }
        if self.findings.len() < FINDINGS {
            progress.found(&finding);
            self.findings.push(finding);
        }
    }
}
