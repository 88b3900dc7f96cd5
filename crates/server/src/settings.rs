//! Session settings: what SET, SHOW, RESET and the startup packet may name.
//!
//! Invariants
//! 1. A transaction that aborts leaves the settings that it found; one that commits leaves them without its SET LOCALs.
//! 2. Every value has passed its check; `client_encoding` is always one that needs no conversion.

use clearway_plan::{SessionEnv, Zone};
use clearway_types::{SqlError, SqlResult, SqlState};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Bool,
    Int,
    Float,
    OneOf(&'static [&'static str]),
    Encoding,
    DateStyle,
    Zone,
    /// Cannot be set.
    Fixed,
}

struct Setting {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    /// The client is told of every change.
    reported: bool,
}

const fn s(name: &'static str, default: &'static str, kind: Kind, reported: bool) -> Setting {
    Setting { name, default, kind, reported }
}

const LEVELS: Kind = Kind::OneOf(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning", "error",
]);
const ISOLATION: Kind = Kind::OneOf(&["serializable", "repeatable read", "read committed", "read uncommitted"]);
const SYNC: Kind = Kind::OneOf(&["on", "off", "local", "remote_write", "remote_apply", "true", "false", "1", "0"]);

#[rustfmt::skip]
static SETTINGS: &[Setting] = &[
    s("application_name", "", Kind::Text, true),
    s("client_encoding", "UTF8", Kind::Encoding, true),
    s("DateStyle", "ISO, MDY", Kind::DateStyle, true),
    s("default_transaction_read_only", "off", Kind::Bool, true),
    s("in_hot_standby", "off", Kind::Fixed, true),
    s("integer_datetimes", "on", Kind::Fixed, true),
    s("IntervalStyle", "postgres", Kind::OneOf(&["postgres"]), true),
    s("is_superuser", "on", Kind::Fixed, true),
    s("server_encoding", "UTF8", Kind::Fixed, true),
    s("server_version", "15.0", Kind::Fixed, true),
    s("session_authorization", "", Kind::Fixed, true),
    s("standard_conforming_strings", "on", Kind::OneOf(&["on"]), true),
    s("TimeZone", "UTC", Kind::Zone, true),
    s("backslash_quote", "safe_encoding", Kind::Text, false),
    s("bytea_output", "hex", Kind::OneOf(&["hex", "escape"]), false),
    s("check_function_bodies", "on", Kind::Bool, false),
    s("client_min_messages", "notice", LEVELS, false),
    s("default_table_access_method", "btree", Kind::Fixed, false),
    s("default_tablespace", "", Kind::Text, false),
    s("default_transaction_deferrable", "off", Kind::Bool, false),
    s("default_transaction_isolation", "serializable", ISOLATION, false),
    s("escape_string_warning", "on", Kind::Bool, false),
    s("extra_float_digits", "1", Kind::Int, false),
    s("idle_in_transaction_session_timeout", "0", Kind::Int, false),
    s("jit", "off", Kind::Bool, false),
    s("lc_collate", "C", Kind::Fixed, false),
    s("lc_ctype", "C", Kind::Fixed, false),
    s("lc_messages", "C", Kind::Text, false),
    s("lc_monetary", "C", Kind::Text, false),
    s("lc_numeric", "C", Kind::Text, false),
    s("lc_time", "C", Kind::Text, false),
    s("lock_timeout", "0", Kind::Int, false),
    s("max_identifier_length", "63", Kind::Fixed, false),
    s("row_security", "on", Kind::Bool, false),
    s("search_path", "\"$user\", public", Kind::Text, false),
    s("seq_page_cost", "1", Kind::Float, false),
    s("random_page_cost", "4", Kind::Float, false),
    s("server_version_num", "150000", Kind::Fixed, false),
    s("statement_timeout", "0", Kind::Int, false),
    s("synchronous_commit", "on", SYNC, false),
    s("transaction_isolation", "serializable", ISOLATION, false),
    s("transaction_read_only", "off", Kind::Bool, false),
    s("work_mem", "4MB", Kind::Text, false),
    s("xmloption", "content", Kind::Text, false),
];

/// One session's settings.
pub struct Settings {
    /// In the order of `SETTINGS`, then the custom ones (with a dot in their names).
    values: Vec<(String, String)>,
    /// What a RESET goes back to.
    initial: Vec<(String, String)>,
    zone: Zone,
    before_txn: Option<Vec<(String, String)>>,
    local: Vec<String>,
}

fn find(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|s| s.name.eq_ignore_ascii_case(name))
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

