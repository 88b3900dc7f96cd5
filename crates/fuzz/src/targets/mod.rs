//! The targets, one in each file.

pub(crate) mod backup;
mod bind;
pub(crate) mod common;
mod config;
mod control;
mod copy;
pub(crate) mod directory;
mod disk;
mod double_write;
mod expr;
mod http;
mod key;
mod like;
mod log;
mod manifest;
mod normalize;
mod page;
mod record;
mod row;
mod sql;
mod startup;
mod values;
pub(crate) mod verbs;
mod wire;

pub use disk::Image;

/// A reader of untrusted bytes, and its properties.
pub struct Target {
    /// The name of the target and of its directory in the corpus.
    pub name: &'static str,
    /// Reads the bytes; panics if it finds a bug.
    pub run: fn(&[u8]),
    /// Number of mutated inputs in the ordinary tests.
    pub mutations: usize,
}

const fn target(name: &'static str, run: fn(&[u8]), mutations: usize) -> Target {
    Target { name, run, mutations }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("backup", backup::run, 200),
    target("bind", bind::run, 4000),
    target("config", config::run, 1000),
    target("control", control::run, 200),
    target("copy", copy::run, 1500),
    target("directory", directory::run, 300),
    target("double_write", double_write::run, 500),
    target("expr", expr::run, 2000),
    target("http", http::run, 4000),
    target("key", key::run, 4000),
    target("like", like::run, 4000),
    target("log", log::run, 500),
    target("manifest", manifest::run, 2000),
    target("normalize", normalize::run, 1500),
    target("page", page::run, 4000),
    target("record", record::run, 4000),
    target("row", row::run, 4000),
    target("sql", sql::run, 1500),
    target("startup", startup::run, 4000),
    target("values", values::run, 4000),
    target("verbs", verbs::run, 4000),
    target("wire", wire::run, 1500),
];
