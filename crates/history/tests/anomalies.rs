//! Each anomaly of the papers in the smallest history that shows it: the check must find exactly
//! this anomaly.

use clearway_history::{
    Anomaly, CheckerOptions, History, HistoryError, HistoryReport, Order, TxnOutcome, jsonl,
};

/// Checks a history of lines `OUTCOME SESSION START END: OP KEY VALUE; ...`. OUTCOME is c, a or u;
/// operations are `append x 1`, `list x 1 2`, `w x 1`, `r x 1`, `r x -`, `add x 1`, `sum x 1`.
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
    // Only a later reader shows the order of blind writes to registers.
    let writes = "c 1 0 10: w x 1; w y 1\n c 2 0 10: w x 2; w y 2\n";
    let report = expect(&format!("{writes} c 3 20 30: r x 2; r y 1"), &["G0-realtime"]);
    let reason = "T1 wrote 2 to y, before T0 wrote 1 in real time";
    assert!(report.to_string().contains(reason), "{report}");
    expect(&format!("{writes} c 3 20 30: r x 2; r y 2"), &[]);
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
    // Reads of what the transaction itself appends or adds later.
    let report = expect("c 1 0 10: list x 1; append x 1", &["internal"]);
    let text = "T0 read a list with 1 from x, but its own operations imply a list without 1";
    assert!(report.to_string().contains(text), "{report}");
    expect("c 1 0 10: append x 1; list x 1 2; append x 2", &["internal"]);
    let report = expect("c 1 0 10: sum c 1; add c 1", &["internal"]);
    let text = "T0 read a sum with 1 from c, but its own operations imply a sum without 1";
    assert!(report.to_string().contains(text), "{report}");
    expect("c 1 0 10: add c 1; sum c 3; add c 2", &["internal"]);
    expect("c 1 0 10: r x 1; w x 1", &["cyclic-versions"]);
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
fn additions_commute() {
    expect(
        "c 1 0 10: add c 1; sum c 1
         c 2 11 20: sum c 1; add c 2; add c 4; sum c 7
         a 2 21 22: add c 8
         c 1 23 40: add c 16; sum c 23
         c 2 23 40: add c 32
         c 3 41 50: sum c 55; sum d 0",
        &[],
    );
    // But all readers must see them in one order.
    let fork = "c 1 0 10: add c 1\n c 2 0 10: add c 2\n c 3 0 10: sum c 1\n c 4 0 10: sum c 2";
    expect(fork, &["G2"]);
    expect(&fork.replace("sum c 2", "sum c 3"), &[]);
}

#[test]
fn addition_of_an_aborted_transaction_is_g1a() {
    let history = |sum| format!("a 1 0 10: add c 1; add c 4\n c 2 0 10: sum c {sum}");
    let report = expect(&history(4), &["G1a"]);
    let text = "T1 read 4 from c, with the 4 of T0, which was rolled back";
    assert!(report.to_string().contains(text), "{report}");
    expect(&history(5), &["G1a"]);
    expect(&history(0), &[]);
}

#[test]
fn part_of_a_transactions_additions_is_g1b() {
    let history = |sum| format!("c 1 0 10: add c 1; add c 2\n c 2 0 10: sum c {sum}");
    // Also read skew, as with lists.
    let report = expect(&history(2), &["G1b", "G-single"]);
    let text = "T1 read 2 from c, with the 2 that T0 added, but without its 1";
    assert!(report.to_string().contains(text), "{report}");
    expect(&history(0), &[]);
    expect(&history(3), &[]);
}

#[test]
fn amounts_that_nobody_added_are_garbage_reads() {
    let history = |sum| format!("c 1 0 10: add c 1\n c 2 0 10: sum c {sum}");
    let report = expect(&history(13), &["garbage-read"]);
    let text = "T1 read 13 from c, but no transaction added 4, 8";
    assert!(report.to_string().contains(text), "{report}");
    expect(&history(-1), &["garbage-read"]);
    expect(&history(1), &[]);
    // Another counter has other additions.
    expect("c 1 0 10: add d 1\n c 2 0 10: sum c 1", &["garbage-read"]);
}

#[test]
fn a_transaction_sees_its_own_additions() {
    expect("c 1 0 10: add c 1; sum c 1; add c 2; sum c 3", &[]);
    expect("c 1 0 10: add c 1; sum c 0", &["internal", "lost-addition"]);
    expect("c 1 0 10: sum c 0; add c 1; sum c 0", &["internal", "lost-addition"]);
    let beside = "c 1 0 10: add c 1; sum c 3\n c 2 0 10: add c 2";
    expect(beside, &[]);
    expect(&beside.replace("sum c 3", "sum c 2"), &["internal", "lost-addition"]);
    // A read that is not repeatable.
    expect("c 1 0 10: sum c 0; add c 2; sum c 3\n c 2 0 10: add c 1", &["internal", "G-single"]);
}

#[test]
fn cycles_through_counters_are_found() {
    expect("c 1 0 10: add c 1; sum d 1\n c 2 0 10: add d 1; sum c 1", &["G1c"]);
    let report = expect("c 1 0 10: sum c 0; sum d 1\n c 2 0 10: add c 1; add d 1", &["G-single"]);
    for reason in [
        "T0 read 0 from c, without the 1 that T1 added",
        "T0 read 1 from d, with the 1 that T1 added",
    ] {
        assert!(report.to_string().contains(reason), "{report}");
    }
    expect("c 1 0 10: sum c 0; add d 1\n c 2 0 10: sum d 0; add c 1", &["G2"]);
    expect("c 1 0 10: sum c 0; add d 1\n c 2 0 10: sum d 1; add c 1", &[]);
    // With lists and registers.
    expect("c 1 0 10: sum c 0; append x 1\n c 2 0 10: list x; add c 1", &["G2"]);
    expect("c 1 0 10: sum c 0; r y 1\n c 2 0 10: w y 1; add c 1", &["G-single"]);
}

