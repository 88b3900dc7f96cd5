//! Session settings: the parameters of SET, SHOW, RESET and the startup packet.
//!
//! Invariants
//! 1. An aborted transaction restores the settings to their values before it. A committed one drops
//!    only its SET LOCALs. ROLLBACK TO restores the values at the savepoint.
//! 2. Every value has been checked; `client_encoding` is always one that needs no conversion.

mod units;
mod value;

use clearway_coordinator::Characteristics;
use clearway_ir::search_path::SearchPath;
use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_ir::{SessionEnv, Zone};
use clearway_types::{SqlError, SqlResult, SqlState};
use units::Unit;
use value::{Kind, MS};

struct Setting {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    /// Changes are reported to the client (ParameterStatus).
    reported: bool,
}

const fn s(name: &'static str, default: &'static str, kind: Kind, reported: bool) -> Setting {
    Setting { name, default, kind, reported }
}

const LEVELS: Kind = Kind::OneOf(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning",
    "error",
]);
const SYNC: Kind = Kind::OneOf(&[
    "on",
    "off",
    "local",
    "remote_write",
    "remote_apply",
    "true",
    "false",
    "yes",
    "no",
    "1",
    "0",
]);
const QUOTE: Kind =
    Kind::NotOff(&["safe_encoding", "on", "off", "true", "false", "yes", "no", "1", "0"]);
const INTERVALS: Kind = Kind::First(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]);

#[rustfmt::skip]
static SETTINGS: &[Setting] = &[
    s("application_name", "", Kind::Text, true),
    s("client_encoding", "UTF8", Kind::Encoding, true),
    s("DateStyle", "ISO, MDY", Kind::DateStyle, true),
    s("default_transaction_read_only", "off", Kind::Bool, true),
    s("in_hot_standby", "off", Kind::Fixed, true),
    s("integer_datetimes", "on", Kind::Fixed, true),
    s("IntervalStyle", "postgres", INTERVALS, true),
    s("is_superuser", "on", Kind::Fixed, true),
    s("server_encoding", "UTF8", Kind::Fixed, true),
    s("server_version", "15.0", Kind::Fixed, true),
    s("session_authorization", "", Kind::Fixed, true),
    s("standard_conforming_strings", "on", Kind::On, true),
    s("TimeZone", "UTC", Kind::Zone, true),
    s("backslash_quote", "safe_encoding", QUOTE, false),
    s("bytea_output", "hex", Kind::OneOf(&["hex", "escape"]), false),
    s("check_function_bodies", "on", Kind::Bool, false),
    s("client_min_messages", "notice", LEVELS, false),
    s("default_table_access_method", "heap", Kind::TableMethod, false),
    s("default_tablespace", "", Kind::Tablespace, false),
    s("default_transaction_deferrable", "off", Kind::Bool, false),
    s("default_transaction_isolation", "read committed", Kind::Isolation, false),
    s("escape_string_warning", "on", Kind::Bool, false),
    s("extra_float_digits", "1", Kind::FloatDigits, false),
    s("idle_in_transaction_session_timeout", "0", MS, false),
    s("jit", "off", Kind::Bool, false),
    s("lc_collate", "C", Kind::Fixed, false),
    s("lc_ctype", "C", Kind::Fixed, false),
    s("lc_messages", "C", Kind::Text, false),
    s("lc_monetary", "C", Kind::Text, false),
    s("lc_numeric", "C", Kind::Text, false),
    s("lc_time", "C", Kind::Text, false),
    s("lock_timeout", "0", MS, false),
    s("max_identifier_length", "63", Kind::Fixed, false),
    s("row_security", "on", Kind::Bool, false),
    s("search_path", "\"$user\", public", Kind::Text, false),
    s("seq_page_cost", "1", Kind::Float, false),
    s("random_page_cost", "4", Kind::Float, false),
    s("server_version_num", "150000", Kind::Fixed, false),
    s("statement_timeout", "0", MS, false),
    s("synchronous_commit", "on", SYNC, false),
    s("transaction_deferrable", "off", Kind::Bool, false),
    s("transaction_isolation", "read committed", Kind::Isolation, false),
    s("transaction_read_only", "off", Kind::Bool, false),
    s("work_mem", "4MB", Kind::Int(Unit::KiB, 64, i32::MAX), false),
    s("xmloption", "content", Kind::OneOf(&["content", "document"]), false),
];

