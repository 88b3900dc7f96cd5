//! Runs experiments one after the other, skips those that were run, and knows how long they take.

use crate::experiment::{Experiment, Part, Task};
use crate::machine::{self, Machine};
use crate::result::Record;
use crate::table::{Cell, Column, Table};
use crate::{file, json};
use clearway_harness::Res;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where records are kept, and which experiments are skipped.
pub struct Keeping<'a> {
    /// Directory of the records.
    pub directory: &'a Path,
    /// Another file for the record of a single experiment.
    pub json: Option<PathBuf>,
    /// Whether to skip experiments that have a whole record of [`Self::commit`].
    pub resume: bool,
    /// The commit of the lab and the checkout.
    pub commit: Option<String>,
}

/// Returns the commit that both the lab and the checkout have; `None` if there is none, or one of
/// them has uncommitted changes.
pub fn commit() -> Option<String> {
    let built_from = machine::BUILT_FROM;
    let is_commit = built_from != "unknown" && !built_from.ends_with("-dirty");
    (is_commit && machine::checkout() == built_from).then(|| built_from.to_owned())
}

/// How an experiment ended.
enum End {
    Ok,
    Skipped,
    Failed(String),
}

/// Runs every experiment, even if one fails. If there are several, prints a summary. Returns why
/// the only one failed, or how many did.
pub fn run(experiments: &[&Experiment], task: &Task, keeping: &Keeping<'_>) -> Res<()> {
    let mut ends: Vec<(&str, f64, End)> = Vec::new();
    for experiment in experiments {
        let began = Instant::now();
        let end = match keeping.has(experiment, task) {
            true => End::Skipped,
            false => one(experiment, task, keeping).map_or_else(End::Failed, |()| End::Ok),
        };
        if let (End::Failed(why), true) = (&end, experiments.len() > 1) {
            eprintln!("{why}");
        }
        ends.push((experiment.name, began.elapsed().as_secs_f64(), end));
    }
    if let [(.., end)] = &mut ends[..] {
        return match std::mem::replace(end, End::Ok) {
            End::Ok => Ok(()),
            End::Failed(why) => Err(why),
            End::Skipped => {
                println!("skipped: {}", skipped(keeping));
                Ok(())
            }
        };
    }
    println!("\n{}", summary(&ends, keeping));
    let failed = ends.iter().filter(|(.., end)| matches!(end, End::Failed(_))).count();
    if failed > 0 { Err(format!("{failed} of {} experiments failed", ends.len())) } else { Ok(()) }
}

/// Runs an experiment and keeps its record. A panic is a failure, too: others may still succeed.
fn one(experiment: &Experiment, task: &Task, keeping: &Keeping<'_>) -> Res<()> {
    let made = catch_unwind(AssertUnwindSafe(|| Record::make(experiment, task)));
    let record = made.unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().map(String::as_str);
        let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        Err(format!("{}: it panicked: {why}", experiment.name))
    })?;
    println!("{record}");
    let path = keeping.json.clone().unwrap_or_else(|| keeping.directory.join(file(experiment)));
    json::write(&record, &path)?;
    println!("kept in {}", path.display());
    Ok(())
}

impl Keeping<'_> {
    /// Returns true if the experiment has a whole record of this commit. Its options are not
    /// compared. A file that cannot be read is no record.
    fn has(&self, experiment: &Experiment, task: &Task) -> bool {
        let Some(commit) = self.commit.as_deref().filter(|_| self.resume) else { return false };
        let is_same = |record: &Record| {
            record.experiment == experiment.name
                && record.commit == commit
                && record.checkout.as_deref() == Some(commit)
                && record.quick == task.options.quick
                && record.only.is_none()
                && task.part == Part::Whole
                && !record.findings.configuration.contains_key(crate::result::BINARY)
        };
        json::read(&self.directory.join(file(experiment))).is_ok_and(|record| is_same(&record))
    }
}

fn skipped(keeping: &Keeping<'_>) -> String {
    format!("its record is of commit {}", keeping.commit.as_deref().unwrap_or_default())
}

fn summary(ends: &[(&str, f64, End)], keeping: &Keeping<'_>) -> Table {
    let row = |(name, seconds, end): &(&str, f64, End)| {
        let result = match end {
            End::Ok => "ok".into(),
            End::Skipped => format!("skipped: {}", skipped(keeping)),
            End::Failed(why) => format!("failed: {}", why.replace('\n', "; ")),
        };
        vec![Cell::text(*name), Cell::number(*seconds, 1), Cell::text(result)]
    };
    Table {
        title: "Summary".into(),
        columns: vec![
            Column::ours("experiment", ""),
            Column::ours("time", "s"),
            Column::ours("result", ""),
        ],
        rows: ends.iter().map(row).collect(),
    }
}

