//! Many clients on one thread. Each sends its next statement when the previous one has been
//! answered.
//!
//! A transaction that fails with a retryable error (40001, 40P01) is repeated with the same
//! parameters. Its latency is from its first statement to its commit. At the end of a run every
//! client finishes its transaction, but only commits within the time limit count for the rate.

use super::session::{Answer, Session};
use super::work::{Draw, Work};
use clearway_harness::{Endpoint, Res};
use clearway_testkit::Rng;
use mio::{Events, Poll, Token};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Retryable errors: serialization failure and deadlock.
const RETRIED: [&str; 2] = ["40001", "40P01"];
/// Maximum time without any answer.
const SILENCE: Duration = Duration::from_secs(60);

/// End condition of a run.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this many commits.
    Committed(u64),
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The kind of transaction.
    pub work: Work,
    /// Branches of pgbench's tables.
    pub scale: u32,
    /// Connections.
    pub clients: u32,
    /// Seed of the clients' random choices.
    pub seed: u64,
    /// When it ends.
    pub until: Until,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// All committed transactions, including those after the end.
    pub committed: u64,
    /// Transactions that failed with a retryable error.
    pub retried: u64,
    /// Time from the start to the end of the run.
    pub took: Duration,
    /// Latencies of the transactions committed before the end, in microseconds, ascending.
    pub latencies_us: Vec<u32>,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The answer to this statement of its transaction.
    Statement(usize),
    /// The end of a failed transaction's rollback.
    Rollback,
    /// The end of a deliberate rollback.
    RollingBack,
    /// Nothing; the client is done.
    Done,
}

struct Client {
    session: Session,
    rng: Rng,
    draw: Draw,
    read: i64,
    begun: Instant,
    state: State,
}

struct Running {
    load: Load,
    began: Instant,
    report: Report,
    over: bool,
    active: usize,
    values: Vec<i64>,
}

/// Runs the load.
pub fn run(endpoint: &Endpoint, load: Load) -> Res<Report> {
    let work = load.work;
    let mut statements: Vec<&str> = work.statements().iter().map(|s| s.sql).collect();
    statements.push("ROLLBACK");
    let mut poll = Poll::new().map_err(|e| e.to_string())?;
    let mut seeds = Rng::new(load.seed);
    let mut all = Vec::new();
    for number in 0..load.clients as usize {
        let mut session = Session::open(endpoint, &statements)?;
        session.register(poll.registry(), Token(number))?;
        let mut rng = Rng::new(seeds.next_u64());
        let draw = work.draw(&mut rng, load.scale);
        all.push(Client { session, rng, draw, read: 0, begun: Instant::now(), state: State::Done });
    }
    let began = Instant::now();
    let report =
        Report { committed: 0, retried: 0, took: Duration::ZERO, latencies_us: Vec::new() };
    let mut running =
        Running { load, began, report, over: false, active: all.len(), values: Vec::new() };
    for client in &mut all {
        client.begun = began;
        running.send(client, 0)?;
    }
    let mut events = Events::with_capacity(1024);
    while running.active > 0 {
        match poll.poll(&mut events, Some(SILENCE)) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            result => result.map_err(|e| e.to_string())?,
        }
        if events.is_empty() {
            return Err(format!("{}: nothing was answered in {SILENCE:?}", work.name()));
        }
        for event in &events {
            let client = &mut all[event.token().0];
            client.session.flush()?;
            // A client has at most one answer to come, so it needs no second look.
            if client.state != State::Done
                && let Some(answer) = client.session.receive()?
            {
                running.advance(client, answer)?;
            }
        }
    }
    running.report.latencies_us.sort_unstable();
    Ok(running.report)
}

impl Running {
    /// Sends this statement, or all statements if they are pipelined.
    fn send(&mut self, client: &mut Client, statement: usize) -> Res<()> {
        let statements = self.load.work.statements();
        let last = if self.load.work.is_whole() { statements.len() - 1 } else { statement };
        client.state = State::Statement(last);
        if client.draw.rolls_back && last + 1 == statements.len() {
            client.state = State::RollingBack;
            return client.session.send(statements.len(), &[]);
        }
        self.values.clear();
        let mut ends = Vec::with_capacity(statements.len());
        for statement in &statements[statement..=last] {
            self.values
                .extend(statement.values.iter().map(|value| value.of(&client.draw, client.read)));
            ends.push(self.values.len());
        }
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let values = begins.zip(&ends).map(|(begin, end)| &self.values[begin..*end]);
        client.session.send_all((statement..=last).zip(values))
    }

    /// Handles the client's answer and sends the next statement.
    fn advance(&mut self, client: &mut Client, answer: Answer) -> Res<()> {
        let statements = self.load.work.statements().len();
        let statement = match (client.state, answer.error) {
            (State::Done, _) => return Err("an answer without a request".into()),
            (State::Rollback, None) => return self.begin(client),
            (State::RollingBack, None) => return self.begin_another(client),
            (State::Rollback | State::RollingBack, Some((code, message))) => {
                return Err(format!("ROLLBACK: {code}: {message}"));
            }
            (State::Statement(statement), None) => statement,
            (State::Statement(statement), Some((code, message))) => {
                if !RETRIED.contains(&code.as_str()) {
                    return Err(format!(
                        "{}: {code}: {message}",
                        self.load.work.statements()[statement].sql
                    ));
                }
                self.report.retried += 1;
                if !answer.in_block {
                    return self.begin(client);
                }
                client.state = State::Rollback;
                return client.session.send(statements, &[]);
            }
        };
        if let Some(value) = answer.value {
            client.read = value;
        }
        if statement + 1 < statements {
            return self.send(client, statement + 1);
        }
        self.commit(client);
        self.begin_another(client)
    }

    /// Draws a new transaction and begins it.
    fn begin_another(&mut self, client: &mut Client) -> Res<()> {
        client.draw = self.load.work.draw(&mut client.rng, self.load.scale);
        client.begun = Instant::now();
        self.begin(client)
    }

    /// Begins the drawn transaction, unless the run is over.
    fn begin(&mut self, client: &mut Client) -> Res<()> {
        self.check_end();
        if !self.over {
            return self.send(client, 0);
        }
        client.state = State::Done;
        self.active -= 1;
        Ok(())
    }

    fn commit(&mut self, client: &Client) {
        self.check_end();
        self.report.committed += 1;
        if !self.over {
            self.report
                .latencies_us
                .push(client.begun.elapsed().as_micros().try_into().unwrap_or(u32::MAX));
        }
    }

    fn check_end(&mut self) {
        let elapsed = self.began.elapsed();
        let over = match self.load.until {
            Until::Elapsed(limit) => elapsed >= limit,
            Until::Committed(limit) => self.report.committed >= limit,
        };
        if over && !self.over {
            self.over = true;
            self.report.took = elapsed;
        }
    }
}