fn invalid(name: &str, value: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, format!("invalid value for parameter \"{name}\": \"{value}\""))
}

impl Settings {
    /// The defaults, for a session of `user`.
    pub fn new(user: &str, synchronous_commit: bool) -> Self {
        let mut values: Vec<_> = SETTINGS.iter().map(|s| (s.name.to_owned(), s.default.to_owned())).collect();
        let mut put = |name: &str, value: &str| {
            if let Some(i) = find(name) {
                value.clone_into(&mut values[i].1);
            }
        };
        put("session_authorization", user);
        put("synchronous_commit", if synchronous_commit { "on" } else { "off" });
        Self { initial: values.clone(), values, zone: Zone::utc(), before_txn: None, local: Vec::new() }
    }

    /// The startup packet is over: what is set now is what RESET goes back to.
    pub fn started(&mut self) {
        self.initial.clone_from(&self.values);
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.values.iter().position(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// The value of a setting.
    pub fn get(&self, name: &str) -> SqlResult<&str> {
        let i = self.position(name).ok_or_else(|| unrecognized(name))?;
        Ok(&self.values[i].1)
    }

    /// All settings.
    pub fn all(&self) -> &[(String, String)] {
        &self.values
    }

    /// Those whose changes the client is told of.
    pub fn reported(&self) -> impl Iterator<Item = (&str, &str)> {
        let reported = |i: &usize| SETTINGS.get(*i).is_some_and(|s| s.reported);
        (0..self.values.len()).filter(reported).map(|i| (self.values[i].0.as_str(), self.values[i].1.as_str()))
    }

    /// Changes a setting; `None`: back to what the session began with.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> SqlResult<()> {
        let Some(i) = self.position(name) else {
            // As in PostgreSQL, a name with a dot is somebody's own.
            if name.contains('.') {
                self.values.push((name.to_owned(), value.unwrap_or("").to_owned()));
                return Ok(());
            }
            return Err(unrecognized(name));
        };
        let Some(value) = value else {
            let value = self.initial.get(i).map_or_else(String::new, |(_, v)| v.clone());
            self.store(i, value);
            return Ok(());
        };
        let value = match SETTINGS.get(i) {
            Some(setting) => check(setting, value)?,
            None => value.to_owned(),
        };
        self.store(i, value);
        Ok(())
    }

    fn store(&mut self, i: usize, value: String) {
        if self.values[i].0 == "TimeZone" {
            self.zone = zone(&value).unwrap_or_default();
        }
        self.values[i].1 = value;
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        let session = self.position("session_authorization");
        for i in 0..self.values.len() {
            if Some(i) != session {
                let value = self.initial.get(i).map_or_else(String::new, |(_, v)| v.clone());
                self.store(i, value);
            }
        }
    }

    /// A change is about to be made inside a transaction.
    pub fn enter_txn(&mut self, local: Option<&str>) {
        if self.before_txn.is_none() {
            self.before_txn = Some(self.values.clone());
        }
        self.local.extend(local.map(str::to_owned));
    }

    /// The transaction is over. Whether settings changed by that.
    pub fn end_txn(&mut self, committed: bool) -> bool {
        let Some(before) = self.before_txn.take() else { return false };
        let local = std::mem::take(&mut self.local);
        for (i, (name, value)) in before.into_iter().enumerate() {
            if !committed || local.iter().any(|l| l.eq_ignore_ascii_case(&name)) {
                self.store(i, value);
            }
        }
        true
    }

    /// Whether COMMIT waits for the log.
    pub fn synchronous_commit(&self) -> bool {
        !matches!(self.get("synchronous_commit"), Ok("off"))
    }

    /// `statement_timeout`, in milliseconds; 0: none.
    pub fn statement_timeout_ms(&self) -> u64 {
        self.get("statement_timeout").ok().and_then(milliseconds).unwrap_or(0)
    }

    /// What expressions may see of the session.
    pub fn env(&self, user: &str, database: &str, pid: i32) -> SessionEnv {
        SessionEnv {
            user: user.to_owned(),
            database: database.to_owned(),
            pid,
            zone: self.zone.clone(),
            settings: self.values.clone(),
        }
    }
}

fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let n: u64 = text[..digits].parse().ok()?;
    match text[digits..].trim() {
        "" | "ms" => Some(n),
        "s" => n.checked_mul(1000),
        "min" => n.checked_mul(60_000),
        "h" => n.checked_mul(3_600_000),
        _ => None,
    }
}

