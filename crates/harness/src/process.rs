//! Runs programs with a time limit and without sleeping: output lines arrive on a channel, and
//! waiting is a wait on the channel.

use crate::Res;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Result of a finished program.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output, then standard error; lines of the two are not ordered among each other.
    pub output: String,
    /// Duration.
    pub took: Duration,
}

impl Finished {
    /// Returns the output, or an error that quotes it if the exit status is not 0.
    pub fn success(self, what: &str) -> Res<String> {
        if self.status.success() {
            Ok(self.output)
        } else {
            Err(format!("{what}: {}\n{}", self.status, self.output))
        }
    }
}

/// The stream of a line, as an index.
#[derive(Clone, Copy, Debug)]
enum Source {
    Output = 0,
    Error = 1,
}

/// A running program; callers can wait for its output lines.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<(Source, String)>,
    /// All lines in order of arrival.
    output: String,
    /// Lines of standard output and of standard error.
    streams: [String; 2],
    started: Instant,
}

impl Running {
    /// Starts `command`, feeds it `input` and collects its output.
    pub fn start(command: &mut Command, input: &str) -> Res<Self> {
        let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", command.get_program().display()))?;
        let (tx, lines) = channel();
        let streams = [
            (Source::Output, child.stdout.take().map(boxed)),
            (Source::Error, child.stderr.take().map(boxed)),
        ];
        for (source, stream) in
            streams.into_iter().filter_map(|(source, stream)| Some((source, stream?)))
        {
            let tx = tx.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if tx.send((source, line)).is_err() {
                        break;
                    }
                }
            });
        }
        if let Some(mut pipe) = child.stdin.take() {
            let input = input.to_owned();
            // A program that ends before it reads all its input closes the pipe; its exit status
            // explains why.
            std::thread::spawn(move || pipe.write_all(input.as_bytes()));
        }
        Ok(Self {
            child,
            lines,
            output: String::new(),
            streams: Default::default(),
            started: Instant::now(),
        })
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far, in order of arrival.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Waits for the next line. Returns `Ok(None)` after `limit`, and an error if the program
    /// closed its output.
    pub fn line(&mut self, limit: Duration) -> Res<Option<String>> {
        match self.lines.recv_timeout(limit) {
            Ok((source, line)) => {
                for text in [&mut self.output, &mut self.streams[source as usize]] {
                    text.push_str(&line);
                    text.push('\n');
                }
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("the program closed its output:\n{}", self.output))
            }
        }
    }

    /// Sends a signal by name (`INT`, `TERM`).
    pub fn signal(&self, name: &str) -> Res<()> {
        signal(self.child.id(), name)
    }

    /// Kills the program (SIGKILL) and reaps it.
    pub fn kill(&mut self) {
        // The only possible error is that the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end, at most `limit`. A program that runs longer is killed, and that is an
    /// error.
    pub fn finish(mut self, limit: Duration) -> Res<Finished> {
        let deadline = Instant::now() + limit;
        while self
            .line(deadline.saturating_duration_since(Instant::now()))
            .is_ok_and(|l| l.is_some())
        {}
        if Instant::now() >= deadline {
            self.kill();
            return Err(format!("still running after {limit:?}, killed:\n{}", self.output));
        }
        // The output is closed, so the program is about to end.
        let status = self.child.wait().map_err(|e| e.to_string())?;
        Ok(Finished { status, output: self.streams.concat(), took: self.started.elapsed() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn boxed(stream: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(stream)
}

/// Sends the signal `name` to a process.
pub fn signal(pid: u32, name: &str) -> Res<()> {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("kill -{name} {pid}: {s}")),
        Err(e) => Err(format!("kill: {e}")),
    }
}

/// Runs `command` to its end, at most `limit`.
pub fn run(command: &mut Command, input: &str, limit: Duration) -> Res<Finished> {
    Running::start(command, input)?.finish(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_returned() {
        let done = run(
            Command::new("sh").args(["-c", "cat; echo err >&2; exit 3"]),
            "in\n",
            Duration::from_secs(60),
        )
        .unwrap();
        assert_eq!(done.status.code(), Some(3));
        assert!(done.output.contains("in\n") && done.output.contains("err\n"));
        assert!(done.success("sh").unwrap_err().contains("err"));
    }

    #[test]
    fn output_is_grouped_by_stream() {
        let script = "for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done";
        let output = run(Command::new("sh").args(["-c", script]), "", Duration::from_secs(60))
            .unwrap()
            .output;
        let lines = |what: &str| (1..=8).map(|i| format!("{what} {i}\n")).collect::<String>();
        assert_eq!(output, lines("out") + &lines("err"));
    }

    #[test]
    fn hanging_programs_are_killed() {
        let error =
            run(Command::new("sleep").arg("60"), "", Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("still running"), "{error}");
    }
}
