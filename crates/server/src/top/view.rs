//! Formats an interval as rows of text. Everything except the statements of waiting sessions fits
//! in 80 columns.

use super::blocked::Blocked;
use super::sample::{Interval, Line, Percentiles};

/// Maximum number of rows for waits for locks if the output is not a terminal.
const BLOCKED: usize = 100;
/// Width of the labels before the figures.
const LABEL: usize = 13;
/// Width of the numeric columns of the table, with the space after them.
const NUMBERS: usize = 41;

/// How a row is highlighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    /// The first row.
    Title,
    /// The head of the table.
    Head,
    /// A label of this width, then figures.
    Label(usize),
    /// A session that blocks others and waits for no lock.
    Blocker,
    /// A session that waits for a lock.
    Waiter,
}

/// A row of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) style: Style,
}

/// Creates a row. Control characters in the server's texts are replaced, so that the terminal does
/// not interpret them.
fn row(style: Style, text: impl AsRef<str>) -> Row {
    let plain = text.as_ref().chars().map(|c| if c.is_control() { '?' } else { c });
    Row { text: plain.collect(), style }
}

fn figures(label: &str, text: String) -> Row {
    row(Style::Label(LABEL), format!("{label:<LABEL$}{text}"))
}

/// Returns the screen for an interval, of at most this many rows. The table uses this many columns.
pub(super) fn screen(
    server: &str,
    interval: &Interval,
    blocked: &Blocked,
    rows: usize,
    columns: usize,
) -> Vec<Row> {
    let mut out = summary(server, interval, columns);
    if blocked.waiters > 0 {
        let s = if blocked.waiters == 1 { " waits" } else { "s wait" };
        let text =
            format!("{} session{s} for a lock, below the blocking session:", blocked.waiters);
        out.push(row(Style::Plain, text));
        // Together with the summary, at most two thirds of the screen.
        let most = (rows / 3 * 2).saturating_sub(out.len()).clamp(1, BLOCKED);
        out.extend(blocked.lines(most).into_iter().map(|line| {
            let style = if line.starts_with(' ') { Style::Waiter } else { Style::Blocker };
            row(style, line)
        }));
        out.push(row(Style::Plain, ""));
    }
    out.extend(table(&interval.lines, interval.seconds, columns));
    out.truncate(rows);
    out
}

fn summary(server: &str, interval: &Interval, columns: usize) -> Vec<Row> {
    let Interval { state, seconds, counts, statements, commits, lines } = interval;
    let per_s = |count: f64| short(count / seconds);
    let lost_us: f64 = lines.iter().map(|line| line.waits.total_us).sum();
    let (up, version) = (duration(state.uptime_s), &state.version);
    let server = end_of(server, columns.saturating_sub(version.len() + up.len() + 30));
    let hint = if columns == usize::MAX { "" } else { "  (h: help)" };
    let of_pool = |frames: f64| 100.0 * frames / state.pool_frames.max(1.0);
    vec![
        row(Style::Title, format!("clearway {version} at {server}, up {up}{hint}")),
        figures(
            "sessions",
            format!(
                "{}; waiting for the log {}, for locks {}; deadlocks {}/s",
                state.sessions,
                state.commits_waiting,
                state.lock_waiters,
                per_s(counts.deadlocks)
            ),
        ),
        figures(
            "throughput",
            format!(
                "commits {}/s, aborts {}/s, statements {}/s, errors {}/s",
                per_s(counts.committed),
                per_s(counts.aborted),
                per_s(counts.statements),
                per_s(counts.errors)
            ),
        ),
        figures("statements", percentiles(statements.as_ref())),
        figures("commits", percentiles(commits.as_ref())),
        figures(
            "network, log",
            format!(
                "in {}B/s, out {}B/s; log {}B/s, syncs {}/s",
                per_s(counts.received),
                per_s(counts.sent),
                per_s(counts.log_bytes),
                per_s(counts.log_syncs)
            ),
        ),
        figures(
            "pages",
            format!(
                "read {}/s, written {}/s; pool {} frames, {:.0}% used, {:.0}% dirty",
                per_s(counts.page_reads),
                per_s(counts.page_writes),
                short(state.pool_frames),
                of_pool(state.pool_frames - state.pool_free),
                of_pool(state.pool_dirty)
            ),
        ),
        figures(
            "waits",
            format!("{} ms/s lost for latches and locks", short(lost_us / 1e3 / seconds)),
        ),
        row(Style::Plain, ""),
    ]
}

