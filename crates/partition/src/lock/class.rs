//! The lockstat classes of lock requests, by target and mode.

use super::{InLine, Mode, Target};
use clearway_latch::lockstat::Class;
use std::panic::Location;

static KEY_KEY_SHARE: Class = Class::new("lock.key_key_share");
static KEY_NO_KEY_UPDATE: Class = Class::new("lock.key_no_key_update");
static KEY_INCREMENT: Class = Class::new("lock.key_increment");
static RANGE_KEY_SHARE: Class = Class::new("lock.range_key_share");
static RANGE_NO_KEY_UPDATE: Class = Class::new("lock.range_no_key_update");
static KEY_SHARED: Class = Class::new("lock.key_shared");
static KEY_EXCLUSIVE: Class = Class::new("lock.key_exclusive");
static RANGE_SHARED: Class = Class::new("lock.range_shared");
static RANGE_EXCLUSIVE: Class = Class::new("lock.range_exclusive");
static TABLE_INTENT_SHARED: Class = Class::new("lock.table_intent_shared");
static TABLE_INTENT_EXCLUSIVE: Class = Class::new("lock.table_intent_exclusive");
/// Waits for the end of large transactions, by those that want to open a snapshot.
static TABLE_SNAPSHOT: Class = Class::new("lock.table_snapshot");
static TABLE_SHARED: Class = Class::new("lock.table_shared");
static TABLE_EXCLUSIVE: Class = Class::new("lock.table_exclusive");
static TABLE_ACCESS_SHARED: Class = Class::new("lock.table_access_shared");
static TABLE_ACCESS_EXCLUSIVE: Class = Class::new("lock.table_access_exclusive");
/// The whole partition, which a multi-partition transaction may have to itself; messages that may
/// have to wait for that transaction request it.
pub(crate) static PARTITION: Class = Class::new("lock.partition");

/// Returns the class of a request.
pub(crate) fn class(target: Target<'_>, mode: Mode) -> &'static Class {
    match (target, mode) {
        (Target::Key(..), Mode::KeyShared) => &KEY_KEY_SHARE,
        (Target::Key(..), Mode::NoKeyExclusive | Mode::Behind | Mode::Settled) => {
            &KEY_NO_KEY_UPDATE
        }
        (Target::Key(..), Mode::Increment) => &KEY_INCREMENT,
        (Target::Range(..), Mode::KeyShared) => &RANGE_KEY_SHARE,
        (
            Target::Range(..),
            Mode::NoKeyExclusive | Mode::Increment | Mode::Behind | Mode::Settled,
        ) => &RANGE_NO_KEY_UPDATE,
        (Target::Key(..), Mode::Shared | Mode::IntentShared | Mode::AccessShared) => &KEY_SHARED,
        (Target::Key(..), Mode::Exclusive | Mode::IntentExclusive | Mode::AccessExclusive) => {
            &KEY_EXCLUSIVE
        }
        (Target::Range(..), Mode::Shared | Mode::IntentShared | Mode::AccessShared) => {
            &RANGE_SHARED
        }
        (Target::Range(..), Mode::Exclusive | Mode::IntentExclusive | Mode::AccessExclusive) => {
            &RANGE_EXCLUSIVE
        }
        (Target::Table(_), Mode::AccessShared) => &TABLE_ACCESS_SHARED,
        (Target::Table(_), Mode::AccessExclusive) => &TABLE_ACCESS_EXCLUSIVE,
        (Target::Table(_), Mode::IntentShared) => &TABLE_INTENT_SHARED,
        (Target::Table(_), Mode::IntentExclusive) => &TABLE_INTENT_EXCLUSIVE,
        (Target::Table(_), Mode::Shared | Mode::KeyShared) => &TABLE_SHARED,
        (Target::Table(_), Mode::Settled) => &TABLE_SNAPSHOT,
        (
            Target::Table(_),
            Mode::Exclusive | Mode::NoKeyExclusive | Mode::Increment | Mode::Behind,
        ) => &TABLE_EXCLUSIVE,
    }
}

/// A waiting request: its place in a queue, and the class of its wait.
#[derive(Debug)]
pub(crate) struct Wait {
    pub line: InLine,
    pub class: &'static Class,
    /// Where the statement made the request.
    pub caller: &'static Location<'static>,
}
