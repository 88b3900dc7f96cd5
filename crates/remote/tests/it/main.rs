//! `clearway-remote serve`, started as by its users.

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
    let (mut nodes, mut peers, mut segment): (Vec<Node>, _, _) =
        (Vec::new(), String::from("peers"), String::new());
    for number in 0..NODES {
        let mut node = Node::start(&format!(
            "serve --nodes {NODES} --node {number} --rows 50 {args}{segment}"
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

/// Rows that all processes update hold exactly the updates of committed transactions.
#[test]
fn rows_hold_the_updates_of_all_processes() {
    let transports = [
        "--locks adaptive --latency-ns 2000",
        "--locks line --protocol wait-die",
        "--locks one-round --read-index true",
        "--transport two-sided",
        "--transport tcp --protocol wait-die",
    ];
    for transport in transports {
        let mut nodes = connected(&format!("{transport} --theta 0.5"));
        nodes.iter_mut().for_each(|node| node.send("run 100"));
        let results: Vec<String> = nodes.iter_mut().map(|node| node.receive("result")).collect();
        nodes.iter_mut().for_each(|node| node.send("check"));
        let rows: u64 =
            nodes.iter_mut().map(|node| node.receive("rows").parse::<u64>().unwrap()).sum();
        let sum = |name| results.iter().map(|result| count(result, name)).sum::<u64>();
        assert_eq!(rows, sum("updates"), "{transport}: {results:?}");
        assert_eq!(
            sum("aborts"),
            sum("conflicts") + sum("older") + sum("too_many_readers"),
            "{transport}"
        );
        assert!(sum("commits") > 0, "{transport}: {results:?}");
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
    for args in ["serve", "work", "serve --node 0 --theta 2"] {
        assert_eq!(Node::start(args).end(), Some(2), "{args}");
    }
    assert_eq!(Node::start("--help").end(), Some(0));
}
