//! A data directory as one small file: a log segment is mostly zeros.
//!
//! Little-endian. For each file: u16 length of its name, its name relative to the directory, u64
//! length of the file, u32 number of runs. For each run: u64 offset, u32 length, and the bytes.
//! Bytes outside of runs are zeros.

use std::path::{Path, PathBuf};

/// Number of zeros that ends a run.
const GAP: usize = 32;

/// The files below `dir`, sorted.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                // Skips the socket that a killed server leaves.
                found.push(path.strip_prefix(dir).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The offset of the last non-zero byte of a file.
pub fn last_nonzero(path: &Path) -> u64 {
    std::fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64
}

fn runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        match runs.last_mut() {
            Some((_, end)) if at < *end + GAP => *end = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

pub fn pack(dir: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for path in files(dir) {
        let (name, bytes) = (path.to_str().unwrap(), std::fs::read(dir.join(&path)).unwrap());
        let runs = runs(&bytes);
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(&(runs.len() as u32).to_le_bytes());
        for (from, to) in runs {
            out.extend_from_slice(&(from as u64).to_le_bytes());
            out.extend_from_slice(&((to - from) as u32).to_le_bytes());
            out.extend_from_slice(&bytes[from..to]);
        }
    }
    out
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, n: usize) -> Vec<u8> {
        let (front, rest) = self.0.split_at(n);
        self.0 = rest;
        front.to_vec()
    }
    fn number(&mut self, n: usize) -> u64 {
        let mut bytes = self.take(n);
        bytes.resize(8, 0);
        u64::from_le_bytes(bytes.try_into().unwrap())
    }
}

pub fn unpack(packed: &[u8], dir: &Path) {
    let mut reader = Reader(packed);
    while !reader.0.is_empty() {
        let len = reader.number(2) as usize;
        let path = dir.join(String::from_utf8(reader.take(len)).unwrap());
        let mut bytes = vec![0; reader.number(8) as usize];
        for _ in 0..reader.number(4) {
            let (at, len) = (reader.number(8) as usize, reader.number(4) as usize);
            bytes[at..at + len].copy_from_slice(&reader.take(len));
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
