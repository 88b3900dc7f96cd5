//! A backup with changed files, with or without a manifest that matches them. It is restored, or
//! the restore fails with an error. A restored directory passes the check, and opens or fails with
//! an error.

use super::Image;
use super::directory::{LIVE, base, change_files, visit};
use crate::input::Input;
use clearway_storage::backup::{restore, take_offline, verify};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;

/// Corrects the manifest's checksums.
pub(crate) const SEAL: u8 = 1;
const DIR: &str = "backup";

/// Returns a backup of the directory that other targets use.
pub(crate) fn base_backup() -> &'static Image {
    static BASE: OnceLock<Image> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = base().disk();
        let mut step = |_| ControlFlow::Continue(());
        take_offline(disk.clone(), Path::new(LIVE), Path::new(DIR), "0", &mut step)
            .expect("a sound directory");
        Image::of(&*disk, &["backup", "backup/data"].map(Path::new)).expect("a disk in memory")
    })
}

/// Runs an input: flags, then changes as for a directory.
pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let mut image = base_backup().clone();
    change_files(&mut image, &mut input);
    if flags & SEAL != 0 {
        seal(&mut image);
    }
    let disk = image.disk();
    let mut step = |_| ControlFlow::Continue(());
    let sound = verify(disk.clone(), Path::new(DIR), &mut step).is_ok();
    let restored = restore(disk.clone(), Path::new(DIR), Path::new(LIVE), &mut step).is_ok();
    assert!(sound || !restored, "a restored directory does not pass the check");
    if restored {
        visit(&disk);
    }
}

/// Returns the changed manifest's text with correct checksums of the files and of itself. The files
/// here have one block each.
fn seal(image: &mut Image) {
    let Some(at) = image.0.iter().position(|(path, _)| path.ends_with("manifest")) else { return };
    let text = String::from_utf8_lossy(&image.0[at].1).into_owned();
    let mut out = String::new();
    let mut sum = None;
    for line in text.lines().filter(|line| !line.starts_with("sum ")) {
        let name = line.strip_prefix("file ").and_then(|rest| rest.split(' ').next());
        out.push_str(sum.take().as_deref().unwrap_or(line));
        out.push('\n');
        let file = name.and_then(|name| image.0.iter().find(|(path, _)| path.ends_with(name)));
        sum = file.map(|(_, bytes)| format!("{:08x}", crc32c::crc32c(bytes)));
    }
    out.push_str(&format!("sum {:08x}\n", crc32c::crc32c(out.as_bytes())));
    image.0[at].1 = out.into_bytes();
}
