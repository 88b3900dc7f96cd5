//! `clearway-remote serve` and `client`, started as by their users.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const NODES: usize = 3;

struct Node {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Node {
    fn start(args: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway-remote"))
            .args(args.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn receive(&mut self, word: &str) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let rest =
            line.strip_prefix(word).unwrap_or_else(|| panic!("expected `{word}`, got `{line}`"));
        rest.trim().to_owned()
    }

    fn end(self) -> Option<i32> {
        let Self { mut child, input, mut output } = self;
        drop(input);
        std::io::copy(&mut output, &mut std::io::sink()).unwrap();
        child.wait().unwrap().code()
    }
}

/// Starts all nodes and connects them.
fn connected(args: &str) -> Vec<Node> {
    connected_with(0, args)
}

/// Starts all nodes, followed by clients, and connects them.
fn connected_with(clients: usize, args: &str) -> Vec<Node> {
    let (mut nodes, mut peers, mut segment): (Vec<Node>, _, _) =
        (Vec::new(), String::from("peers"), String::new());
    for number in 0..NODES + clients {
        let command = if number < NODES { "serve" } else { "client" };
        let mut node = Node::start(&format!(
            "{command} --nodes {NODES} --clients {clients} --node {number} --rows 50 {args}{segment}"
        ));
        let ready = node.receive("ready");
        let (path, place) = ready.split_once(' ').unwrap();
        if number == 0 && path != "-" {
            segment = format!(" --segment {path}");
        }
        peers = format!("{peers} {place}");
        nodes.push(node);
    }
    nodes.iter_mut().for_each(|node| node.send(&peers));
    nodes.iter_mut().for_each(|node| drop(node.receive("connected")));
    nodes
}

fn count(result: &str, name: &str) -> u64 {
    let field = result.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    field.unwrap_or_else(|| panic!("no {name} in {result}")).parse().unwrap()
}

/// Returns the sum of all values that the nodes own.
fn sum_of_rows(nodes: &mut [Node]) -> u64 {
    nodes.iter_mut().for_each(|node| node.send("check"));
    nodes.iter_mut().map(|node| node.receive("rows").parse::<u64>().unwrap()).sum()
}

/// Keys that all processes update hold exactly the updates of committed transactions.
#[test]
fn keys_hold_the_updates_of_all_processes() {
    let transports = [
        "--locks adaptive --latency-ns 2000",
        "--locks line --protocol wait-die",
        "--locks one-round --cached 0",
        "--transport two-sided",
        "--transport tcp --protocol wait-die",
    ];
    for transport in transports {
        let mut nodes = connected(&format!("{transport} --theta 0.5"));
        nodes.iter_mut().for_each(|node| node.send("run 100"));
        let results: Vec<String> = nodes.iter_mut().map(|node| node.receive("result")).collect();
        let rows = sum_of_rows(&mut nodes);
        let sum = |name| results.iter().map(|result| count(result, name)).sum::<u64>();
        assert_eq!(rows, sum("updates"), "{transport}: {results:?}");
        assert_eq!(
            sum("aborts"),
            sum("conflicts") + sum("older") + sum("too_many_readers"),
            "{transport}"
        );
        assert!(sum("commits") > 0, "{transport}: {results:?}");
        // No key moves, so a location is read from a bucket exactly if it is not cached.
        let is_cached = !transport.contains("--cached 0");
        assert_eq!((sum("cached") > 0, sum("peeked") == 0), (true, is_cached), "{results:?}");
        assert_eq!((sum("stale"), sum("buckets_locked")), (0, 0), "{results:?}");
        assert!(nodes.into_iter().all(|node| node.end() == Some(0)), "{transport}");
    }
}

/// Runs a transaction of a client and returns its answers.
fn txn(client: &mut Node, operations: &str) -> String {
    client.send(&format!("txn {operations}"));
    client.receive("committed")
}

/// Two processes without keys change the keys of three others, which also run transactions.
#[test]
fn clients_change_keys_in_other_processes() {
    const KEYS: std::ops::RangeInclusive<u64> = 1001..=1010;
    let transports = [
        "",
        "--locks line --protocol wait-die --latency-ns 2000",
        "--locks one-round --cached 1",
        "--transport two-sided",
        "--transport tcp --protocol wait-die",
    ];
    for transport in transports {
        let mut nodes = connected_with(2, transport);
        let mut clients = nodes.split_off(NODES);
        let [one, other] = &mut clients[..] else { unreachable!("two clients") };
        let all =
            |operation: &dyn Fn(u64) -> String| KEYS.map(operation).collect::<Vec<_>>().join(" ");
        let inserts = all(&|key| format!("insert {key} {}", key * 2));
        assert_eq!(txn(one, &inserts), all(&|_| "absent".into()), "{transport}");
        assert_eq!(txn(other, &inserts), all(&|_| "present".into()), "{transport}");
        let gets = all(&|key| format!("get {key}"));
        assert_eq!(txn(other, &gets), all(&|key| (key * 2).to_string()), "{transport}");
        nodes.iter_mut().for_each(|node| node.send("run 100"));
        assert_eq!(
            txn(other, "get 1001 put 1001 70 get 1001 delete 1002 get 1002 put 1002 9"),
            "2002 present 70 present absent absent",
            "{transport}"
        );
        // The other client has cached the location of the deleted key.
        assert_eq!(txn(one, "get 1001 get 1002 delete 1002"), "70 absent absent", "{transport}");
        assert_eq!(txn(one, "insert 1002 5 delete 1003"), "absent present", "{transport}");
        assert_eq!(txn(other, "get 1002 get 1003"), "5 absent", "{transport}");
        other.send("txn get 0");
        other.receive("invalid");
        // Keys that the nodes update meanwhile.
        let values = txn(other, "get 1 get 2 get 3");
        assert!(values.split(' ').all(|value| value.parse::<u64>().is_ok()), "{values}");
        let results: Vec<String> = nodes.iter_mut().map(|node| node.receive("result")).collect();
        assert!(clients.into_iter().all(|client| client.end() == Some(0)), "{transport}");
        let updates = results.iter().map(|result| count(result, "updates")).sum::<u64>();
        let left = 70 + 5 + KEYS.skip(3).map(|key| key * 2).sum::<u64>();
        assert_eq!(sum_of_rows(&mut nodes), updates + left, "{transport}: {results:?}");
        assert!(nodes.into_iter().all(|node| node.end() == Some(0)), "{transport}");
    }
}

#[test]
fn a_process_exits_when_its_parent_is_gone() {
    let mut alone = Node::start("serve --nodes 1 --node 0 --transport tcp");
    alone.receive("ready");
    assert_eq!(alone.end(), Some(1));
    for (node, args) in ["", "--transport two-sided", "--transport tcp"]
        .into_iter()
        .map(|args| (connected(args), args))
    {
        assert!(node.into_iter().all(|node| node.end() == Some(1)), "{args}");
    }
}

#[test]
fn an_invalid_command_line_exits_with_2() {
    for args in ["serve", "work", "serve --node 0 --theta 2", "client --node 4"] {
        assert_eq!(Node::start(args).end(), Some(2), "{args}");
    }
    assert_eq!(Node::start("--help").end(), Some(0));
}