/// The time of a whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Length {
    seconds: f64,
    /// Whether a machine with this processor and number of cores has run it.
    is_here: bool,
    text: String,
}

/// Returns the time of an experiment's whole run: of the first record that has it among these
/// directories, of this kind of machine if possible.
pub fn length(experiment: &Experiment, directories: &[PathBuf], here: &Machine) -> Option<Length> {
    let paths = directories.iter().flat_map(|directory| {
        [file(experiment), file(experiment) + ".gz"].map(|file| directory.join(file))
    });
    let of = |record: Record| {
        let whole = !record.quick && record.only.is_none();
        let seconds = record.seconds_taken.filter(|_| whole)?;
        let there = &record.machine;
        let is_here = there.cpu == here.cpu && there.cores == here.cores;
        let machine = if is_here {
            String::new()
        } else {
            format!(", on {} cores of {}", there.cores, there.cpu)
        };
        let text = format!("{} (commit {}{machine})", shown(seconds), record.commit);
        Some(Length { seconds, is_here, text })
    };
    let found = paths.filter(|path| path.exists()).filter_map(|path| of(json::read(&path).ok()?));
    let found: Vec<Length> = found.collect();
    found.iter().find(|length| length.is_here).or(found.first()).cloned()
}

/// Returns what to say about the time of a whole run.
pub fn described(length: Option<&Length>) -> String {
    let known = length.map(|length| format!("a whole run took {}", length.text));
    known.unwrap_or_else(|| "no record has the time of a whole run".into())
}

/// Returns the time of whole runs together.
pub fn total(lengths: &[Option<Length>]) -> String {
    let known = lengths.iter().flatten();
    let all = shown(known.clone().map(|length| length.seconds).sum());
    match (known.count(), lengths.len()) {
        (0, _) => described(None),
        (known, of) if known == of => format!("whole runs of all {of}: {all}"),
        (known, of) => format!("whole runs of {known} of {of}: {all}; no record has the others'"),
    }
}

