//! The configuration file. An accepted file is within the limits, and flags do not change that.

use clearway_server::Config;
use clearway_server::config::Flags;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(config) = Config::parse(Flags::default(), text) else { return };
    assert!((1..=256).contains(&config.workers));
    assert!(config.partitions.is_none_or(|n| (1..=1024).contains(&n)));
    assert!((1 << 20..=1 << 44).contains(&config.buffer_pool));
    assert!(config.log_segment.is_multiple_of(4096));
    let flags = Flags { workers: Some(3), ..Flags::default() };
    let again = Config::parse(flags, text).expect("the same file");
    assert_eq!(again, Config { workers: 3, ..config });
}