/// The settings that show the transaction's characteristics.
const CHARACTERISTICS: [&str; 3] =
    ["transaction_isolation", "transaction_read_only", "transaction_deferrable"];

/// One session's settings.
pub struct Settings {
    /// In the order of `SETTINGS`, then custom settings, whose names contain a dot.
    values: Vec<(String, String)>,
    /// The values that RESET restores.
    initial: Vec<(String, String)>,
    zone: Zone,
    /// Set in a transaction that has changed a setting.
    txn: Option<Changed>,
    /// The transaction's savepoints and the values at each; `None` if nothing had been changed.
    savepoints: Vec<(String, Option<Saved>)>,
}

type Values = Vec<(String, String)>;

/// A transaction's changes of settings.
struct Changed {
    /// The values after an abort.
    before: Values,
    /// The values after a commit: `values` without the SET LOCALs.
    kept: Values,
}

/// The values after ROLLBACK TO.
struct Saved {
    values: Values,
    kept: Values,
}

fn find(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|s| s.name.eq_ignore_ascii_case(name))
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

/// How long SET's value lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetScope {
    /// SET: until the session ends.
    Session,
    /// SET LOCAL: until the transaction ends.
    Transaction,
}

impl Settings {
    /// Creates the defaults for a session of `user`.
    pub fn new(user: &str, synchronous_commit: bool, isolation: Isolation) -> Self {
        let mut values: Vec<_> =
            SETTINGS.iter().map(|s| (s.name.to_owned(), s.default.to_owned())).collect();
        let mut put = |name: &str, value: &str| {
            if let Some(i) = find(name) {
                value.clone_into(&mut values[i].1);
            }
        };
        put("session_authorization", user);
        put("synchronous_commit", if synchronous_commit { "on" } else { "off" });
        put("default_transaction_isolation", isolation.name());
        put("transaction_isolation", isolation.name());
        Self {
            initial: values.clone(),
            values,
            zone: Zone::utc(),
            txn: None,
            savepoints: Vec::new(),
        }
    }