/// Formats seconds with two units.
fn shown(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match () {
        () if seconds < 99.5 => format!("{seconds:.0} s"),
        () if minutes < 100 => format!("{minutes} min"),
        () => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Options;
    use crate::result::{self, Findings};
    use clearway_harness::tools::TempDir;

    const FINE: Experiment = Experiment {
        name: "made-up/fine",
        about: "",
        question: "",
        source: "",
        source_found: "",
        limits: &["It measures nothing."],
        bars: &[],
        run: |_| Ok(Findings::default()),
    };
    const FAILING: Experiment = Experiment {
        name: "made-up/failing",
        run: |_| Err("no disk\nhint: buy one".into()),
        ..FINE
    };
    const PANICKING: Experiment =
        Experiment { name: "made-up/panicking", run: |_| panic!("lost {}", "rows"), ..FINE };
    /// Must not run.
    const SKIPPED: Experiment = Experiment { name: "made-up/fine", ..PANICKING };

    fn task(quick: bool, part: Part) -> Task {
        let options =
            Options { quick, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        Task { options, part }
    }

    fn keeping<'a>(directory: &'a Path, resume: bool, commit: Option<&str>) -> Keeping<'a> {
        Keeping { directory, json: None, resume, commit: commit.map(str::to_owned) }
    }

    #[test]
    fn a_failure_does_not_stop_the_others() {
        let directory = TempDir::new("runs").unwrap();
        let keeping = keeping(directory.path(), false, None);
        let task = task(false, Part::Whole);
        let all = run(&[&FAILING, &PANICKING, &FINE], &task, &keeping);
        assert_eq!(all, Err("2 of 3 experiments failed".into()));
        let kept = std::fs::read_dir(directory.path()).unwrap();
        let kept: Vec<_> = kept.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(kept, ["made-up-fine.json"]);
        assert_eq!(run(&[&FINE, &FINE], &task, &keeping), Ok(()));
        let why = "made-up/failing: no disk\nhint: buy one".to_owned();
        assert_eq!(run(&[&FAILING], &task, &keeping), Err(why));
        let why = "made-up/panicking: it panicked: lost rows".to_owned();
        assert_eq!(run(&[&PANICKING], &task, &keeping), Err(why));
    }

    #[test]
    fn summaries_name_each_result() {
        let ends = [
            ("a", 12.34, End::Ok),
            ("b", 0.0, End::Skipped),
            ("c", 1.0, End::Failed("no disk\nhint: buy one".into())),
        ];
        let text = summary(&ends, &keeping(Path::new(""), true, Some("abc123"))).to_string();
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "a 12.3 ok",
            "b 0.0 skipped: its record is of commit abc123",
            "c 1.0 failed: no disk; hint: buy one",
        ];
        assert_eq!(lines[3..], expected);
    }

    #[test]
    fn resumed_runs_skip_whole_records_of_the_commit() {
        let directory = TempDir::new("runs").unwrap();
        let path = directory.path().join("made-up-fine.json");
        let whole = Record { experiment: FINE.name.into(), ..result::example() };
        let has = |record: &Record, keeping: &Keeping<'_>, task: &Task| {
            json::write(record, &path).unwrap();
            keeping.has(&FINE, task)
        };
        let task_of = task;
        let task = task(false, Part::Whole);
        let resumed = keeping(directory.path(), true, Some("abc123"));
        assert!(has(&whole, &resumed, &task));
        assert_eq!(run(&[&SKIPPED], &task, &resumed), Ok(()), "it would panic");
        assert_eq!(run(&[&SKIPPED, &SKIPPED], &task, &resumed), Ok(()), "it would panic");
        let mut with_binary = whole.clone();
        with_binary.findings.configuration.insert(result::BINARY.into(), "another".into());
        let others = [
            Record { quick: true, ..whole.clone() },
            Record { only: Some("a".into()), ..whole.clone() },
            Record { commit: "abc124".into(), ..whole.clone() },
            Record { checkout: Some("abc124".into()), ..whole.clone() },
            Record { checkout: None, ..whole.clone() },
            Record { experiment: "other".into(), ..whole.clone() },
            with_binary,
        ];
        for record in &others {
            assert!(!has(record, &resumed, &task), "{record}");
        }
        assert!(has(&others[0], &resumed, &task_of(true, Part::Whole)), "both are quick");
        assert!(!has(&whole, &resumed, &task_of(false, Part::Only("a".into()))));
        assert!(!has(&whole, &keeping(directory.path(), false, Some("abc123")), &task));
        assert!(!has(&whole, &keeping(directory.path(), true, None), &task), "uncommitted changes");
        std::fs::write(&path, "damaged").unwrap();
        assert!(!resumed.has(&FINE, &task));
        std::fs::remove_file(&path).unwrap();
        assert!(!resumed.has(&FINE, &task));
    }

    #[test]
    fn the_time_of_a_whole_run_is_known_from_records() {
        let directory = TempDir::new("runs").unwrap();
        let [kept, published] = ["kept", "published"].map(|name| directory.path().join(name));
        let both = [kept.clone(), published.clone()];
        let example = Record { experiment: FINE.name.into(), ..result::example() };
        let here = example.machine.clone();
        let length = || length(&FINE, &both, &here);
        assert_eq!(described(length().as_ref()), "no record has the time of a whole run");
        let other = Machine { cores: 64, ..here.clone() };
        let other = Record { seconds_taken: Some(7_380.0), machine: other, ..example.clone() };
        json::write(&other, &kept.join("made-up-fine.json")).unwrap();
        let expected = "a whole run took 2 h 3 min (commit abc123, on 64 cores of a <chip>)";
        assert_eq!(described(length().as_ref()), expected);
        let own = Record { seconds_taken: Some(600.0), ..example.clone() };
        json::write(&own, &published.join("made-up-fine.json.gz")).unwrap();
        assert_eq!(described(length().as_ref()), "a whole run took 10 min (commit abc123)");
        let lengths = [length(), None, length()];
        assert_eq!(total(&lengths), "whole runs of 2 of 3: 20 min; no record has the others'");
        assert_eq!(total(&lengths[..1]), "whole runs of all 1: 10 min");
        assert_eq!(total(&lengths[1..2]), "no record has the time of a whole run");
        for partial in [
            Record { quick: true, ..own.clone() },
            Record { only: Some("a".into()), ..own.clone() },
            Record { seconds_taken: None, ..own },
        ] {
            json::write(&partial, &published.join("made-up-fine.json.gz")).unwrap();
            assert_eq!(described(length().as_ref()), expected);
        }
    }

    #[test]
    fn times_have_readable_units() {
        let shown = [0.4, 99.4, 99.6, 5_960.0, 7_380.0].map(shown);
        assert_eq!(shown, ["0 s", "99 s", "2 min", "99 min", "2 h 3 min"]);
    }
}
