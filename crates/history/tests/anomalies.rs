//! Each anomaly of the papers in the smallest history that shows it: the check must find exactly
//! this anomaly.

use clearway_history::{
    Anomaly, CheckerOptions, History, HistoryError, HistoryReport, Order, TxnOutcome, jsonl,
};

/// Checks a history of lines `OUTCOME SESSION START END: OP KEY VALUE; ...`. OUTCOME is c, a or u;
/// operations are `append x 1`, `list x 1 2`, `w x 1`, `r x 1`, `r x -`.
fn check_with(text: &str, options: &CheckerOptions) -> HistoryReport {
    let mut lines = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (head, ops) = line.split_once(':').unwrap();
        let head: Vec<&str> = head.split_whitespace().collect();
        let outcome = match head[0] {
            "c" => "committed",
            "a" => "aborted",
            _ => "unknown",
        };
        let end = if head[3] == "-" { "null" } else { head[3] };
        let ops: Vec<String> = ops.split(';').map(op).collect();
        lines += &format!(
            "{{\"session\":{},\"start\":{},\"end\":{end},\"outcome\":\"{outcome}\",\"ops\":[{}]}}\n",
            head[1],
            head[2],
            ops.join(",")
        );
    }
    let mut history = jsonl::read(lines.as_bytes()).unwrap();
    history.check(options)
}

fn op(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["list", key, values @ ..] => format!("[\"r\",\"{key}\",[{}]]", values.join(",")),
        ["r", key, "-"] => format!("[\"r\",\"{key}\",null]"),
        [verb, key, value] => format!("[\"{verb}\",\"{key}\",{value}]"),
        _ => panic!("`{text}` is not an operation"),
    }
}

fn check(text: &str) -> HistoryReport {
    check_with(text, &CheckerOptions::default())
}

/// Asserts that the history has exactly these anomalies.
fn expect(text: &str, expected: &[&str]) -> HistoryReport {
    let report = check(text);
    let mut names: Vec<String> = report.findings.iter().map(|f| f.name()).collect();
    names.sort_unstable();
    names.dedup();
    let mut expected: Vec<&str> = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected, "{report}");
    report
}

#[test]
fn a_serial_history_is_clean() {
    expect(
        "c 1 0 10: append x 1; list x 1
         c 2 11 20: list x 1; append x 2; append x 3
         c 1 21 30: list x 1 2 3; r y -; w y 1
         c 2 31 40: r y 1; w y 2; w y 3; r y 3
         a 2 41 42: append x 9; w y 9
         c 2 43 50: r y 3; list x 1 2 3; list z",
        &[],
    );
}

#[test]
fn write_cycle_is_g0() {
    // Adya: the two objects have the writes in opposite orders.
    let report = expect(
        "c 1 0 10: append x 1; append y 1
         c 2 0 10: append x 2; append y 2
         c 3 20 30: list x 1 2; list y 2 1",
        &["G0"],
    );
    let reasons: Vec<&str> = report.findings[0].steps.iter().map(|s| s.reason.as_str()).collect();
    assert!(reasons.contains(&"T0 appended 1 to x, and T1 appended 2 next"), "{reasons:?}");
    assert!(reasons.contains(&"T1 appended 2 to y, and T0 appended 1 next"), "{reasons:?}");
}

#[test]
fn read_of_an_aborted_write_is_g1a() {
    expect("a 1 0 10: append x 1\n c 2 0 10: list x 1", &["G1a"]);
    expect("a 1 0 10: w x 1\n c 2 0 10: r x 1", &["G1a"]);
}

#[test]
fn read_of_an_intermediate_write_is_g1b() {
    // Also read skew: the reader saw only a part of the writer's work.
    expect(
        "c 1 0 10: append x 1; append x 2\n c 2 0 10: list x 1\n c 3 20 30: list x 1 2",
        &["G1b", "G-single"],
    );
    expect("c 1 0 10: w x 1; w x 2\n c 2 0 10: r x 1", &["G1b"]);
}

#[test]
fn circular_information_flow_is_g1c() {
    let lists = "c 1 0 10: append x 1; list y 1\n c 2 0 10: append y 1; list x 1";
    let report = expect(lists, &["G1c"]);
    assert!(report.to_string().contains("T1 read [1] from x, where T0 appended 1"), "{report}");
    expect("c 1 0 10: w x 1; r y 1\n c 2 0 10: w y 1; r x 1", &["G1c"]);
}

