//! What is shown of an interval: lines of plain text.

use super::blocked::Blocked;
use super::sample::{Interval, Line};

/// Lines that the waits for locks may have where the output is no terminal.
const BLOCKED: usize = 100;

/// The lines, at most so many, and which of them is the head of the table.
pub(super) fn lines(
    server: &str,
    interval: &Interval,
    blocked: &Blocked,
    most: usize,
) -> (Vec<String>, usize) {
    let Interval { state, seconds, counts, lines } = interval;
    let per_s = |count: f64| short(count / seconds);
    let lost_us: f64 = lines.iter().map(|line| line.waits.total_us).sum();
    let mut out = vec![
        format!(
            "clearway {} at {server}, up {}: {} sessions, {} of them wait for the log",
            state.version,
            duration(state.uptime_s),
            state.sessions,
            state.commits_waiting
        ),
        format!(
            "{} transactions/s committed, {} aborted/s, {} statements/s, {} errors/s, {}B/s in, {}B/s out",
            per_s(counts.committed),
            per_s(counts.aborted),
            per_s(counts.statements),
            per_s(counts.errors),
            per_s(counts.received),
            per_s(counts.sent)
        ),
        format!(
            "log {}B/s, {} syncs/s; pages {} read/s, {} written/s; pool {} frames, {} used, {} dirty",
            per_s(counts.log_bytes),
            per_s(counts.log_syncs),
            per_s(counts.page_reads),
            per_s(counts.page_writes),
            state.pool_frames,
            state.pool_frames - state.pool_free,
            state.pool_dirty
        ),
        format!("{} ms/s lost in waits for latches and locks", short(lost_us / 1e3 / seconds)),
        String::new(),
    ];
    if blocked.waiters > 0 {
        let s = if blocked.waiters == 1 { " waits" } else { "s wait" };
        out.push(format!(
            "{} session{s} for a lock, each below the one that blocks it:",
            blocked.waiters
        ));
        // Half of the screen.
        out.extend(blocked.lines((most / 2).saturating_sub(out.len()).clamp(1, BLOCKED)));
        out.push(String::new());
    }
    let head = out.len();
    out.push(format!(
        "{:>9} {:>9} {:>11} {:>9} {:>9} {:>9}  {:<28} CALLER",
        "LOST ms/s", "WAITS/s", "REQUESTS/s", "PER MILL.", "MEAN us", "P99 us", "NAME"
    ));
    out.extend(lines.iter().map(|line| row(line, *seconds)));
    out.truncate(most);
    // What a server says is shown, never obeyed: no control characters reach the terminal.
    let plain =
        out.iter().map(|line| line.chars().map(|c| if c.is_control() { '?' } else { c }).collect());
    (plain.collect(), head)
}

fn row(line: &Line, seconds: f64) -> String {
    let Line { name, caller, requests, waits } = line;
    let asked = short(requests / seconds);
    if waits.contended == 0.0 {
        return format!(
            "{:>9} {:>9} {asked:>11} {:>9} {:>9} {:>9}  {name}",
            "-", "-", "-", "-", "-"
        );
    }
    format!(
        "{:>9} {:>9} {asked:>11} {:>9} {:>9} {:>9}  {name:<28} {caller}",
        short(waits.total_us / 1e3 / seconds),
        short(waits.contended / seconds),
        short(waits.contended * 1e6 / requests.max(1.0)),
        short(waits.total_us / waits.contended),
        short(waits.p99_us)
    )
}

/// A figure with three digits or more, in thousands, millions and so on where it is large.
fn short(value: f64) -> String {
    let (value, unit) = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")]
        .into_iter()
        .find(|(at, _)| value >= *at)
        .map_or((value, ""), |(at, unit)| {
            (if unit == "k" { value / 1e3 } else { value / at }, unit)
        });
    let digits = match value {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

/// A time as days, hours, minutes and seconds.
fn duration(seconds: f64) -> String {
    let s = seconds as u64;
    let clock = format!("{}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60);
    match s / 86_400 {
        0 => clock,
        days => format!("{days} d {clock}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocked::tests::blocked;
    use super::super::sample::tests::sample;
    use super::*;

    #[test]
    fn the_first_row_is_that_of_the_most_time_lost() {
        let before = sample(10.0, 0, &[]);
        let after = sample(
            12.0,
            50_000,
            &["a.little,f.rs:1,100,1,10,10", "a.lot,g.rs:2,1000,10,4000,900", "none,,7,0,0,0"],
        );
        let interval = after.since(&before);
        let (shown, head) = lines("there\u{1b}[2J", &interval, &blocked(&[]), 8);
        assert!(
            shown[0].starts_with("clearway 0.1.0 at there?[2J, up 0:00:12: 3 sessions, 1 "),
            "{}",
            shown[0]
        );
        assert!(shown[1].starts_with("25.0k transactions/s committed"), "{}", shown[1]);
        assert_eq!(
            shown[6].split_whitespace().collect::<Vec<_>>(),
            ["2.00", "5.00", "500", "10.0k", "400", "900", "a.lot", "g.rs:2"]
        );
        assert!(shown[head].ends_with("CALLER"));
        assert!(shown[7].ends_with("f.rs:1") && shown.len() == 8, "{shown:?}");
        assert!(lines("there", &interval, &blocked(&[]), usize::MAX).0[8].ends_with("-  none"));
    }

    #[test]
    fn waits_for_locks_have_half_of_the_screen() {
        let (before, after) = (sample(10.0, 0, &[]), sample(12.0, 0, &["a,,1,0,0,0"]));
        let waits: Vec<String> =
            (0..20).map(|at| format!("{},{},{at},t,(1)", at + 2, at + 1)).collect();
        let waits: Vec<&str> = waits.iter().map(String::as_str).collect();
        let (shown, head) = lines("there", &after.since(&before), &blocked(&waits), 24);
        assert_eq!((shown.len(), head), (15, 13));
        assert_eq!(shown[5], "20 sessions wait for a lock, each below the one that blocks it:");
        assert!(shown[11].starts_with("... more") && shown[14].ends_with("  a"), "{shown:?}");
        let (shown, head) = lines("there", &after.since(&before), &blocked(&waits), usize::MAX);
        assert!(
            head == 28
                && shown[5].starts_with("20 ")
                && shown[26].starts_with("            21 waits"),
            "{shown:?}"
        );
        assert!(
            lines("there", &after.since(&before), &blocked(&waits[..1]), 24).0[5]
                .starts_with("1 session waits ")
        );
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.126, "0.13"),
            (12.34, "12.3"),
            (9_999.0, "9999"),
            (12_345.0, "12.3k"),
            (5.5e6, "5.50M"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            (duration(59.9), duration(90_061.0)),
            ("0:00:59".to_owned(), "1 d 1:01:01".to_owned())
        );
    }
}
