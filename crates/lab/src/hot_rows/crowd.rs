//! A crowd of clients on one thread: each sends its next statement as soon as the one before has
//! been answered.
//!
//! A transaction that is told to try again (40001, 40P01) is done again with the same draw; its
//! latency is from its first statement to its commit. At the end of a run every client finishes
//! what it has begun, but only what was committed in time counts for the rate.

use super::session::{Answer, Session};
use super::work::{Draw, Work};
use clearway_harness::rng::Rng;
use clearway_harness::{Endpoint, Res};
use mio::{Events, Poll, Token};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// "Try again": a serialization failure, a deadlock.
const RETRIED: [&str; 2] = ["40001", "40P01"];
/// Longest that nothing is answered.
const SILENCE: Duration = Duration::from_secs(60);

/// When no more transactions are begun.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Elapsed(Duration),
    /// When so many are committed.
    Committed(u64),
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The kind of transaction.
    pub work: Work,
    /// Branches of pgbench's tables.
    pub scale: u32,
    /// Connections.
    pub clients: u32,
    /// Decides what the clients draw.
    pub seed: u64,
    /// When it ends.
    pub until: Until,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// All committed transactions, also those after the end.
    pub committed: u64,
    /// Transactions that were told to try again.
    pub retried: u64,
    /// How long it took up to the end.
    pub took: Duration,
    /// Latencies of those that were committed up to then, in microseconds, ascending.
    pub latencies_us: Vec<u32>,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The answer to this statement of its transaction.
    Statement(usize),
    /// The end of a failed transaction.
    Rollback,
    /// The end of a transaction that its client gives up.
    GivenUp,
    /// Nothing any more.
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

struct Crowd {
    load: Load,
    began: Instant,
    report: Report,
    over: bool,
    at_work: usize,
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
        let mut rng = Rng::new(seeds.number());
        let draw = work.draw(&mut rng, load.scale);
        all.push(Client { session, rng, draw, read: 0, begun: Instant::now(), state: State::Done });
    }
    let began = Instant::now();
    let report =
        Report { committed: 0, retried: 0, took: Duration::ZERO, latencies_us: Vec::new() };
    let mut crowd =
        Crowd { load, began, report, over: false, at_work: all.len(), values: Vec::new() };
    for client in &mut all {
        client.begun = began;
        crowd.send(client, 0)?;
    }
    let mut events = Events::with_capacity(1024);
    while crowd.at_work > 0 {
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
            while client.state != State::Done
                && let Some(answer) = client.session.receive()?
            {
                crowd.go_on(client, answer)?;
            }
        }
    }
    crowd.report.latencies_us.sort_unstable();
    Ok(crowd.report)
}

impl Crowd {
    /// Sends this statement, or all of them if they are sent at once.
    fn send(&mut self, client: &mut Client, statement: usize) -> Res<()> {
        let statements = self.load.work.statements();
        let last = if self.load.work.is_whole() { statements.len() - 1 } else { statement };
        client.state = State::Statement(last);
        if client.draw.rolls_back && last + 1 == statements.len() {
            client.state = State::GivenUp;
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

    /// Takes the answer that the client waited for, and sends what comes next.
    fn go_on(&mut self, client: &mut Client, answer: Answer) -> Res<()> {
        let statements = self.load.work.statements().len();
        let statement = match (client.state, answer.error) {
            (State::Done, _) => return Err("an answer without a question".into()),
            (State::Rollback, None) => return self.begin(client),
            (State::GivenUp, None) => return self.begin_another(client),
            (State::Rollback | State::GivenUp, Some((code, message))) => {
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

    /// Draws a transaction and begins it.
    fn begin_another(&mut self, client: &mut Client) -> Res<()> {
        client.draw = self.load.work.draw(&mut client.rng, self.load.scale);
        client.begun = Instant::now();
        self.begin(client)
    }

    /// Begins the transaction that was drawn, unless the run is over.
    fn begin(&mut self, client: &mut Client) -> Res<()> {
        self.look_at_the_end();
        if !self.over {
            return self.send(client, 0);
        }
        client.state = State::Done;
        self.at_work -= 1;
        Ok(())
    }

    fn commit(&mut self, client: &Client) {
        self.look_at_the_end();
        self.report.committed += 1;
        if !self.over {
            self.report
                .latencies_us
                .push(client.begun.elapsed().as_micros().try_into().unwrap_or(u32::MAX));
        }
    }

    fn look_at_the_end(&mut self) {
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