#[test]
fn read_skew_is_g_single() {
    // Elle, section 5: one anti-dependency.
    let report = expect(
        "c 1 0 10: list x; list y 1
         c 2 0 10: append x 1; append y 1",
        &["G-single"],
    );
    assert!(
        report.to_string().contains("T0 read [] from x, without the 1 that T1 appended"),
        "{report}"
    );
    expect("c 1 0 10: r x -; r y 1\n c 2 0 10: w x 1; w y 1", &["G-single"]);
}

#[test]
fn write_skew_is_g2() {
    expect("c 1 0 10: list x; append y 1\n c 2 0 10: list y; append x 1", &["G2"]);
    expect("c 1 0 10: r x -; w y 1\n c 2 0 10: r y -; w x 1", &["G2"]);
}

#[test]
fn two_updates_of_one_version_are_a_lost_update() {
    expect(
        "c 1 0 10: r x -; w x 1
         c 2 0 10: r x -; w x 2
         c 3 20 30: r x 2",
        &["lost-update", "G2", "G-single-realtime"],
    );
    let lists =
        "c 1 0 10: list x; append x 1\n c 2 0 10: list x; append x 2\n c 3 20 30: list x 1 2";
    expect(lists, &["lost-update", "G-single"]);
}

#[test]
fn contradictory_reads_of_a_transaction_are_internal() {
    expect("c 1 0 10: append x 1; list x", &["internal"]);
    expect("c 1 0 10: w x 1; r x 2\n c 2 0 10: w x 2", &["internal"]);
    // Non-repeatable read: also a cycle.
    expect("c 1 0 10: list x; list x 1\n c 2 0 10: append x 1", &["internal", "G-single"]);
}

#[test]
fn unwritten_values_are_garbage_reads() {
    expect("c 1 0 10: list x 7", &["garbage-read"]);
    expect("c 1 0 10: r x 7", &["garbage-read"]);
}

#[test]
fn duplicate_elements_are_found() {
    expect("c 1 0 10: append x 1\n c 2 20 30: list x 1 1", &["duplicate-elements"]);
}

#[test]
fn inconsistent_list_reads_are_incompatible() {
    expect(
        "c 1 0 10: append x 1
         c 2 0 10: append x 2
         c 3 20 30: list x 1 2
         c 4 20 30: list x 2 1",
        &["incompatible-order"],
    );
    let gap = "c 1 0 10: append x 1; append x 2\n c 2 20 30: list x 2";
    expect(gap, &["incompatible-order", "G-single", "G-single-realtime"]);
}

#[test]
fn cyclic_versions_are_found() {
    expect(
        "c 1 0 10: r x 1; w x 2
         c 2 0 10: r x 2; w x 1",
        &["cyclic-versions", "G1c"],
    );
    // Two concurrent blind writes; later reads return the first, the second, and the first again.
    let report = expect(
        "c 1 0 10: w x 1
         c 2 0 10: w x 2
         c 3 20 30: r x 1
         c 4 40 50: r x 2
         c 5 60 70: r x 1",
        &["cyclic-versions-realtime"],
    );
    assert_eq!(report.findings[0].order, Order::RealTime);
}

#[test]
fn stale_reads_are_found_only_with_real_time() {
    let stale = "c 1 0 10: append x 1\n c 2 20 30: list x\n c 3 40 50: list x 1";
    let report = expect(stale, &["G-single-realtime"]);
    assert!(report.to_string().contains("T0 ended at 10, before T1 started at 20"), "{report}");
    let registers = "c 1 0 10: w x 1\n c 2 20 30: w x 2\n c 3 40 50: r x 1";
    expect(registers, &["G-single-realtime", "cyclic-versions-realtime"]);
    for text in [stale, registers] {
        assert!(
            check_with(text, &CheckerOptions { real_time: false, ..CheckerOptions::default() })
                .is_clean()
        );
    }
}

#[test]
fn session_that_misses_its_own_write_is_found() {
    // The intervals overlap, as in a pipeline: only the session orders them.
    expect("c 1 0 10: append x 1\n c 1 1 9: list x\n c 2 20 30: list x 1", &["G-single-session"]);
}

#[test]
fn lost_commit_is_a_cycle_with_the_final_read() {
    expect("c 1 0 10: append x 1\n c 2 20 30: list x", &["G-single-realtime"]);
    expect(
        "c 1 0 10: append x 1\n c 2 0 10: append x 2; append y 2\n c 3 20 30: list x 1; list y 2",
        &["G-single", "G-single-realtime"],
    );
}

