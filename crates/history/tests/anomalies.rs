//! Each anomaly of the papers, in the smallest history that shows it: it is found, as what it is,
//! and nothing else is.

use clearway_history::{
    Anomaly, CheckOptions, History, HistoryError, Order, Outcome, Report, jsonl,
};

/// Checks a history of lines `OUTCOME SESSION START END: OP KEY VALUE; ...` in short form: outcome
/// c, a or u; `append x 1`, `list x 1 2`, `w x 1`, `r x 1`, `r x -`.
fn check_with(text: &str, options: &CheckOptions) -> Report {
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
        _ => panic!("`{text}` is no operation"),
    }
}

fn check(text: &str) -> Report {
    check_with(text, &CheckOptions::default())
}

/// The history shows exactly these anomalies.
fn expect(text: &str, expected: &[&str]) -> Report {
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
    // Adya: the two objects hold the writes in opposite orders.
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
    // Also read skew: the reader has seen a part of the writer's work.
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
    assert!(
        report.to_string().contains("T1 read [1] of x, the 1 of which T0 appended"),
        "{report}"
    );
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
        report.to_string().contains("T0 read [] of x, without the 1 that T1 appended"),
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
fn reads_that_change_within_a_transaction_are_internal() {
    expect("c 1 0 10: append x 1; list x", &["internal"]);
    expect("c 1 0 10: w x 1; r x 2\n c 2 0 10: w x 2", &["internal"]);
    // Non-repeatable read: also a cycle.
    expect("c 1 0 10: list x; list x 1\n c 2 0 10: append x 1", &["internal", "G-single"]);
}

#[test]
fn values_that_nobody_wrote_are_garbage() {
    expect("c 1 0 10: list x 7", &["garbage-read"]);
    expect("c 1 0 10: r x 7", &["garbage-read"]);
}

#[test]
fn an_element_that_is_there_twice_is_found() {
    expect("c 1 0 10: append x 1\n c 2 20 30: list x 1 1", &["duplicate-elements"]);
}

#[test]
fn reads_that_no_order_explains_are_incompatible() {
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
fn versions_in_a_circle_are_found() {
    expect(
        "c 1 0 10: r x 1; w x 2
         c 2 0 10: r x 2; w x 1",
        &["cyclic-versions", "G1c"],
    );
    // Two blind writes at once; later reads see the one, the other, and the one again.
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
fn a_stale_read_needs_real_time_to_be_found() {
    let stale = "c 1 0 10: append x 1\n c 2 20 30: list x\n c 3 40 50: list x 1";
    let report = expect(stale, &["G-single-realtime"]);
    assert!(report.to_string().contains("T0 had ended at 10 when T1 began at 20"), "{report}");
    let registers = "c 1 0 10: w x 1\n c 2 20 30: w x 2\n c 3 40 50: r x 1";
    expect(registers, &["G-single-realtime", "cyclic-versions-realtime"]);
    for text in [stale, registers] {
        assert!(
            check_with(text, &CheckOptions { real_time: false, ..CheckOptions::default() })
                .is_clean()
        );
    }
}

#[test]
fn a_session_that_forgets_its_own_write_is_found() {
    // The intervals overlap, as in a pipeline: only the session orders them.
    expect("c 1 0 10: append x 1\n c 1 1 9: list x\n c 2 20 30: list x 1", &["G-single-session"]);
}

#[test]
fn a_lost_commit_is_a_cycle_with_the_final_read() {
    expect("c 1 0 10: append x 1\n c 2 20 30: list x", &["G-single-realtime"]);
    expect(
        "c 1 0 10: append x 1\n c 2 0 10: append x 2; append y 2\n c 3 20 30: list x 1; list y 2",
        &["G-single", "G-single-realtime"],
    );
}

#[test]
fn an_unknown_outcome_may_have_happened_or_not() {
    expect("u 1 0 -: append x 1\n c 2 20 30: list x", &[]);
    let seen = expect("u 1 0 -: append x 1\n c 2 20 30: list x\n c 3 40 50: list x 1", &[]);
    assert_eq!((seen.counts.unknown, seen.counts.unknown_seen), (1, 1));
    // Half of it is there.
    expect("u 1 0 -: append x 1; append y 1\n c 2 20 30: list x 1; list y", &["G-single"]);
    // It came back after the moment by which it was over.
    expect(
        "u 1 0 10: append x 1\n c 2 20 30: list x\n c 3 40 50: list x 1",
        &["G-single-realtime"],
    );
}

#[test]
fn what_an_unknown_transaction_read_counts_only_if_it_happened() {
    // 1 was lost with the crash, together with the transaction that had read it.
    let lost =
        "u 1 0 10: append x 1\n u 2 0 10: list x 1; append y 1\n c 3 20 30: list x; list y\n c 4 40 50: append x 2
         c 3 60 70: list x 2";
    expect(lost, &[]);
    // The reader survived, and with it what it had read.
    let survived = lost.replace("list y\n", "list y 1\n");
    expect(&survived, &["incompatible-order", "G0-realtime", "G-single-realtime"]);
}

#[test]
fn histories_that_cannot_be_judged_are_refused() {
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
fn a_history_survives_its_file() {
    let text = r#"{"end":20,"ops":[["append","x",1],["r","x",[1]],["w","y",5],["r","y",5],["r","z",null]],"outcome":"committed","session":1,"start":10}
{"end":null,"ops":[["r","x",[1,2]],["append","x",3]],"outcome":"unknown","session":2,"start":10}
{"end":30,"ops":[["append","x",2]],"outcome":"aborted","session":3,"start":20}
"#;
    let mut written = Vec::new();
    jsonl::write(&jsonl::read(text.as_bytes()).unwrap(), &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), text);
}

#[test]
fn a_cycle_of_many_transactions_is_found_and_cut_short() {
    // Each transaction misses what the one before it appends; the first misses the last one's.
    let n = 30_000;
    let text = |i: u32| format!("c {i} 0 10: list k{i}; append k{} 1\n", (i + 1) % n);
    let report = check(&(0..n).map(text).collect::<String>());
    assert_eq!(report.anomalies().collect::<Vec<_>>(), [Anomaly::G2]);
    assert_eq!(report.findings[0].steps.len(), n as usize);
    assert!(report.to_string().contains("and 29968 more steps"));
}

#[test]
fn a_history_is_built_by_calls() {
    let mut history = History::new();
    let x = history.key("x");
    let txn = |session, outcome, value| clearway_history::Txn {
        session,
        start: 0,
        end: None,
        outcome,
        ops: vec![clearway_history::Op::Write { key: x, value }],
    };
    assert_eq!(history.push(txn(1, Outcome::Unknown, 1)).unwrap().0, 0);
    assert_eq!(
        history.push(txn(1, Outcome::Committed, 2)),
        Err(HistoryError::BadInterval { start: 0 })
    );
    let report = history.check(&CheckOptions::default());
    assert!(report.is_clean() && report.anomalies().next() != Some(Anomaly::G0));
}
