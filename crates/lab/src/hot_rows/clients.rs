//! Many clients on few threads. Each client sends its next statement when the previous one has been
//! answered.
//!
//! The clients share the cores with the server. One thread for every four cores leaves the server
//! most of a small machine, and is not the limit on a large one.
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
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Retryable errors.
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK: &str = "40P01";
/// Maximum time without any answer.
const SILENCE: Duration = Duration::from_secs(60);
/// Cores for each thread of clients.
const CORES_PER_THREAD: usize = 4;

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
    /// Threads that drive them; no more than there are clients.
    pub threads: usize,
    /// Seed of the clients' random choices.
    pub seed: u64,
    /// When it ends.
    pub until: Until,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All committed transactions, including those after the end.
    pub committed: u64,
    /// Transactions that failed with a retryable error.
    pub retried: u64,
    /// Those of them that failed with a deadlock.
    pub deadlocks: u64,
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

/// Clients that one thread drives.
struct Crowd {
    poll: Poll,
    clients: Vec<Client>,
    load: Load,
}

/// Returns the number of threads for the clients on this machine.
pub fn threads_here() -> usize {
    (thread::available_parallelism().map_or(1, usize::from) / CORES_PER_THREAD).max(1)
}

/// Runs the load by connections to this socket of the server at the endpoint.
pub fn run(socket: &Path, endpoint: &Endpoint, load: Load) -> Res<Report> {
    let crowds = crowds(socket, endpoint, load)?;
    let start = Barrier::new(crowds.len());
    let reports: Vec<Res<Report>> = thread::scope(|scope| {
        let running: Vec<_> =
            crowds.into_iter().map(|crowd| scope.spawn(|| crowd.run(&start))).collect();
        let died = |_| Err("a thread of clients has panicked".into());
        running.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    });
    let mut whole = Report::default();
    for report in reports {
        whole.add(report?);
    }
    whole.latencies_us.sort_unstable();
    Ok(whole)
}

/// Connects all clients, and deals them out to the threads.
fn crowds(socket: &Path, endpoint: &Endpoint, load: Load) -> Res<Vec<Crowd>> {
    let work = load.work;
    let mut statements: Vec<&str> = work.statements().iter().map(|s| s.sql).collect();
    statements.push("ROLLBACK");
    let threads = load.threads.clamp(1, load.clients.max(1) as usize);
    let until = match load.until {
        Until::Committed(limit) => Until::Committed(limit.div_ceil(threads as u64)),
        elapsed @ Until::Elapsed(_) => elapsed,
    };
    let crowd = |_| -> Res<Crowd> {
        let poll = Poll::new().map_err(|e| e.to_string())?;
        Ok(Crowd { poll, clients: Vec::new(), load: Load { until, ..load } })
    };
    let mut crowds = (0..threads).map(crowd).collect::<Res<Vec<Crowd>>>()?;
    let mut seeds = Rng::new(load.seed);
    for number in 0..load.clients as usize {
        let Crowd { poll, clients, .. } = &mut crowds[number % threads];
        let mut session = Session::open(socket, endpoint, &statements)?;
        session.register(poll.registry(), Token(clients.len()))?;
        let mut rng = Rng::new(seeds.next_u64());
        let draw = work.draw(&mut rng, load.scale);
        let begun = Instant::now();
        clients.push(Client { session, rng, draw, read: 0, begun, state: State::Done });
    }
    Ok(crowds)
}

impl Crowd {
    /// Runs the load as soon as all crowds are ready.
    fn run(self, start: &Barrier) -> Res<Report> {
        let Self { mut poll, mut clients, load } = self;
        start.wait();
        let began = Instant::now();
        let (active, report) = (clients.len(), Report::default());
        let mut running = Running { load, began, report, over: false, active, values: Vec::new() };
        for client in &mut clients {
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
                return Err(format!("{}: nothing was answered in {SILENCE:?}", load.work.name()));
            }
            for event in &events {
                let client = &mut clients[event.token().0];
                // A client has at most one answer to come, so it needs no second look.
                if client.state != State::Done
                    && let Some(answer) = client.session.receive()?
                {
                    running.advance(client, answer)?;
                }
            }
        }
        Ok(running.report)
    }
}

impl Report {
    /// Adds another thread's clients, which ran at the same time.
    fn add(&mut self, other: Self) {
        self.committed += other.committed;
        self.retried += other.retried;
        self.deadlocks += other.deadlocks;
        self.took = self.took.max(other.took);
        self.latencies_us.extend(other.latencies_us);
    }
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
                if ![SERIALIZATION_FAILURE, DEADLOCK].contains(&code.as_str()) {
                    return Err(format!(
                        "{}: {code}: {message}",
                        self.load.work.statements()[statement].sql
                    ));
                }
                self.report.retried += 1;
                self.report.deadlocks += u64::from(code == DEADLOCK);
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
