//! The manifest: the files of a backup, with checksums. It is text, so that a person can read it;
//! `docs/format.md` specifies it.

use std::fmt::Write as _;

use clearway_buffer::PAGE_SIZE;
use clearway_types::Lsn;

use super::{BLOCK, BackupError};
use crate::control::State;

/// File name of the manifest in a backup's directory.
pub(super) const NAME: &str = "manifest";
/// File name of the log.
pub(super) const LOG: &str = "log";

const MAGIC: &str = "CLEARWAY-BACKUP";
/// The version that is written. Same as the data directory's, because the backup contains part of
/// its log.
const VERSION: u32 = 3;
/// The oldest version that can be read.
const OLDEST: u32 = 1;
/// Upper bounds in bytes for the log and for one segment. They keep a malicious manifest from
/// causing an overflow or filling the disk.
const MAX_LOG: u64 = 1 << 62;
const MAX_SEGMENT: u64 = 1 << 40;
/// Checksums per line.
const A_LINE: usize = 12;
const SUM_LINE: &str = "sum ";

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Path relative to the backup.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// CRC-32C of each MiB; the last block may be shorter.
    pub sums: Vec<u32>,
}

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Version of the program that took the backup.
    pub program: String,
    /// Number of partitions.
    pub partitions: u16,
    /// The pages contain all changes of records before this LSN.
    pub redo: Lsn,
    /// Start of the log.
    pub begin: Lsn,
    /// End of the log.
    pub end: Lsn,
    /// Greater than every transaction id in the log before `begin`.
    pub next_txn: u64,
    /// Segment size of the restored log, in bytes.
    pub segment_size: u64,
    /// The page file of each partition in order, then the log.
    pub files: Vec<BackupFile>,
}

/// Returns the path of a partition's file in a backup.
pub(super) fn data_name(partition: u16) -> String {
    format!("data/p{partition:04}.data")
}

/// Returns the value of the next line, which must be `key value`.
fn value<'a>(lines: &mut impl Iterator<Item = &'a str>, key: &str) -> Result<&'a str, String> {
    let line = lines.next().unwrap_or_default();
    line.strip_prefix(key)
        .and_then(|rest| rest.strip_prefix(' '))
        .ok_or_else(|| format!("`{key}` was expected, not `{line}`"))
}

fn number<'a, T: std::str::FromStr>(
    lines: &mut impl Iterator<Item = &'a str>,
    key: &str,
) -> Result<T, String> {
    let text = value(lines, key)?;
    text.parse().map_err(|_| format!("`{key} {text}` is invalid"))
}

