//! Nodes as processes: `clearway-remote serve`, controlled by lines of text.

use clearway_harness::{Res, tools};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Time beyond the run itself after which a silent process has failed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Builds the program in release mode, in the target directory of this binary.
pub fn build() -> Res<PathBuf> {
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    // <target>/<profile>/<this binary>; a test's binary is one level deeper.
    let profile = here.ancestors().find(|dir| dir.ends_with("release") || dir.ends_with("debug"));
    let target =
        profile.and_then(Path::parent).ok_or("this binary has no target directory above it")?;
    let mut command = tools::cargo();
    command.args([
        "build",
        "--release",
        "-p",
        "clearway-remote",
        "--bin",
        "clearway-remote",
        "--target-dir",
    ]);
    let status = command.arg(target).status().map_err(|e| format!("cargo build: {e}"))?;
    if status.success() {
        Ok(target.join("release/clearway-remote"))
    } else {
        Err(format!("cargo build: {status}"))
    }
}

/// The counts of one process, by name.
pub type Counts = BTreeMap<String, u64>;

struct Node {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Node {
    fn start(binary: &Path, args: &[String]) -> Res<Self> {
        let mut command = Command::new(binary);
        command.arg("serve").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", binary.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { unreachable!("both are pipes") };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, input, lines })
    }

    fn send(&mut self, line: &str) -> Res<()> {
        writeln!(self.input, "{line}").map_err(|e| format!("clearway-remote: {e}"))
    }

    /// Reads the next line, which must begin with `word`, and returns the rest.
    fn receive(&self, word: &str, time_limit: Duration) -> Res<String> {
        let line = self
            .lines
            .recv_timeout(time_limit)
            .map_err(|_| format!("clearway-remote did not send `{word}`"))?;
        let rest =
            line.strip_prefix(word).ok_or_else(|| format!("expected `{word}`, got `{line}`"))?;
        Ok(rest.trim().to_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `nodes` processes with these arguments for a time, and returns the counts of each. Fails if
/// the rows do not hold all updates that committed, or if a lock is left.
pub fn run(binary: &Path, nodes: usize, args: &[String], time: Duration) -> Res<Vec<Counts>> {
    let mut processes: Vec<Node> = Vec::new();
    let mut peers = String::from("peers");
    let mut segment = None;
    for node in 0..nodes {
        let mut args =
            [args, &["--nodes".into(), nodes.to_string(), "--node".into(), node.to_string()]]
                .concat();
        args.extend(
            segment.iter().flat_map(|path: &String| ["--segment".to_owned(), path.clone()]),
        );
        let process = Node::start(binary, &args)?;
        let ready = process.receive("ready", TIME_LIMIT)?;
        let (path, place) = ready.split_once(' ').ok_or("`ready` has too few fields")?;
        segment.get_or_insert_with(|| path.to_owned());
        peers = format!("{peers} {place}");
        processes.push(process);
    }
    let all = |processes: &mut [Node], order: &str, reply: &str, time_limit| -> Res<Vec<String>> {
        processes.iter_mut().try_for_each(|process| process.send(order))?;
        processes.iter().map(|process| process.receive(reply, time_limit)).collect()
    };
    all(&mut processes, &peers, "connected", TIME_LIMIT)?;
    let results =
        all(&mut processes, &format!("run {}", time.as_millis()), "result", TIME_LIMIT + time)?;
    let counts: Vec<Counts> = results.iter().map(|line| parse(line)).collect::<Res<_>>()?;
    let rows = all(&mut processes, "check", "rows", TIME_LIMIT)?;
    let found = rows
        .iter()
        .map(|sum| sum.parse::<u64>().map_err(|e| format!("{sum}: {e}")))
        .sum::<Res<u64>>()?;
    let updates: u64 =
        counts.iter().map(|counts| counts.get("updates").copied().unwrap_or(0)).sum();
    if found == updates {
        Ok(counts)
    } else {
        Err(format!("rows hold {found} of {updates} updates"))
    }
}

fn parse(line: &str) -> Res<Counts> {
    let one = |field: &str| {
        let (name, value) =
            field.split_once('=').ok_or_else(|| format!("`{field}` is not a count"))?;
        Ok((name.to_owned(), value.parse().map_err(|e| format!("`{field}`: {e}"))?))
    };
    line.split_whitespace().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_name() {
        assert_eq!(parse("a=1 b=20").map(|counts| counts["b"]), Ok(20));
        assert!(parse("a=1 b").is_err() && parse("a=x").is_err());
    }
}