#[test]
fn many_readers_of_one_sum_are_in_cycles() {
    // A hidden node replaces the edges of so many readers.
    let mut text: String =
        (0..8).map(|n| format!("c {n} 0 10: add c {}; add d {}\n", 1 << n, 1 << n)).collect();
    text += &(8..28).map(|n| format!("c {n} 0 10: sum c 255; sum d 255\n")).collect::<String>();
    expect(&text, &[]);
    text += "c 28 0 10: sum c 255; sum d 254\n";
    let report = expect(&text, &["G-single"]);
    assert!(
        report.to_string().contains("T28 read 254 from d, without the 1 that T0 added"),
        "{report}"
    );
}

#[test]
fn two_additions_to_one_version_are_a_lost_update() {
    // Snapshot isolation forbids it, although no addition is lost.
    let history = |sum| {
        format!("c 1 0 10: sum c 0; add c 1\n c 2 0 10: sum c {sum}; add c 2\n c 3 20 30: sum c 3")
    };
    expect(&history(0), &["lost-update", "G2"]);
    expect(&history(1), &[]);
}

#[test]
fn lost_additions_are_found() {
    let lost = "c 1 0 10: add c 1\n c 2 20 30: sum c 0";
    let report = expect(lost, &["lost-addition-realtime", "G-single-realtime"]);
    let text =
        "T1 started at 20 and read 0 from c, without the 1 that T0 had added before it ended at 10";
    assert!(report.to_string().contains(text), "{report}");
    let options = CheckerOptions { real_time: false, ..CheckerOptions::default() };
    assert!(check_with(lost, &options).is_clean());
    expect(&lost.replace("sum c 0", "sum c 1"), &[]);
    // It may have come after the read.
    expect("c 1 0 10: add c 1\n c 2 10 30: sum c 0", &[]);
    // A rollback beside it must not take it back.
    expect(
        "c 1 0 10: add c 1\n a 2 0 10: add c 2\n c 3 0 11: sum c 1\n c 4 20 30: sum c 0",
        &["lost-addition-realtime", "G-single-realtime"],
    );
}

#[test]
fn additions_with_unknown_outcomes_may_be_committed_or_not() {
    let unseen = "u 1 0 -: add c 1\n c 2 20 30: sum c 0";
    expect(unseen, &[]);
    let seen = expect(&format!("{unseen}\n c 3 40 50: sum c 1"), &[]);
    assert_eq!((seen.counts.unknown, seen.counts.unknown_seen), (1, 1));
    // Only half of the transaction is visible.
    expect("u 1 0 -: add c 1; add d 1\n c 2 20 30: sum c 1; sum d 0", &["G-single"]);
    // The addition appears after the time by which the transaction had certainly ended.
    expect(
        "u 1 0 10: add c 1\n c 2 20 30: sum c 0\n c 3 40 50: sum c 1",
        &["lost-addition-realtime", "G-single-realtime"],
    );
    // A crash lost 1, together with the transaction that had read it.
    let lost = "u 1 0 10: add c 1\n u 2 0 10: sum c 1; add d 1\n c 3 20 30: sum c 0; sum d 0";
    expect(lost, &[]);
    // The reader survived, and therefore also what it had read.
    expect(
        &lost.replace("sum d 0", "sum d 1"),
        &["lost-addition-realtime", "G-single", "G-single-realtime"],
    );
    // The read of a transaction that never committed counts for nothing.
    expect("u 1 0 10: sum c 8\n u 2 0 10: add c 1; sum c 0\n c 3 20 30: sum c 0", &[]);
}

#[test]
fn invalid_histories_are_rejected() {
    let read = |text: &str| jsonl::read(text.as_bytes()).unwrap_err();
    let twice = r#"{"session":1,"start":1,"end":2,"outcome":"committed","ops":[["append","x",1],["append","x",1]]}"#;
    assert_eq!(read(twice), "line 1: 1 is written twice to x");
    let mixed = r#"{"session":1,"start":1,"end":2,"outcome":"committed","ops":[["append","x",1],["w","x",2]]}"#;
    assert_eq!(read(mixed), "line 1: x is used as a list and as a register");
    let ops = |ops: &str| {
        read(&format!(r#"{{"session":1,"start":1,"end":2,"outcome":"committed","ops":[{ops}]}}"#))
    };
    assert_eq!(
        ops(r#"["add","x",1],["r","x",2]"#),
        "line 1: x is used as a counter and as a register"
    );
    assert_eq!(ops(r#"["add","x",4],["add","x",4]"#), "line 1: 4 is written twice to x");
    for value in ["0", "3", "9223372036854775808"] {
        let expected = format!("line 1: {value} is added to x, but is no power of two up to 2^62");
        assert_eq!(ops(&format!(r#"["add","x",{value}]"#)), expected);
    }
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
{"end":40,"ops":[["add","c",4611686018427387904],["sum","c",-1]],"outcome":"committed","session":3,"start":30}
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
