//! Shared helpers of this crate's tests: a directory on the real disk, files of each kind, blocks.

use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Aligned, DirectDisk, Disk, File, Open, OsDisk};

/// A separate directory on the real disk, removed at the end of the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("clearway-env-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the test's directory is removed");
    }
}

/// A file without a descriptor, as a disk in memory has.
struct WithoutDescriptor(Arc<dyn File>);

impl File for WithoutDescriptor {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

pub(crate) fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

pub(crate) fn content(file: &dyn File) -> Vec<u8> {
    let mut content = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut content, 0).expect("read");
    content
}

/// Runs the check on each kind of file.
pub(crate) fn on_all_files(test: &str, check: impl Fn(Arc<dyn File>)) {
    let scratch = Scratch::new(test);
    let path = scratch.0.join("file");
    let direct = DirectDisk::new(false);
    let open = |disk: &dyn Disk| disk.open_pages(&path, Open::Create).expect("created");
    let files: [&dyn Fn() -> Arc<dyn File>; 3] =
        [&|| open(&OsDisk), &|| open(&direct), &|| Arc::new(WithoutDescriptor(open(&OsDisk)))];
    for file in files {
        check(file());
        OsDisk.remove(&path).expect("removed");
    }
    if direct.refused() {
        writeln!(io::stderr(), "SKIPPED direct I/O: the file system does not support it")
            .expect("stderr");
    }
}

/// Blocks of 4096 bytes, each filled with its number.
pub(crate) fn blocks(numbers: std::ops::Range<u8>) -> Aligned {
    let mut bytes = Aligned::new(numbers.len() * 4096);
    bytes.chunks_mut(4096).zip(numbers).for_each(|(block, number)| block.fill(number));
    bytes
}