fn percentiles(percentiles: Option<&Percentiles>) -> String {
    match percentiles {
        None => "none in this interval".to_owned(),
        Some(Percentiles { p50_us, p95_us, p99_us }) => {
            format!("p50 {}, p95 {}, p99 {}", time_us(*p50_us), time_us(*p95_us), time_us(*p99_us))
        }
    }
}

/// Returns the table of waits, most lost time first.
fn table(lines: &[Line], seconds: f64, columns: usize) -> Vec<Row> {
    // Only rows with a caller need their classes aligned.
    let with_caller = lines.iter().filter(|line| line.waits.contended > 0.0);
    let names = with_caller.map(|line| line.name.chars().count());
    let name = names.max().unwrap_or(0).max("CLASS".len());
    let caller = columns.saturating_sub(NUMBERS + name + 1);
    let head = format!(
        "{:>7} {:>7} {:>7} {:>7} {:>7}  {:<name$} CALLER",
        "LOST", "WAITS/s", "REQS/s", "MEAN", "P99", "CLASS"
    );
    let mut out = vec![row(Style::Head, head)];
    out.extend(lines.iter().map(|Line { name: class, caller: place, requests, waits }| {
        let asked = short(requests / seconds);
        let text = if waits.contended == 0.0 {
            format!("{:>7} {:>7} {asked:>7} {:>7} {:>7}  {class}", "-", "-", "-", "-")
        } else {
            format!(
                "{:>7} {:>7} {asked:>7} {:>7} {:>7}  {class:<name$} {}",
                short(waits.total_us / 1e3 / seconds),
                short(waits.contended / seconds),
                time_us(waits.total_us / waits.contended),
                time_us(waits.p99_us),
                fit_site(place, caller)
            )
        };
        row(Style::Plain, text)
    }));
    out
}

/// Returns the help page.
pub(super) fn help() -> Vec<Row> {
    const TEXT: &str = "\
Keys: h or ? shows this page, any key leaves it; q or Ctrl-C quits.

Figures are for the last interval (--interval) unless stated otherwise.

sessions     open connections, and how many wait now; deadlocks found
throughput   ended transactions, started statements, errors
statements   latency from a statement's start until its result is complete
commits      latency from a statement's start until the log is durable up to
             its reply, for replies that waited for the log
pages        reads and writes of pages; use of the buffer pool now
waits        time that all threads and sessions together lost by waiting

The table has a row for each class and caller, most lost time first:
LOST         time lost by waiting, in milliseconds per second
WAITS/s      requests that had to wait
REQS/s       all requests of the class
MEAN, P99    how long a request waited; P99 is since the last
             SELECT clearway.reset_contention()
CLASS        the latch or lock: see docs/lockstat.md
CALLER       the module and line that requested it

Sessions that wait for a lock are listed below the session that blocks them.";
    let mut rows = vec![row(Style::Title, "clearway top: help")];
    rows.extend(TEXT.lines().map(|line| row(Style::Plain, line)));
    rows
}

/// Shortens a site such as `partition::exec::modify:213` by dropping leading modules.
fn fit_site(site: &str, width: usize) -> &str {
    let mut rest = site;
    while rest.chars().count() > width
        && let Some((_, shorter)) = rest.split_once("::")
    {
        rest = shorter;
    }
    rest
}

/// Returns the end of a text that is too long, because paths differ at their ends.
fn end_of(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - width.saturating_sub(3)).collect();
    format!("...{end}")
}

/// Formats a figure in at most 5 characters, with a unit for thousands, millions and so on.
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

/// Formats a time in at most 7 characters.
fn time_us(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{}us", short(us)),
        us if us < 1e6 => format!("{}ms", short(us / 1e3)),
        us => format!("{}s", short(us / 1e6)),
    }
}

