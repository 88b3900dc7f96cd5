//! Records as files: JSON with a format number and a checksum over the content.
//!
//! ```json
//! { "format": 1, "checksum": "1a2b3c4d", "record": { ... } }
//! ```
//!
//! The checksum is CRC-32C over the record's canonical text (no whitespace, sorted keys).
//! Reformatting a file keeps it valid, but a changed number is detected. A file is replaced
//! atomically. NaN is `null` in JSON.

use crate::result::Record;
use clearway_harness::Res;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;

/// The file format. A change of [`Record`] that an older lab would misread needs a new number.
const FORMAT: u64 = 1;
/// Maximum size of a record's text in bytes; a larger compressed file is damaged.
const LARGEST: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct File {
    format: u64,
    checksum: String,
    record: Value,
}

/// Returns the CRC-32C of a value's canonical text, as 8 hexadecimal digits.
pub fn checksum(value: &Value) -> String {
    format!("{:08x}", crc32c::crc32c(value.to_string().as_bytes()))
}

/// Returns true for a file that [`write()`] compresses: `NAME.json.gz`.
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Compresses deterministically: gzip without a time or a name.
fn compressed(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// Writes a record, compressed if the path ends in `.gz`.
pub fn write(record: &Record, path: &Path) -> Res<()> {
    let text = encode(record)?;
    let text = if is_compressed(path) { compressed(&text) } else { Ok(text.into_bytes()) };
    let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
    let whole = path.with_extension("json.new");
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = written
        .and_then(|()| std::fs::write(&whole, text))
        .and_then(|()| std::fs::rename(&whole, path));
    written.map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a record, compressed or not. Refuses a damaged file or another format.
pub fn read(path: &Path) -> Res<Record> {
    let text = match is_compressed(path) {
        true => std::fs::File::open(path).and_then(|file| {
            let mut text = String::new();
            GzDecoder::new(file).take(LARGEST).read_to_string(&mut text).map(|_| text)
        }),
        false => std::fs::read_to_string(path),
    };
    let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
    let hint = "hint: delete the file, or run the experiment again";
    decode(&text).map_err(|why| format!("{}: {why}\n{hint}", path.display()))
}

fn encode(record: &Record) -> Res<String> {
    let record = serde_json::to_value(record).map_err(|e| e.to_string())?;
    let file = File { format: FORMAT, checksum: checksum(&record), record };
    serde_json::to_string_pretty(&file).map_err(|e| e.to_string())
}

fn decode(text: &str) -> Res<Record> {
    let content: Value =
        serde_json::from_str(text).map_err(|e| format!("damaged, or not a lab record: {e}"))?;
    // Of another format, only the number can be read.
    match content.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(format!("format {other}, but this lab reads and writes format {FORMAT}"));
        }
        None => return Err("not a lab record: it has no format".into()),
    }
    let file: File = serde_json::from_value(content).map_err(|e| format!("damaged: {e}"))?;
    let found = checksum(&file.record);
    if found != file.checksum {
        return Err(format!(
            "damaged: its content has checksum {found}, expected {}",
            file.checksum
        ));
    }
    serde_json::from_value(file.record).map_err(|e| format!("not understood: {e}"))
}

/// Deserializes a number; `null` becomes NaN.
pub fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Deserializes numbers; `null` becomes NaN.
pub fn numbers_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(from)?;
    Ok(numbers.into_iter().map(|n| n.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::example;
    use clearway_harness::tools::TempDir;

    #[test]
    fn records_survive_a_round_trip() {
        let directory = TempDir::new("record").unwrap();
        let path = directory.path().join("deep/spin.json");
        write(&example(), &path).unwrap();
        let read = read(&path).unwrap();
        // NaN differs from itself, so the texts are compared.
        assert_eq!(encode(&read).unwrap(), encode(&example()).unwrap());
        assert!(read.findings.samples[0].series[0].points[0].y[2].is_nan());
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no other file is left"
        );
    }

    #[test]
    fn compressed_records_survive_a_round_trip() {
        let directory = TempDir::new("record").unwrap();
        let paths = ["a.json.gz", "b.json.gz"].map(|name| directory.path().join(name));
        for path in &paths {
            write(&example(), path).unwrap();
        }
        let bytes = paths.each_ref().map(|path| std::fs::read(path).unwrap());
        assert!(bytes[0] == bytes[1] && bytes[0].len() < encode(&example()).unwrap().len());
        assert_eq!(encode(&read(&paths[0]).unwrap()).unwrap(), encode(&example()).unwrap());
        std::fs::write(&paths[0], &bytes[0][..bytes[0].len() / 2]).unwrap();
        assert!(read(&paths[0]).unwrap_err().contains("hint:") || read(&paths[0]).is_err());
    }

    #[test]
    fn older_records_without_a_time_are_read() {
        let old = Record { seconds_taken: None, ..example() };
        let text = encode(&old).unwrap();
        assert!(!text.contains("seconds_taken") && decode(&text).unwrap().seconds_taken.is_none());
        let read = decode(&encode(&example()).unwrap()).unwrap();
        assert_eq!(read.seconds_taken, example().seconds_taken);
    }

    #[test]
    fn numbers_survive_a_round_trip() {
        let mut record = example();
        let numbers = vec![
            0.1 + 0.2,
            1.0 / 3.0,
            f64::MIN_POSITIVE,
            f64::MAX,
            5e-324,
            -0.0,
            123_456_789.123_456_78,
        ];
        record.findings.samples[0].series[0].points[0].y = numbers.clone();
        let read = decode(&encode(&record).unwrap()).unwrap();
        assert_eq!(read.findings.samples[0].series[0].points[0].y, numbers);
    }

    #[test]
    fn reformatted_files_are_accepted() {
        let text = encode(&example()).unwrap();
        let dense = serde_json::from_str::<Value>(&text).unwrap().to_string();
        assert_ne!(dense, text);
        decode(&dense).unwrap();
    }

    #[test]
    fn changed_numbers_are_detected() {
        let text = encode(&example()).unwrap();
        let changed = text.replacen("3652.0", "3653.0", 1);
        assert_ne!(changed, text);
        let why = decode(&changed).unwrap_err();
        assert!(why.contains("damaged") && why.contains("checksum"), "{why}");
    }

    #[test]
    fn torn_and_foreign_files_are_refused() {
        let text = encode(&example()).unwrap();
        let why = |text: &str| decode(text).unwrap_err();
        assert!(why(&text[..text.len() / 2]).contains("damaged"));
        assert!(why("").contains("damaged"));
        let newer = text.replacen("\"format\": 1", "\"format\": 2", 1);
        assert!(why(&newer).contains("format 2, but this lab reads and writes format 1"));
        assert!(why("{\"a\": 1}").contains("no format"));
        assert!(why("[1]").contains("no format"));
        assert!(why("{\"format\": 1}").contains("damaged"));
    }

    #[test]
    fn refusals_name_the_file_and_a_hint() {
        let directory = TempDir::new("record").unwrap();
        let path = directory.path().join("spin.json");
        std::fs::write(&path, "{}").unwrap();
        let why = read(&path).unwrap_err();
        assert!(
            why.starts_with(&path.display().to_string()) && why.contains("hint: delete the file"),
            "{why}"
        );
    }
}