    /// Ends the startup packet: RESET restores the values set up to here.
    pub fn started(&mut self) {
        self.initial.clone_from(&self.values);
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.values.iter().position(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// Returns the value of a setting.
    pub fn get(&self, name: &str) -> SqlResult<&str> {
        let i = self.position(name).ok_or_else(|| unrecognized(name))?;
        Ok(&self.values[i].1)
    }

    /// Returns all settings.
    pub fn all(&self) -> &[(String, String)] {
        &self.values
    }

    /// Returns the settings that are reported to the client.
    pub fn reported(&self) -> impl Iterator<Item = (&str, &str)> {
        let reported = |i: &usize| SETTINGS.get(*i).is_some_and(|s| s.reported);
        (0..self.values.len())
            .filter(reported)
            .map(|i| (self.values[i].0.as_str(), self.values[i].1.as_str()))
    }

    /// Changes a setting; `None` restores its value at the session's start.
    pub fn set(&mut self, name: &str, value: Option<&str>, scope: SetScope) -> SqlResult<()> {
        let (i, value) = match (self.position(name), value) {
            // As in PostgreSQL, a name with a dot is a custom setting.
            (None, value) if name.contains('.') => {
                self.values.push((name.to_owned(), String::new()));
                if let Some(txn) = &mut self.txn {
                    txn.kept.push((name.to_owned(), String::new()));
                }
                (self.values.len() - 1, value.unwrap_or("").to_owned())
            }
            (None, _) => return Err(unrecognized(name)),
            (Some(i), None) => (i, self.initially(i)),
            (Some(i), Some(value)) => (i, self.checked(i, value)?),
        };
        if let Some(txn) = self.txn.as_mut().filter(|_| scope == SetScope::Session) {
            txn.kept[i].1.clone_from(&value);
        }
        self.store(i, value);
        Ok(())
    }

    /// Returns the value that a change would store; `None` means the value that RESET restores.
    pub fn check(&self, name: &str, value: Option<&str>) -> SqlResult<Option<String>> {
        match self.position(name) {
            Some(i) => value.map(|value| self.checked(i, value)).transpose(),
            None if name.contains('.') => Ok(value.map(str::to_owned)),
            None => Err(unrecognized(name)),
        }
    }

    fn checked(&self, i: usize, value: &str) -> SqlResult<String> {
        SETTINGS
            .get(i)
            .map_or_else(|| Ok(value.to_owned()), |s| value::check(s.name, s.kind, value))
    }

    /// Returns the value that RESET restores.
    fn initially(&self, i: usize) -> String {
        self.initial.get(i).map_or_else(String::new, |(_, v)| v.clone())
    }

    fn store(&mut self, i: usize, value: String) {
        if self.values[i].0 == "TimeZone" {
            self.zone = zone(&value).unwrap_or_default();
        }
        self.values[i].1 = value;
    }

    /// Executes RESET ALL: restores everything except the session's user and the transaction's
    /// characteristics.
    pub fn reset_all(&mut self) {
        for i in 0..self.values.len() {
            let name = self.values[i].0.as_str();
            if name == "session_authorization" || CHARACTERISTICS.contains(&name) {
                continue;
            }
            let value = self.initially(i);
            if let Some(txn) = &mut self.txn {
                txn.kept[i].1.clone_from(&value);
            }
            self.store(i, value);
        }
    }

    /// Prepares for a change inside a transaction.
    pub fn enter_txn(&mut self) {
        let values = &self.values;
        self.txn.get_or_insert_with(|| Changed { before: values.clone(), kept: values.clone() });
    }

    /// Executes SAVEPOINT.
    pub fn savepoint(&mut self, name: &str) {
        let saved = self
            .txn
            .as_ref()
            .map(|txn| Saved { values: self.values.clone(), kept: txn.kept.clone() });
        self.savepoints.push((name.to_owned(), saved));
    }

    /// Returns the number of savepoints.
    pub fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Returns the index of the savepoint with this name.
    pub fn find_savepoint(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|(n, _)| n == name)
    }

    /// Executes RELEASE: keeps changes made since the savepoint.
    pub fn release(&mut self, name: &str) {
        if let Some(at) = self.find_savepoint(name) {
            self.savepoints.truncate(at);
        }
    }

    /// Executes ROLLBACK TO. Returns true if settings changed.
    pub fn rollback_to(&mut self, name: &str) -> bool {
        let Some(at) = self.find_savepoint(name) else { return false };
        self.savepoints.truncate(at + 1);
        let Some(txn) = &mut self.txn else { return false };
        let (back, kept) = match &self.savepoints[at].1 {
            Some(saved) => (saved.values.clone(), saved.kept.clone()),
            None => (txn.before.clone(), txn.before.clone()),
        };
        txn.kept = with_newer(kept, &self.values);
        self.go_back(back);
        true
    }

    /// Ends the transaction. Returns true if settings changed.
    pub fn end_txn(&mut self, committed: bool) -> bool {
        self.savepoints.clear();
        let Some(Changed { before, kept }) = self.txn.take() else { return false };
        self.go_back(if committed { kept } else { before });
        true
    }

    /// Restores values, except the transaction's characteristics: they follow the engine
    /// ([`Settings::put_characteristics`]). A custom setting that is newer than `to` becomes empty:
    /// as in PostgreSQL, its name stays known.
    fn go_back(&mut self, to: Values) {
        for (i, (name, value)) in with_newer(to, &self.values).into_iter().enumerate() {
            if !CHARACTERISTICS.contains(&name.as_str()) {
                self.store(i, value);
            }
        }
    }

    /// Returns true if COMMIT waits for the log.
    pub fn synchronous_commit(&self) -> bool {
        !matches!(self.get("synchronous_commit"), Ok("off"))
    }

    /// Returns true if `client_min_messages` lets a warning through, or else a notice.
    pub fn shows_notice(&self, is_warning: bool) -> bool {
        match self.get("client_min_messages") {
            Ok("error") => false,
            Ok("warning") => is_warning,
            _ => true,
        }
    }

    /// Returns a time setting in milliseconds.
    pub fn milliseconds(&self, name: &str) -> u64 {
        self.get(name)
            .ok()
            .and_then(|value| units::parse(value, Unit::Ms).ok())
            .map_or(0, |ms| u64::try_from(ms).unwrap_or(0))
    }

    /// Returns the default characteristics of transactions.
    pub fn default_characteristics(&self) -> Characteristics {
        Characteristics {
            isolation: self
                .get("default_transaction_isolation")
                .ok()
                .and_then(Isolation::named)
                .unwrap_or_default(),
            read_only: self.get("default_transaction_read_only") == Ok("on"),
            deferrable: self.get("default_transaction_deferrable") == Ok("on"),
        }
    }

    /// Returns the transaction options that a SET of `transaction_isolation` or its siblings stands
    /// for; `None` for other settings.
    pub fn characteristic(&self, name: &str, value: Option<&str>) -> SqlResult<Option<TxnOptions>> {
        let mut options = TxnOptions::default();
        let value = |settings: &Self| settings.check(name, value).map(Option::unwrap_or_default);
        match name {
            "transaction_isolation" => {
                options.isolation = Some(Isolation::named(&value(self)?).unwrap_or_default())
            }
            "transaction_read_only" => options.read_only = Some(value(self)? == "on"),
            "transaction_deferrable" => options.deferrable = Some(value(self)? == "on"),
            _ => return Ok(None),
        }
        Ok(Some(options))
    }

    /// Copies the transaction's characteristics to `transaction_isolation` and its siblings.
    pub fn put_characteristics(&mut self, now: Characteristics) {
        let switch = |on| if on { "on" } else { "off" };
        for (name, value) in [
            ("transaction_isolation", now.isolation.name()),
            ("transaction_read_only", switch(now.read_only)),
            ("transaction_deferrable", switch(now.deferrable)),
        ] {
            if let Some(i) = self.position(name) {
                self.store(i, value.to_owned());
            }
        }
    }

    /// Returns the session's part of the expression environment.
    pub fn env(&self, user: &str, database: &str, pid: i32) -> SessionEnv {
        SessionEnv {
            user: user.to_owned(),
            database: database.to_owned(),
            pid,
            zone: self.zone.clone(),
            path: SearchPath::new(self.get("search_path").unwrap_or_default(), user),
            settings: self.values.clone(),
            backends: None,
        }
    }
}

/// Adds the custom settings that `now` has and `earlier` lacks, as empty texts.
fn with_newer(mut earlier: Values, now: &Values) -> Values {
    let newer = now.iter().skip(earlier.len());
    earlier.extend(newer.map(|(name, _)| (name.clone(), String::new())));
    earlier
}

/// Returns the time zone for a stored value, which is spelled as SHOW prints it.
fn zone(value: &str) -> Option<Zone> {
    Zone::setting(value).map(|(zone, _)| zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_normalized() {
        let mut s = Settings::new("me", true, Isolation::default());
        assert_eq!(s.reported().count(), 13);
        for utf8 in ["'utf-8'", "UTF8", "unicode", "utf_8"] {
            s.set("client_encoding", Some(utf8), SetScope::Session).unwrap();
            assert_eq!(s.get("CLIENT_ENCODING").unwrap(), "UTF8");
        }
        assert_eq!(
            s.set("client_encoding", Some("klingon"), SetScope::Session).unwrap_err().state(),
            SqlState::INVALID_PARAMETER
        );
        s.set("datestyle", Some("ISO"), SetScope::Session).unwrap();
        assert_eq!(s.get("datestyle").unwrap(), "ISO, MDY");
        assert_eq!(
            s.set("nonsense", Some("1"), SetScope::Session).unwrap_err().state(),
            SqlState::UNDEFINED_OBJECT
        );
        assert!(s.set("server_version", Some("1"), SetScope::Session).is_err());
        s.set("my.own", Some("x"), SetScope::Session).unwrap();
        assert_eq!(s.get("my.own").unwrap(), "x");
        s.set("client_min_messages", Some("debug"), SetScope::Session).unwrap();
        assert_eq!(s.get("client_min_messages").unwrap(), "debug2");
        s.set("statement_timeout", Some("2s"), SetScope::Session).unwrap();
        assert_eq!(s.milliseconds("statement_timeout"), 2000);
    }

    #[test]
    fn invariant_1_transactions_restore_settings() {
        let mut s = Settings::new("me", true, Isolation::default());
        let own = |s: &mut Settings, value, scope| {
            s.enter_txn();
            s.set("application_name", Some(value), scope).unwrap();
        };
        let name = |s: &Settings| s.get("application_name").unwrap().to_owned();
        own(&mut s, "a", SetScope::Session);
        own(&mut s, "local", SetScope::Transaction);
        assert_eq!(name(&s), "local");
        assert!(s.end_txn(true));
        assert_eq!(name(&s), "a");
        own(&mut s, "b", SetScope::Session);
        assert!(s.end_txn(false));
        assert_eq!(name(&s), "a");
        assert!(!s.end_txn(true));
        s.reset_all();
        assert_eq!(name(&s), "");
    }

    #[test]
    fn invariant_1_savepoints_restore_settings() {
        let mut s = Settings::new("me", true, Isolation::default());
        let name = |s: &Settings| s.get("application_name").unwrap().to_owned();
        let own = |s: &mut Settings, value, scope| {
            s.enter_txn();
            s.set("application_name", Some(value), scope).unwrap();
        };
        s.savepoint("first");
        own(&mut s, "a", SetScope::Session);
        s.savepoint("second");
        own(&mut s, "b", SetScope::Transaction);
        s.set("my.own", Some("x"), SetScope::Session).unwrap();
        assert!(s.rollback_to("second"));
        assert_eq!(name(&s), "a");
        own(&mut s, "c", SetScope::Session);
        s.release("second");
        assert!(!s.rollback_to("second"));
        assert_eq!(name(&s), "c");
        assert!(s.rollback_to("first"));
        assert_eq!(name(&s), "");
        own(&mut s, "d", SetScope::Session);
        assert!(s.end_txn(true));
        assert_eq!(name(&s), "d");
        assert!(!s.rollback_to("first"));
    }

    #[test]
    fn invariant_1_custom_settings_are_restored() {
        let mut s = Settings::new("me", true, Isolation::default());
        let set = |s: &mut Settings, name, scope| {
            s.enter_txn();
            s.set(name, Some("x"), scope).unwrap();
        };
        let value = |s: &Settings, name| s.get(name).unwrap().to_owned();
        for (committed, kept) in [(false, ""), (true, "x")] {
            set(&mut s, "my.session", SetScope::Session);
            set(&mut s, "my.local", SetScope::Transaction);
            assert!(s.end_txn(committed));
            assert_eq!((value(&s, "my.session"), value(&s, "my.local")), (kept.into(), "".into()));
        }
        // The first savepoint is older than any change, the second is newer.
        s.savepoint("first");
        set(&mut s, "my.older", SetScope::Session);
        s.savepoint("second");
        set(&mut s, "my.newer", SetScope::Session);
        assert!(s.rollback_to("second"));
        assert_eq!((value(&s, "my.older"), value(&s, "my.newer")), ("x".into(), "".into()));
        assert!(s.rollback_to("first"));
        assert_eq!(value(&s, "my.older"), "");
        set(&mut s, "my.last", SetScope::Session);
        assert!(s.end_txn(true));
        let names = ["my.session", "my.older", "my.newer", "my.last"];
        assert_eq!(names.map(|name| value(&s, name)), ["x", "", "", "x"]);
    }
}