impl Manifest {
    /// Returns the total size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|entry| entry.size).sum()
    }

    /// Returns the state for the control file of the restored directory.
    pub(super) fn state(&self) -> State {
        let Self { partitions, redo, begin, end, next_txn, .. } = *self;
        State { complete: true, partitions, redo, scan_from: begin, next_txn, durable: end }
    }

    /// Encodes the manifest as text.
    pub fn encode(&self) -> String {
        let Self { program, partitions, redo, begin, end, next_txn, segment_size, files } = self;
        let mut out = format!(
            "{MAGIC} {VERSION}\nprogram {program}\npartitions {partitions}\nredo {redo}\nbegin {begin}\nend {end}\n\
             next-txn {next_txn}\nsegment-size {segment_size}\nblock {BLOCK}\n"
        );
        for BackupFile { name, size, sums } in files {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "file {name} {size}");
            for line in sums.chunks(A_LINE) {
                let line: Vec<String> = line.iter().map(|sum| format!("{sum:08x}")).collect();
                let _ = writeln!(out, "{}", line.join(" "));
            }
        }
        let _ = writeln!(out, "{SUM_LINE}{:08x}", crc32c::crc32c(out.as_bytes()));
        out
    }

    /// Parses a manifest from untrusted bytes. The error says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        Self::parse_any(bytes)?.map_err(|version| {
            format!(
                "it is of format version {version}; this release reads versions {OLDEST} to {VERSION}"
            )
        })
    }

    /// Parses a manifest. Returns `Ok(Err(version))` for an intact one of a version that this
    /// release does not read.
    fn parse_any(bytes: &[u8]) -> Result<Result<Self, u32>, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let version = text.lines().next().and_then(|line| line.strip_prefix(MAGIC)).map(str::trim);
        let Some(Ok(version)) = version.map(str::parse::<u32>) else {
            return Err("it does not begin like a manifest".to_owned());
        };
        let sum_at = text.len().saturating_sub(SUM_LINE.len() + 9);
        let sum =
            text.get(sum_at..).and_then(|line| line.strip_prefix(SUM_LINE)?.strip_suffix('\n'));
        let sum =
            sum.and_then(|sum| u32::from_str_radix(sum, 16).ok()).ok_or("its end is missing")?;
        let computed = crc32c::crc32c(&bytes[..sum_at]);
        if sum != computed {
            return Err(format!("its checksum should be {computed:08x}, but it says {sum:08x}"));
        }
        // Later, because a damaged version is none.
        if !(OLDEST..=VERSION).contains(&version) {
            return Ok(Err(version));
        }
        let mut lines = text[..sum_at].lines().skip(1).peekable();
        let mut manifest = Self {
            program: value(&mut lines, "program")?.to_owned(),
            partitions: number(&mut lines, "partitions")?,
            redo: Lsn(number(&mut lines, "redo")?),
            begin: Lsn(number(&mut lines, "begin")?),
            end: Lsn(number(&mut lines, "end")?),
            next_txn: number(&mut lines, "next-txn")?,
            segment_size: number(&mut lines, "segment-size")?,
            files: Vec::new(),
        };
        if number::<usize>(&mut lines, "block")? != BLOCK {
            return Err(format!("its block size is not {BLOCK} bytes"));
        }
        while lines.peek().is_some() {
            manifest.files.push(parse_file(&mut lines)?);
        }
        manifest.check()?;
        Ok(Ok(manifest))
    }

    /// Checks that a backup could have this manifest. File names are used as paths, so they must be
    /// exactly the expected ones.
    fn check(&self) -> Result<(), String> {
        let names = (0..self.partitions).map(data_name).chain([LOG.to_owned()]);
        if !self.files.iter().map(|entry| &entry.name).eq(&names.collect::<Vec<_>>()) {
            return Err(format!(
                "its files are not those of {} partitions and a log",
                self.partitions
            ));
        }
        if let Some(data) = self
            .files
            .iter()
            .find(|file| file.name != LOG && !file.size.is_multiple_of(PAGE_SIZE as u64))
        {
            return Err(format!("{} has an incomplete page", data.name));
        }
        let log = self.files.last().map_or(0, |log| log.size);
        if [self.begin, self.redo, self.end]
            .iter()
            .any(|lsn| lsn.0 > MAX_LOG || !lsn.0.is_multiple_of(8))
        {
            return Err("it has an LSN that is not valid in a log".to_owned());
        }
        if self.begin > self.redo || self.redo > self.end || self.end.0 - self.begin.0 != log {
            return Err(format!(
                "a log of {log} bytes does not match begin {}, redo {} and end {}",
                self.begin, self.redo, self.end
            ));
        }
        let sized = (1..=MAX_SEGMENT).contains(&self.segment_size)
            && self.segment_size.is_multiple_of(4096);
        if self.partitions == 0 || !sized {
            return Err("it has no partitions, or an invalid segment size".to_owned());
        }
        Ok(())
    }

    /// Parses the manifest at `path` of a backup; converts the error.
    pub(super) fn read(bytes: &[u8], path: &str) -> Result<Self, BackupError> {
        let incomplete =
            |why| BackupError::Incomplete(format!("{path} is not a valid manifest: {why}"));
        Self::parse_any(bytes).map_err(incomplete)?.map_err(|version| {
            BackupError::Version(format!(
                "{path} is of format version {version}; this release reads versions {OLDEST} to {VERSION}"
            ))
        })
    }
}

