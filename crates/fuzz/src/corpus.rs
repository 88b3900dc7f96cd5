//! The corpus: inputs in files.

use std::path::{Path, PathBuf};

/// Returns the directory of a target's inputs.
pub fn dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Returns names and contents of a target's inputs, sorted by name.
pub fn read(target: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = std::fs::read_dir(dir(target))?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?))
        })
        .collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}
