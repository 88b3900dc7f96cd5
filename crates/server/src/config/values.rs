//! Types of settings that are more than a number or a word.

use clap::ValueEnum;
use clearway_ir::statement::Isolation;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// The value of a setting with a range; `None` if it is not set.
pub(super) struct Number(pub(super) Option<u64>);

impl From<u16> for Number {
    fn from(n: u16) -> Self {
        Self(Some(n.into()))
    }
}

impl From<usize> for Number {
    fn from(n: usize) -> Self {
        Self(Some(n as u64))
    }
}

impl From<u64> for Number {
    fn from(n: u64) -> Self {
        Self(Some(n))
    }
}

impl<T: Into<u64>> From<Option<T>> for Number {
    fn from(n: Option<T>) -> Self {
        Self(n.map(Into::into))
    }
}

/// The type of a setting that has a range.
pub(super) trait Bound {
    /// Formats a value as it is written in the configuration.
    fn show(value: u64) -> String {
        value.to_string()
    }
}

impl Bound for u16 {}
impl Bound for u64 {}
impl Bound for usize {}

impl Bound for Size {
    fn show(value: u64) -> String {
        Self(value).to_string()
    }
}

/// A number of bytes, written with or without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1u64,
            "kib" | "kb" | "k" => 1 << 10,
            "mib" | "mb" | "m" => 1 << 20,
            "gib" | "gb" | "g" => 1 << 30,
            "tib" | "tb" | "t" => 1 << 40,
            other => return Err(format!("unknown unit \"{other}\": use KiB, MiB, GiB or TiB")),
        };
        let number: u64 = text[..digits]
            .parse()
            .map_err(|_| format!("\"{text}\" is not a size: write for example 128MiB"))?;
        number.checked_mul(unit).map(Self).ok_or_else(|| format!("\"{text}\" is too large"))
    }
}

/// Formats the size in the largest unit that divides it.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl From<Size> for Option<u64> {
    fn from(size: Size) -> Self {
        Some(size.0)
    }
}

/// An address to listen on: an IP address or a host name, and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found: Vec<SocketAddr> =
            text.to_socket_addrs().map_err(|e| format!("\"{text}\": {e}"))?.collect();
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first.copied().map(Self).ok_or_else(|| format!("\"{text}\" has no address"))
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        address.0
    }
}

impl From<Address> for Option<SocketAddr> {
    fn from(address: Address) -> Self {
        Some(address.0)
    }
}

/// The time after which a wait for a lock is logged; `None` means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLockWaits(pub Option<Duration>);

/// How transactions share rows that many of them change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotRows {
    /// Transactions that only add to integers of a row run concurrently.
    pub increments: bool,
    /// Transactions that arrive in one query or one pipeline run without row locks.
    pub whole: bool,
    /// The next transaction gets a contended row before the one that changed it ends.
    pub retire: bool,
}

impl HotRows {
    /// No mechanism.
    pub const OFF: Self = Self { increments: false, whole: false, retire: false };
}

impl Default for HotRows {
    fn default() -> Self {
        Self { increments: true, whole: false, retire: false }
    }
}

impl FromStr for HotRows {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut chosen = Self::OFF;
        if text.trim() == "off" {
            return Ok(chosen);
        }
        for name in text.split(',').map(str::trim) {
            match name {
                "increments" => chosen.increments = true,
                "whole" => chosen.whole = true,
                "retire" => chosen.retire = true,
                _ => {
                    let all = "increments, whole, retire, or off";
                    return Err(format!("unknown mechanism \"{name}\" for hot rows: use {all}"));
                }
            }
        }
        Ok(chosen)
    }
}

/// The longest `log_lock_waits`.
const DAY_MS: u64 = 86_400_000;

impl FromStr for LogLockWaits {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "off" {
            return Ok(Self(None));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit = match text[digits..].trim() {
            "" | "ms" => 1,
            "s" => 1_000,
            "min" => 60_000,
            "h" => 3_600_000,
            other => {
                return Err(format!("unknown unit \"{other}\": use ms, s, min or h, or write off"));
            }
        };
        let number: u64 = text[..digits]
            .parse()
            .map_err(|_| format!("\"{text}\" is not a time: write for example 1s, or off"))?;
        match number.checked_mul(unit) {
            Some(ms @ 1..=DAY_MS) => Ok(Self(Some(Duration::from_millis(ms)))),
            _ => Err(format!("\"{text}\" is not between 1ms and 24h; write off to log no waits")),
        }
    }
}

