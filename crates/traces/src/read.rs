//! Readers of trace files. An error in a file names the position.
//!
//! | ending | compression | content |
//! |---|---|---|
//! | `.trace.gz` | gzip | one decimal page number per line; blank lines and `*` are skipped |
//! | `.lis.zst` | zstd | `start count ignored sequence` per line: pages `start .. start + count` |
//! | `.trace.xz` | xz | big-endian 32-bit numbers, no header |

use crate::Trace;
use std::fmt;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum unpacked size in bytes, and maximum number of accesses; more is refused.
const MAX_BYTES: u64 = 1 << 30;
const MAX_ACCESSES: u64 = 1 << 28;

/// An error in a trace file.
#[derive(Debug)]
pub struct TraceError {
    path: PathBuf,
    what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for TraceError {}

/// Reads the trace in a file; the extension determines its format.
pub fn read(name: &str, path: &Path) -> Result<Trace, TraceError> {
    let keys = read_keys(path).map_err(|what| TraceError { path: path.to_owned(), what })?;
    Ok(Trace::new(name, keys))
}

fn read_keys(path: &Path) -> Result<Vec<u64>, String> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let packed = fs::read(path).map_err(|error| error.to_string())?;
    if file.ends_with(".trace.gz") {
        parse_lirs(&unpack_gzip(&packed)?)
    } else if file.ends_with(".lis.zst") {
        parse_arc(&unpack_zstd(&packed)?)
    } else if file.ends_with(".trace.xz") {
        parse_i32be(&unpack_xz(&packed)?)
    } else {
        Err("not a trace: expected the extension .trace.gz, .lis.zst or .trace.xz".into())
    }
}

fn unpack_gzip(packed: &[u8]) -> Result<Vec<u8>, String> {
    unpack("gzip", flate2::read::MultiGzDecoder::new(packed))
}

fn unpack_zstd(packed: &[u8]) -> Result<Vec<u8>, String> {
    let reader = ruzstd::decoding::StreamingDecoder::new(packed)
        .map_err(|error| format!("zstd: {error}"))?;
    unpack("zstd", reader)
}

fn unpack(format: &str, reader: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Bounded::default();
    let copied = io::copy(&mut reader.take(MAX_BYTES + 1), &mut bytes);
    copied.map_err(|error| format!("{format}: {error}, after {} unpacked bytes", bytes.0.len()))?;
    Ok(bytes.0)
}

fn unpack_xz(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Bounded::default();
    let unpacked = lzma_rs::xz_decompress(&mut BufReader::new(packed), &mut bytes);
    unpacked.map_err(|error| format!("xz: {error}, after {} unpacked bytes", bytes.0.len()))?;
    Ok(bytes.0)
}

/// A buffer that refuses more than [`MAX_BYTES`] bytes.
#[derive(Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("more than {MAX_BYTES} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines with their numbers, without surrounding whitespace (lines may end in CRLF).
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .enumerate()
        .map(|(at, line)| (at + 1, line))
}

fn parse_number(field: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(field?).ok()?.parse().ok()
}

fn parse_lirs(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let accesses = lines(bytes).filter(|(_, line)| !line.is_empty() && *line != b"*");
    let key = |(at, line)| {
        parse_number(Some(line)).ok_or_else(|| format!("line {at}: not a page number"))
    };
    accesses.map(key).collect()
}

fn parse_arc(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let mut keys = Vec::new();
    for (at, line) in lines(bytes).filter(|(_, line)| !line.is_empty()) {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let (start, count) = (parse_number(fields.next()), parse_number(fields.next()));
        let (Some(start), Some(count)) = (start, count) else {
            return Err(format!("line {at}: expected a start and a count"));
        };
        if count > MAX_ACCESSES - keys.len() as u64 {
            return Err(format!("line {at}: more than {MAX_ACCESSES} accesses"));
        }
        let end = start
            .checked_add(count)
            .ok_or_else(|| format!("line {at}: page numbers beyond 64 bits"))?;
        keys.extend(start..end);
    }
    Ok(keys)
}

fn parse_i32be(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let (keys, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!("byte {}: the last number is truncated", bytes.len() - rest.len()));
    }
    Ok(keys.iter().map(|key| u32::from_be_bytes(*key).into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_testkit::Rng;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut BufReader::new(bytes), &mut packed).unwrap();
        packed
    }

    #[test]
    fn trace_formats_are_parsed() {
        assert_eq!(
            parse_lirs(&unpack_gzip(&gzip(b"7\r\n\r\n*\n 12\n7")).unwrap()),
            Ok(vec![7, 12, 7])
        );
        assert_eq!(
            parse_arc(&unpack_zstd(&zstd(b"5 3 0 1\n\n90 1 0 2\n")).unwrap()),
            Ok(vec![5, 6, 7, 90])
        );
        assert_eq!(
            parse_i32be(&unpack_xz(&xz(&[0, 0, 1, 2, 255, 255, 255, 255])).unwrap()),
            Ok(vec![258, u32::MAX.into()])
        );
    }

    #[test]
    fn pages_are_renumbered_in_order_of_first_access() {
        let trace = Trace::new("t", [9, 3, 9, 1 << 40]);
        assert_eq!((trace.pages.as_slice(), trace.distinct), (&[0, 1, 0, 2][..], 3));
        assert_eq!(trace.hit_percent(3), 25.0);
        assert_eq!(Trace::new("none", []).hit_percent(0), 0.0);
    }

    #[test]
    fn errors_name_the_position() {
        let said = |result: Result<Vec<u64>, String>, part: &str| {
            let error = result.unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        said(parse_lirs(b"1\nx\n"), "line 2");
        said(parse_lirs(b"1\n2\n-3"), "line 3");
        said(parse_arc(b"1 2 0 0\n3\n"), "line 2");
        said(parse_arc(b"0 99999999999 0 0\n"), "line 1: more than");
        said(parse_arc(b"18446744073709551615 1 0 0\n"), "line 1: page numbers");
        said(parse_i32be(&[0, 0, 0, 1, 2]), "byte 4");
        let error = read("none", Path::new("none.trace.gz")).unwrap_err().to_string();
        assert!(error.starts_with("none.trace.gz: "), "{error}");
    }

    /// A damaged file gives an error or some trace, and never a panic.
    #[test]
    fn damaged_files_never_panic() {
        let text: Vec<u8> =
            (0..200u32).flat_map(|n| format!("{} 2 0 {n}\n", n * n % 97).into_bytes()).collect();
        let packed = [gzip(&text), zstd(&text), xz(&text)];
        let unpackers = [unpack_gzip, unpack_zstd, unpack_xz];
        let mut rng = Rng::new(17);
        for (packed, unpack) in packed.iter().zip(unpackers) {
            assert!(unpack(&packed[..packed.len() / 2]).is_err(), "a file cut in half");
            assert!(unpack(b"").is_err() && unpack(b"hello, world").is_err());
            for _ in 0..2000 {
                let mut damaged = packed.clone();
                for _ in 0..=rng.below(3) {
                    let at = rng.below(damaged.len() as u64) as usize;
                    damaged[at] ^= 1 << rng.below(8);
                }
                damaged.truncate(packed.len() - rng.below(4) as usize);
                if let Ok(bytes) = unpack(&damaged) {
                    let _ = (parse_lirs(&bytes), parse_arc(&bytes), parse_i32be(&bytes));
                }
            }
        }
    }
}