fn zone(value: &str) -> Option<Zone> {
    if value.eq_ignore_ascii_case("default") { Some(Zone::utc()) } else { Zone::named(value) }
}

fn check(setting: &Setting, value: &str) -> SqlResult<String> {
    let wrong = || invalid(setting.name, value);
    let lower = value.trim().to_ascii_lowercase();
    Ok(match setting.kind {
        Kind::Text => value.to_owned(),
        Kind::Bool => match lower.as_str() {
            "on" | "true" | "t" | "yes" | "y" | "1" => "on".to_owned(),
            "off" | "false" | "f" | "no" | "n" | "0" => "off".to_owned(),
            _ => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER,
                    format!("parameter \"{}\" requires a Boolean value", setting.name),
                ));
            }
        },
        Kind::Int => {
            if milliseconds(&lower).is_none() && lower.parse::<i64>().is_err() {
                return Err(wrong());
            }
            lower
        }
        Kind::Float => lower.parse::<f64>().map_err(|_| wrong())?.to_string(),
        Kind::OneOf(values) if values.contains(&lower.as_str()) => match lower.as_str() {
            "true" | "1" => "on".to_owned(),
            "false" | "0" => "off".to_owned(),
            _ => lower,
        },
        Kind::OneOf(_) => return Err(wrong()),
        Kind::Encoding => encoding(value)?,
        Kind::DateStyle => date_style(&lower).ok_or_else(wrong)?,
        Kind::Zone => {
            zone(value).ok_or_else(wrong)?;
            if lower == "default" { "UTC".to_owned() } else { value.to_owned() }
        }
        Kind::Fixed => {
            return Err(SqlError::new(
                SqlState::CANT_CHANGE_PARAM,
                format!("parameter \"{}\" cannot be changed", setting.name),
            ));
        }
    })
}

fn encoding(value: &str) -> SqlResult<String> {
    let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    match plain.as_str() {
        "utf8" | "unicode" | "default" => Ok("UTF8".to_owned()),
        "sqlascii" => Ok("SQL_ASCII".to_owned()),
        "latin1" | "iso88591" | "win1252" | "windows1252" | "euckr" | "sjis" | "big5" | "gbk" => {
            Err(SqlError::unsupported(format!("client_encoding {value}")).hint("Use UTF8."))
        }
        _ => Err(invalid("client_encoding", value)),
    }
}

fn date_style(value: &str) -> Option<String> {
    let mut order = "MDY";
    for word in value.split(',').map(str::trim) {
        match word {
            "iso" | "default" => {}
            "mdy" | "us" | "noneuro" | "noneuropean" => order = "MDY",
            "dmy" | "euro" | "european" => order = "DMY",
            "ymd" => order = "YMD",
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirteen_are_reported_and_odd_spellings_are_understood() {
        let mut s = Settings::new("me", true);
        assert_eq!(s.reported().count(), 13);
        for utf8 in ["'utf-8'", "UTF8", "unicode", "utf_8"] {
            s.set("client_encoding", Some(utf8)).unwrap();
            assert_eq!(s.get("CLIENT_ENCODING").unwrap(), "UTF8");
        }
        assert_eq!(s.set("client_encoding", Some("klingon")).unwrap_err().state(), SqlState::INVALID_PARAMETER);
        s.set("datestyle", Some("ISO")).unwrap();
        assert_eq!(s.get("datestyle").unwrap(), "ISO, MDY");
        assert_eq!(s.set("nonsense", Some("1")).unwrap_err().state(), SqlState::UNDEFINED_OBJECT);
        assert!(s.set("server_version", Some("1")).is_err());
        s.set("my.own", Some("x")).unwrap();
        assert_eq!(s.get("my.own").unwrap(), "x");
        s.set("statement_timeout", Some("2s")).unwrap();
        assert_eq!(s.statement_timeout_ms(), 2000);
    }

    #[test]
    fn invariant_1_transactions() {
        let mut s = Settings::new("me", true);
        s.enter_txn(None);
        s.set("application_name", Some("a")).unwrap();
        s.enter_txn(Some("jit"));
        s.set("jit", Some("on")).unwrap();
        assert!(s.end_txn(true));
        assert_eq!((s.get("application_name").unwrap(), s.get("jit").unwrap()), ("a", "off"));
        s.enter_txn(None);
        s.set("application_name", Some("b")).unwrap();
        assert!(s.end_txn(false));
        assert_eq!(s.get("application_name").unwrap(), "a");
        assert!(!s.end_txn(true));
        s.reset_all();
        assert_eq!(s.get("application_name").unwrap(), "");
    }
}