#[test]
fn unknown_outcomes_may_be_committed_or_not() {
    expect("u 1 0 -: append x 1\n c 2 20 30: list x", &[]);
    let seen = expect("u 1 0 -: append x 1\n c 2 20 30: list x\n c 3 40 50: list x 1", &[]);
    assert_eq!((seen.counts.unknown, seen.counts.unknown_seen), (1, 1));
    // Only half of the transaction is visible.
    expect("u 1 0 -: append x 1; append y 1\n c 2 20 30: list x 1; list y", &["G-single"]);
    // The write appears after the time by which the transaction had certainly ended.
    expect(
        "u 1 0 10: append x 1\n c 2 20 30: list x\n c 3 40 50: list x 1",
        &["G-single-realtime"],
    );
}

#[test]
fn reads_of_unknown_transactions_count_if_committed() {
    // A crash lost 1, together with the transaction that had read it.
    let lost =
        "u 1 0 10: append x 1\n u 2 0 10: list x 1; append y 1\n c 3 20 30: list x; list y\n c 4 40 50: append x 2
         c 3 60 70: list x 2";
    expect(lost, &[]);
    // The reader survived, and therefore also what it had read.
    let survived = lost.replace("list y\n", "list y 1\n");
    expect(&survived, &["incompatible-order", "G0-realtime", "G-single-realtime"]);
}

#[test]
fn invalid_histories_are_rejected() {
    let read = |text: &str| jsonl::read(text.as_bytes()).unwrap_err();
    let twice = r#"{"session":1,"start":1,"end":2,"outcome":"committed","ops":[["append","x",1],["append","x",1]]}"#;
    assert_eq!(read(twice), "line 1: 1 is written twice to x");
    let mixed = r#"{"session":1,"start":1,"end":2,"outcome":"committed","ops":[["append","x",1],["w","x",2]]}"#;
    assert_eq!(read(mixed), "line 1: x is used as a list and as a register");
    let backwards = r#"{"session":1,"start":3,"end":2,"outcome":"committed","ops":[]}"#;
    assert!(
        read(&format!("\n{backwards}")).starts_with("line 2: the transaction that starts at 3")
    );
    for broken in [
        "{",
        "{}",
        r#"{"session":1,"start":1,"outcome":"committed","ops":[]}"#,
        r#"{"session":1,"start":1,"outcome":"unknown","ops":[["r"]]}"#,
    ] {
        assert!(read(broken).starts_with("line 1: "));
    }
}

#[test]
fn jsonl_round_trip_keeps_the_history() {
    let text = r#"{"end":20,"ops":[["append","x",1],["r","x",[1]],["w","y",5],["r","y",5],["r","z",null]],"outcome":"committed","session":1,"start":10}
{"end":null,"ops":[["r","x",[1,2]],["append","x",3]],"outcome":"unknown","session":2,"start":10}
{"end":30,"ops":[["append","x",2]],"outcome":"aborted","session":3,"start":20}
"#;
    let mut written = Vec::new();
    jsonl::write(&jsonl::read(text.as_bytes()).unwrap(), &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), text);
}

#[test]
fn long_cycles_are_found_and_shortened() {
    // Each transaction misses what the one before it appends; the first misses the append of the
    // last.
    let n = 30_000;
    let text = |i: u32| format!("c {i} 0 10: list k{i}; append k{} 1\n", (i + 1) % n);
    let report = check(&(0..n).map(text).collect::<String>());
    assert_eq!(report.anomalies().collect::<Vec<_>>(), [Anomaly::G2]);
    assert_eq!(report.findings[0].steps.len(), n as usize);
    assert!(report.to_string().contains("and 29968 more steps"));
}

#[test]
fn histories_can_be_built_without_a_file() {
    let mut history = History::new();
    let x = history.key("x");
    let txn = |session, outcome, value| clearway_history::Txn {
        session,
        start: 0,
        end: None,
        outcome,
        ops: vec![clearway_history::Op::Write { key: x, value }],
    };
    assert_eq!(history.push(txn(1, TxnOutcome::Unknown, 1)).unwrap().0, 0);
    assert_eq!(
        history.push(txn(1, TxnOutcome::Committed, 2)),
        Err(HistoryError::BadInterval { start: 0 })
    );
    let report = history.check(&CheckerOptions::default());
    assert!(report.is_clean() && report.anomalies().next() != Some(Anomaly::G0));
}