/// Formats a time as days, hours, minutes and seconds.
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
    use super::super::sample::tests::{sample, with_latency};
    use super::*;

    fn texts(rows: Vec<Row>) -> Vec<String> {
        rows.into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn summary_and_table_show_the_interval() {
        let before = sample(10.0, 0, &[]);
        let after = sample(
            12.0,
            50_000,
            &[
                "a.little,f:1,100,1,10,10",
                "a.lot,buffer::pool::free:2,1000,10,4000,900",
                "none,,7,0,0,0",
            ],
        );
        let after = with_latency(&after, &["commit,2000,3000,9", "statement,10,20,5"]);
        let interval = after.since(&before);
        let shown = texts(screen("there\u{1b}[2J", &interval, &blocked(&[]), 24, 80));
        assert_eq!(
            shown[..10],
            [
                "clearway 0.1.0 at there?[2J, up 0:00:12  (h: help)",
                "sessions     3; waiting for the log 1, for locks 2; deadlocks 0/s",
                "throughput   commits 25.0k/s, aborts 0/s, statements 25.0k/s, errors 0/s",
                "statements   p50 15.0us, p95 19.5us, p99 19.9us",
                "commits      p50 2.50ms, p95 2.95ms, p99 2.99ms",
                "network, log in 0B/s, out 0B/s; log 0B/s, syncs 0/s",
                "pages        read 0/s, written 0/s; pool 1024 frames, 2% used, 1% dirty",
                "waits        2.00 ms/s lost for latches and locks",
                "",
                "   LOST WAITS/s  REQS/s    MEAN     P99  CLASS    CALLER",
            ]
        );
        assert_eq!(
            shown[10..],
            [
                "   2.00    5.00     500   400us   900us  a.lot    buffer::pool::free:2",
                "   0.01    0.50    50.0  10.0us  10.0us  a.little f:1",
                "      -       -    3.50       -       -  none",
            ]
        );
        assert_eq!(screen("there", &interval, &blocked(&[]), 11, 80).len(), 11);
    }

    /// Large figures, long names.
    #[test]
    fn rows_fit_80_columns() {
        let long = "lock.table_intent_exclusive,partition::exec::insert:1234,9e9,8e9,7e15,6e9";
        let before = sample(10.0, 0, &[]);
        let after = sample(9.0 * 86_400.0 + 11.0, u64::MAX / 2, &[long]);
        let rows = ["commit,123456,654321,9", "statement,123456,654321,5"];
        let interval = with_latency(&after, &rows).since(&before);
        let name = "/a/very/long/path/of/a/directory/with/the/socket/of/the/server/in/it/data";
        for row in screen(name, &interval, &blocked(&[]), 24, 80).into_iter().chain(help()) {
            assert!(row.text.chars().count() <= 80, "{}", row.text);
        }
        assert!(help().len() <= 24);
        let shown = texts(screen(name, &interval, &blocked(&[]), 24, 80));
        assert!(shown[0].contains(" at ...") && shown[0].ends_with("(h: help)"), "{}", shown[0]);
        assert!(shown[10].ends_with(" insert:1234"), "{}", shown[10]);
        let wide = texts(screen(name, &interval, &blocked(&[]), usize::MAX, usize::MAX));
        assert!(wide[10].ends_with(" partition::exec::insert:1234"), "{}", wide[10]);
    }

    #[test]
    fn waits_for_locks_leave_a_third_of_the_screen() {
        let (before, after) = (sample(10.0, 0, &[]), sample(12.0, 0, &["a,,1,0,0,0"]));
        let interval = after.since(&before);
        let waits: Vec<String> =
            (0..20).map(|at| format!("{},{},{at},t,(1)", at + 2, at + 1)).collect();
        let waits: Vec<&str> = waits.iter().map(String::as_str).collect();
        let shown = screen("there", &interval, &blocked(&waits), 24, 80);
        let styles: Vec<Style> = shown[9..19].iter().map(|row| row.style).collect();
        use Style::{Blocker, Head, Plain, Waiter};
        let tree = [Plain, Blocker, Waiter, Waiter, Waiter, Waiter, Blocker];
        assert_eq!(styles, [&tree[..], &[Plain, Head, Plain]].concat());
        let styles = screen("there", &interval, &blocked(&waits[..1]), 24, 80);
        assert_eq!((styles[10].style, styles[11].style), (Blocker, Waiter));
        let shown = texts(shown);
        assert_eq!(shown[9], "20 sessions wait for a lock, below the blocking session:");
        assert!(shown[15].starts_with("... more") && shown[18].ends_with("  a"), "{shown:?}");
        let shown = texts(screen("there", &interval, &blocked(&waits), usize::MAX, 80));
        assert!(shown[30].starts_with("            21 waits") && shown.len() == 34, "{shown:?}");
        let shown = texts(screen("there", &interval, &blocked(&waits[..1]), 24, 80));
        assert!(shown[9].starts_with("1 session waits "), "{shown:?}");
    }

    #[test]
    fn figures_and_times_are_short() {
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
        for (us, text) in [(0.5, "0.50us"), (999.0, "999us"), (1_500.0, "1.50ms"), (2e8, "200s")] {
            assert_eq!(time_us(us), text);
        }
        assert_eq!(
            (duration(59.9), duration(90_061.0)),
            ("0:00:59".to_owned(), "1 d 1:01:01".to_owned())
        );
    }
}
