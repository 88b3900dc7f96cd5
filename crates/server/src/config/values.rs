//! Values of settings that are more than a number or a word.

use clap::ValueEnum;
use serde::Deserialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

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
        let number: u64 =
            text[..digits].parse().map_err(|_| format!("\"{text}\" is not a size: write for example 128MiB"))?;
        number.checked_mul(unit).map(Self).ok_or_else(|| format!("\"{text}\" is too large"))
    }
}

/// Where to listen: an address or a host name, and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|e| format!("\"{text}\": {e}"))?.collect();
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first.copied().map(Self).ok_or_else(|| format!("\"{text}\" has no address"))
    }
}

impl TryFrom<String> for Address {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Who runs a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DispatchChoice {
    /// Whichever worker has work for it.
    Baton,
    /// Always the same worker.
    Pinned,
}

/// Who reads and writes pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoEngine {
    /// io_uring if the kernel lets us, otherwise threads.
    Auto,
    /// The kernel's io_uring; the server does not start without.
    Uring,
    /// Threads.
    Threads,
}

/// Whether pages bypass the operating system's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectIo {
    /// If the buffer pool has half of the machine's memory and the file system lets us.
    Auto,
    /// Yes; the server does not start where the file system does not let us.
    On,
    /// No.
    Off,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}
