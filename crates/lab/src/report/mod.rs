//! Renders the HTML report: one self-contained page of all stored records.

mod charts;
mod figures;
mod legend;
mod page;
mod pen;
mod plot;
mod ruler;

use crate::experiment::Experiment;
use crate::json;
use crate::result::Record;
use clearway_harness::Res;
#[cfg(test)]
pub use figures::PANELS;
use std::path::{Path, PathBuf};

/// Reads every record in `directory` and writes the page to `out`. Records appear in the order of
/// `experiments`, with their descriptions; those of other experiments follow, with their own.
/// Returns the number of records.
pub fn write(directory: &Path, out: &Path, experiments: &[Experiment]) -> Res<usize> {
    let records = read(directory)?.into_iter();
    let mut records: Vec<Record> = records
        .map(|record| match experiments.iter().find(|e| e.name == record.experiment) {
            Some(experiment) => record.described_by(experiment),
            None => record,
        })
        .collect();
    let place = |record: &Record| experiments.iter().position(|e| e.name == record.experiment);
    let place = |record: &Record| place(record).unwrap_or(experiments.len());
    records.sort_by(|a, b| {
        (place(a), &a.experiment, &a.date).cmp(&(place(b), &b.experiment, &b.date))
    });
    std::fs::write(out, page::html(&records)?).map_err(|e| format!("{}: {e}", out.display()))?;
    Ok(records.len())
}

/// Writes the chart of the README, made from the records in `directory`, to `out`. Returns its
/// path.
pub fn write_figures(directory: &Path, out: &Path) -> Res<PathBuf> {
    figures::write(&read(directory)?, out)
}

fn read(directory: &Path) -> Res<Vec<Record>> {
    let records =
        files(directory)?.iter().map(|path| json::read(path)).collect::<Res<Vec<Record>>>()?;
    if records.is_empty() {
        return Err(format!("{} has no record\nhint: clearway-lab run NAME", directory.display()));
    }
    Ok(records)
}

fn files(directory: &Path) -> Res<Vec<PathBuf>> {
    let listed = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.and_then(Iterator::collect::<std::io::Result<Vec<_>>>),
    };
    let listed = listed.map_err(|e| format!("{}: {e}", directory.display()))?;
    let paths = listed.into_iter().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.extension().is_some_and(|e| e == "json") || json::is_compressed(path))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Findings, example};
    use clearway_harness::tools::TempDir;

    #[test]
    fn page_lists_records_in_experiment_order() {
        let directory = TempDir::new("report").unwrap();
        for name in ["baton", "another", "pgbench"] {
            let record = Record { experiment: name.into(), ..example() };
            json::write(&record, &directory.path().join(format!("{name}.json"))).unwrap();
        }
        let known = ["pgbench", "baton"].map(|name| experiment(name, "How fast?"));
        std::fs::write(directory.path().join("notes.txt"), "not a record").unwrap();
        let out = directory.path().join("report.html");
        assert_eq!(write(directory.path(), &out, &known), Ok(3));
        let page = std::fs::read_to_string(out).unwrap();
        let places: Vec<_> =
            ["pgbench", "baton", "another"].map(|n| page.find(&format!("<h2>{n}</h2>"))).to_vec();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    }

    fn experiment(name: &'static str, question: &'static str) -> Experiment {
        Experiment {
            name,
            about: "",
            question,
            source: "",
            source_found: "half of it",
            limits: &["It has no network."],
            bars: &[],
            run: |_| Ok(Findings::default()),
        }
    }

    #[test]
    fn page_describes_records_as_this_lab_does() {
        let directory = TempDir::new("report").unwrap();
        json::write(&example(), &directory.path().join("spin.json")).unwrap();
        let out = directory.path().join("report.html");
        let page = |experiments: &[Experiment]| {
            write(directory.path(), &out, experiments).unwrap();
            std::fs::read_to_string(&out).unwrap()
        };
        let corrected = page(&[experiment("spin", "How fast, corrected?")]);
        for part in ["How fast, corrected?", "half of it", "It has no network."] {
            assert!(corrected.contains(part), "{part}");
        }
        assert!(!corrected.contains("805 TPS") && !corrected.contains("few cores"));
        let unknown = page(&[experiment("other", "What?")]);
        for part in ["How fast?", "805 TPS", "few cores"] {
            assert!(unknown.contains(part), "{part}");
        }
    }

    #[test]
    fn missing_or_damaged_records_write_no_page() {
        let directory = TempDir::new("report").unwrap();
        let out = directory.path().join("report.html");
        assert!(write(directory.path(), &out, &[]).unwrap_err().contains("hint: clearway-lab run"));
        assert!(
            write(&directory.path().join("none"), &out, &[]).unwrap_err().contains("has no record")
        );
        std::fs::write(directory.path().join("bad.json"), "{").unwrap();
        assert!(write(directory.path(), &out, &[]).unwrap_err().contains("bad.json"));
        assert!(!out.exists());
    }
}