fn parse_file<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<BackupFile, String> {
    let text = value(lines, "file")?;
    let (name, size) = text.rsplit_once(' ').ok_or_else(|| format!("`file {text}` has no size"))?;
    let size: u64 = size.parse().map_err(|_| format!("`file {text}` has no size"))?;
    let blocks = size.div_ceil(BLOCK as u64);
    let mut sums = Vec::new();
    while (sums.len() as u64) < blocks {
        let line = lines
            .next()
            .ok_or_else(|| format!("{name} has {} checksums, not {blocks}", sums.len()))?;
        for sum in line.split(' ') {
            sums.push(
                u32::from_str_radix(sum, 16)
                    .map_err(|_| format!("`{sum}` is not a checksum of {name}"))?,
            );
        }
    }
    if sums.len() as u64 != blocks {
        return Err(format!("{name} has {} checksums, not {blocks}", sums.len()));
    }
    Ok(BackupFile { name: name.to_owned(), size, sums })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let data = |p| BackupFile {
            name: data_name(p),
            size: (30 << 20) + 8192,
            sums: (0..31).map(|i| i * 0x0801_0203).collect(),
        };
        let log = BackupFile { name: LOG.to_owned(), size: 24, sums: vec![7] };
        Manifest {
            program: "1.2.3".to_owned(),
            partitions: 2,
            redo: Lsn(4104),
            begin: Lsn(4096),
            end: Lsn(4120),
            next_txn: 9,
            segment_size: 1 << 20,
            files: vec![data(0), data(1), log],
        }
    }

    #[test]
    fn manifest_round_trips_and_damage_is_detected() {
        let manifest = sample();
        let text = manifest.encode();
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest));
        for at in 0..text.len() {
            let mut bad = text.clone().into_bytes();
            bad[at] ^= 1;
            assert!(Manifest::parse(&bad).is_err(), "byte {at}");
            assert!(Manifest::parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    /// Backups outlive releases: this is format version 3.
    #[test]
    fn the_format_stays() {
        let mut manifest = sample();
        manifest.files.iter_mut().for_each(|f| (f.size, f.sums) = (f.size.min(24), vec![7]));
        let text = manifest.encode();
        let expected = "CLEARWAY-BACKUP 3\nprogram 1.2.3\npartitions 2\nredo 4104\nbegin 4096\nend 4120\nnext-txn 9\n\
            segment-size 1048576\nblock 1048576\nfile data/p0000.data 24\n00000007\nfile data/p0001.data 24\n00000007\n\
            file log 24\n00000007\nsum ";
        assert_eq!(text[..expected.len()], *expected);
    }

    #[test]
    fn older_versions_are_read() {
        let manifest = sample();
        let text = manifest.encode();
        for (version, is_read) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let body = &text[..text.len() - SUM_LINE.len() - 9];
            let body = body.replacen("BACKUP 3\n", &format!("BACKUP {version}\n"), 1);
            let text = format!("{body}{SUM_LINE}{:08x}\n", crc32c::crc32c(body.as_bytes()));
            let parsed = Manifest::parse(text.as_bytes());
            assert_eq!(
                parsed.clone().ok(),
                is_read.then(|| manifest.clone()),
                "{version}: {parsed:?}"
            );
            let read = Manifest::read(text.as_bytes(), "copy/manifest");
            if !is_read {
                let error = read.unwrap_err();
                assert_eq!(error.kind(), crate::error::OpenErrorKind::Refused, "{error}");
                assert!(error.hint().is_some_and(|hint| hint.contains("release")), "{error}");
                // The same with a damaged version is damage.
                let damaged = text.replacen(&format!("BACKUP {version}"), "BACKUP 9", 1);
                let error = Manifest::read(damaged.as_bytes(), "copy/manifest").unwrap_err();
                assert_eq!(error.kind(), crate::error::OpenErrorKind::Damaged, "{error}");
            }
        }
    }

    /// A valid checksum proves that the text is unchanged, not that it is consistent.
    #[test]
    fn inconsistent_manifest_is_refused() {
        type Change = fn(&mut Manifest);
        let changes: [Change; 10] = [
            |m| m.files[0].name = "../p0000.data".to_owned(),
            |m| m.files[2].name = "data/p0002.data".to_owned(),
            |m| m.partitions = 3,
            |m| m.end = Lsn(5000),
            |m| m.redo = Lsn(4000),
            |m| m.segment_size = 0,
            |m| m.segment_size = 1 << 50,
            |m| (m.begin, m.redo, m.end) = (Lsn(u64::MAX - 24), Lsn(u64::MAX - 24), Lsn(u64::MAX)),
            |m| m.files[0].size -= 1,
            |m| m.files[0].sums.push(1),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut manifest = sample();
            change(&mut manifest);
            assert!(Manifest::parse(manifest.encode().as_bytes()).is_err(), "change {i}");
        }
    }
}
