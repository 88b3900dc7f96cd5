//! Histories as text: one JSON object per line, one line per transaction.
//!
//! ```json
//! {"session":1,"start":10,"end":20,"outcome":"committed","ops":[["append","x",1],["r","x",[1]],["w","y",5],["r","z",null],["add","c",4],["sum","c",5]]}
//! ```
//!
//! | member | meaning |
//! |---|---|
//! | `session` | number of the session; its transactions run in the order of their starts |
//! | `start`, `end` | unsigned integers of one monotonic clock; `end` may be `null` or absent unless committed |
//! | `outcome` | `"committed"`, `"aborted"` or `"unknown"` |
//! | `ops` | in order, see below |
//!
//! | operation | meaning |
//! |---|---|
//! | `["append", KEY, VALUE]`, `["r", KEY, [VALUE, ...]]` | appended to a list; read it |
//! | `["w", KEY, VALUE]`, `["r", KEY, VALUE or null]` | wrote a register; read it |
//! | `["add", KEY, VALUE]`, `["sum", KEY, SUM]` | added a power of two to a counter; read it |
//!
//! A KEY is a string or an unsigned integer, a VALUE is an unsigned integer, a SUM is a signed
//! integer of 64 bits. Empty lines are skipped. The lines may be in any order.

use crate::history::History;
use crate::txn::{Op, Txn, TxnOutcome};
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};

/// Reads a history. An error message has the line number.
pub fn read(input: impl BufRead) -> Result<History, String> {
    let mut history = History::new();
    for (number, line) in input.lines().enumerate() {
        let failed = |why: String| format!("line {}: {why}", number + 1);
        let line = line.map_err(|e| failed(e.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(&line).map_err(|e| failed(e.to_string()))?;
        let txn = txn(&mut history, &value).map_err(failed)?;
        history.push(txn).map_err(|e| failed(e.to_string()))?;
    }
    Ok(history)
}

/// Writes a history.
pub fn write(history: &History, mut output: impl Write) -> io::Result<()> {
    for txn in history.txns() {
        let ops: Vec<Value> = txn.ops.iter().map(|op| op_value(history, op)).collect();
        let outcome = match txn.outcome {
            TxnOutcome::Committed => "committed",
            TxnOutcome::Aborted => "aborted",
            TxnOutcome::Unknown => "unknown",
        };
        let line = json!({
            "session": txn.session, "start": txn.start, "end": txn.end, "outcome": outcome, "ops": ops,
        });
        writeln!(output, "{line}")?;
    }
    output.flush()
}

fn op_value(history: &History, op: &Op) -> Value {
    match op {
        Op::Append { key, value } => json!(["append", history.name(*key), value]),
        Op::List { key, values } => json!(["r", history.name(*key), values]),
        Op::Write { key, value } => json!(["w", history.name(*key), value]),
        Op::Read { key, value } => json!(["r", history.name(*key), value]),
        Op::Add { key, value } => json!(["add", history.name(*key), value]),
        Op::Sum { key, value } => json!(["sum", history.name(*key), value]),
    }
}

fn txn(history: &mut History, value: &Value) -> Result<Txn, String> {
    let number = |name: &str| {
        value[name].as_u64().ok_or_else(|| format!("`{name}` is not an unsigned integer"))
    };
    let outcome = match value["outcome"].as_str() {
        Some("committed") => TxnOutcome::Committed,
        Some("aborted") => TxnOutcome::Aborted,
        Some("unknown") => TxnOutcome::Unknown,
        _ => return Err("`outcome` is not committed, aborted or unknown".into()),
    };
    let session =
        u32::try_from(number("session")?).map_err(|_| "`session` is greater than 4294967295")?;
    let end = if value["end"].is_null() { None } else { Some(number("end")?) };
    let ops = value["ops"].as_array().ok_or("`ops` is not an array")?;
    let ops = ops
        .iter()
        .map(|value| op(history, value).ok_or_else(|| format!("{value} is not an operation")));
    Ok(Txn {
        session,
        start: number("start")?,
        end,
        outcome,
        ops: ops.collect::<Result<_, String>>()?,
    })
}

fn op(history: &mut History, value: &Value) -> Option<Op> {
    let [verb, key, value] = value.as_array()?.as_slice() else { return None };
    let key = match key {
        Value::String(name) => history.key(name),
        Value::Number(number) if number.is_u64() => history.key(&number.to_string()),
        _ => return None,
    };
    match (verb.as_str()?, value) {
        ("append", value) => Some(Op::Append { key, value: value.as_u64()? }),
        ("w", value) => Some(Op::Write { key, value: value.as_u64()? }),
        ("add", value) => Some(Op::Add { key, value: value.as_u64()? }),
        ("sum", value) => Some(Op::Sum { key, value: value.as_i64()? }),
        ("r", Value::Null) => Some(Op::Read { key, value: None }),
        ("r", Value::Array(values)) => {
            Some(Op::List { key, values: values.iter().map(Value::as_u64).collect::<Option<_>>()? })
        }
        ("r", value) => Some(Op::Read { key, value: Some(value.as_u64()?) }),
        _ => None,
    }
}