/// The I/O engine for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoEngine {
    /// io_uring if the kernel allows it, otherwise threads.
    Auto,
    /// io_uring; the server does not start without it.
    Uring,
    /// Threads.
    Threads,
}

/// Whether pages bypass the operating system's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectIo {
    /// Yes if the buffer pool has at least half of the memory and the file system supports it.
    Auto,
    /// Yes; the server does not start if the file system does not support it.
    On,
    /// No.
    Off,
}

/// An isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// READ COMMITTED.
    #[value(name = "read committed", alias = "read-committed")]
    ReadCommitted,
    /// REPEATABLE READ.
    #[value(name = "repeatable read", alias = "repeatable-read")]
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl From<Level> for Isolation {
    fn from(level: Level) -> Self {
        match level {
            Level::ReadCommitted => Self::ReadCommitted,
            Level::RepeatableRead => Self::RepeatableRead,
            Level::Serializable => Self::Serializable,
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl From<Switch> for bool {
    fn from(switch: Switch) -> Self {
        switch == Switch::On
    }
}

/// Implements `FromStr` like the parser of flags.
macro_rules! parsed_as_flags {
    ($($word:ty),*) => {$(
        impl FromStr for $word {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                <$word as ValueEnum>::from_str(text, false).map_err(|_| {
                    let known: Vec<_> = Self::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
                    let known: Vec<_> = known.iter().map(|value| format!("\"{}\"", value.get_name())).collect();
                    format!("invalid value \"{text}\": use one of {}", known.join(", "))
                })
            }
        }
    )*};
}
parsed_as_flags!(IoEngine, DirectIo, Level, Switch);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flags};

    #[test]
    fn hot_rows_is_a_list_of_mechanisms() {
        for (text, increments, whole, retire) in [
            ("off", false, false, false),
            (" off ", false, false, false),
            ("increments", true, false, false),
            ("increments , increments", true, false, false),
            ("whole", false, true, false),
            ("whole,increments", true, true, false),
            ("increments,retire", true, false, true),
        ] {
            assert_eq!(text.parse(), Ok(HotRows { increments, whole, retire }), "{text}");
        }
        for bad in ["", "on", "increments,", "increments off", "off, increments", "retired"] {
            assert!(bad.parse::<HotRows>().is_err(), "{bad}");
        }
        let parse = |text: &str| {
            Config::parse(Flags::default(), text).map(|config| config.hot_rows.increments)
        };
        assert_eq!(
            (parse(""), parse("hot_rows = \"off\""), parse("hot-rows = \"increments\"")),
            (Ok(true), Ok(false), Ok(true))
        );
        assert!(parse("hot_rows = \"all\"").unwrap_err().starts_with("hot_rows: "));
        let flags = Flags { hot_rows: Some(HotRows::OFF), ..Flags::default() };
        assert!(!Config::parse(flags, "hot_rows = \"increments\"").unwrap().hot_rows.increments);
    }

    #[test]
    fn log_lock_waits_takes_a_duration_or_off() {
        let after = |ms| Ok(LogLockWaits(Some(Duration::from_millis(ms))));
        for (text, wanted) in [
            ("250", after(250)),
            ("1ms", after(1)),
            (" 2 s ", after(2_000)),
            ("24h", after(DAY_MS)),
        ] {
            assert_eq!(text.parse(), wanted, "{text}");
        }
        assert_eq!(
            ("off".parse(), LogLockWaits::default()),
            (Ok(LogLockWaits(None)), LogLockWaits(None))
        );
        for bad in [
            "",
            "0",
            "-1",
            "1.5s",
            "s",
            "25h",
            "1 week",
            "99999999999999999999",
            "18446744073709551615h",
            "on",
        ] {
            assert!(bad.parse::<LogLockWaits>().is_err(), "{bad}");
        }
        let parse =
            |text: &str| Config::parse(Flags::default(), text).map(|config| config.log_lock_waits);
        assert_eq!(parse("log_lock_waits = \"1min\""), after(60_000));
        assert_eq!(parse("log-lock-waits = 5"), after(5));
        assert!(parse("log_lock_waits = \"never\"").unwrap_err().starts_with("log_lock_waits: "));
        let flags = Flags { log_lock_waits: Some(LogLockWaits(None)), ..Flags::default() };
        assert_eq!(
            Config::parse(flags, "log_lock_waits = 5").unwrap().log_lock_waits,
            LogLockWaits(None)
        );
    }
}
