use super::*;

#[test]
fn flags_override_the_file_and_the_file_overrides_defaults() {
    let file = "buffer_pool = \"2MiB\"\nworkers = 3\nsynchronous_commit = \"off\"\nio_engine = \"uring\"\n";
    let flags = Flags { workers: Some(5), ..Flags::default() };
    let c = Config::parse(flags, file).unwrap();
    assert_eq!((c.buffer_pool, c.workers, c.synchronous_commit), (2 << 20, 5, false));
    assert_eq!((c.io_engine, c.direct_io), (IoEngine::Uring, DirectIo::Auto));
    assert_eq!(c.listen.to_string(), "127.0.0.1:5432");
    assert!(Config::parse(Flags::default(), "wrokers = 3").is_err());
    for bad in [
        Flags { partitions: Some(0), ..Flags::default() },
        Flags { log_segment: Some(Size(1 << 20 | 1)), ..Flags::default() },
    ] {
        assert!(Config::parse(bad, "").is_err());
    }
}

#[test]
fn keys_accept_dashes_and_addresses_accept_names() {
    let parse = |text: &str| Config::parse(Flags::default(), text);
    let c = parse("buffer-pool = \"2MiB\"\nlog-filter = \"warn\"\nlisten = \"localhost:5433\"\n")
        .unwrap();
    assert_eq!((c.buffer_pool, c.log_filter.as_str(), c.listen.port()), (2 << 20, "warn", 5433));
    assert!(c.listen.ip().is_loopback());
    assert!(parse("buffer-pool = 1\nbuffer_pool = 2\n").unwrap_err().contains("duplicate"));
    for bad in ["localhost", "localhost:x", ":5432:"] {
        assert!(bad.parse::<Address>().is_err(), "{bad}");
    }
}

#[test]
fn latch_and_lockstat_settings_are_parsed() {
    let parse = |text: &str| Config::parse(Flags::default(), text);
    let c = parse("latch = \"cas\"\nlatch_spins = 70\n").unwrap();
    assert_eq!((Ok(c.latch), c.latch_spins), ("cas".parse(), LatchSpins::Fixed(70)));
    let c = parse("latch = \"auto\"\nlatch_spins = \"auto\"\n").unwrap();
    assert_eq!((c.latch, c.latch_spins), (LatchChoice::Auto, LatchSpins::Auto));
    assert!(c.lockstat && !parse("lockstat = \"off\"\n").unwrap().lockstat);
    for (bad, named) in [("latch = \"bakery\"", "latch: "), ("latch_spins = -1", "latch_spins: ")] {
        let refused = parse(bad).unwrap_err();
        assert!(refused.starts_with(named), "{refused}");
    }
}

#[test]
fn replacement_setting_is_parsed() {
    let parse = |text: &str| Config::parse(Flags::default(), text);
    assert_eq!(parse("").unwrap().replacement.to_string(), "s3-fifo/marked");
    let c = parse("replacement = \"lru/multilist\"\n").unwrap();
    assert_eq!(Ok(c.replacement), "lru/multilist".parse());
    let refused = parse("replacement = \"lru/locked\"\n").unwrap_err();
    assert!(refused.contains("unknown wrapper of policies \"locked\""), "{refused}");
    let refused = parse("replacement = \"fifo\"\n").unwrap_err();
    assert!(refused.starts_with("replacement: unknown replacement policy \"fifo\""), "{refused}");
}

/// The error names what is accepted, and docs/policies.md has a row for each policy.
#[test]
fn accepted_replacements_are_listed() {
    let refused = "fifo".parse::<ReplacementKind>().unwrap_err();
    let listed: Vec<&str> = refused.split_once("available: ").unwrap().1.split(", ").collect();
    for name in ["lru", "clock", "clock-sweep", "lru/multilist", "arc/multilist"] {
        assert!(listed.contains(&name), "{refused}");
    }
    let page = include_str!("../../../../docs/policies.md");
    for name in listed {
        assert!(name.parse::<ReplacementKind>().is_ok(), "{name}");
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for policy in clearway_replacement::PolicyKind::ALL {
        assert!(page.contains(&format!("\n| `{policy}` | ")), "no row for {policy}");
    }
}

#[test]
fn scheme_is_parsed() {
    let parse = |text: &str| Config::parse(Flags::default(), text).map(|config| config.scheme);
    assert_eq!(parse(""), Ok(SchemeKind::Hybrid));
    assert_eq!(parse("scheme = \"blocking\""), Ok(SchemeKind::Blocking));
    assert_eq!(parse("scheme = \"speculative\""), Ok(SchemeKind::Speculative));
    assert_eq!(parse("scheme = \"optimistic\""), Ok(SchemeKind::Optimistic));
    let flags = Flags { scheme: Some(SchemeKind::Locking), ..Flags::default() };
    let both = Config::parse(flags, "scheme = \"blocking\"").map(|config| config.scheme);
    assert_eq!(both, Ok(SchemeKind::Locking));
    let refused = parse("scheme = \"timestamps\"").unwrap_err();
    let known = "hybrid, blocking, speculative, locking, optimistic";
    assert_eq!(refused, format!("scheme: unknown scheme \"timestamps\": use one of {known}"));
}

#[test]
fn second_level_needs_a_directory() {
    let parse = |text: &str| Config::parse(Flags::default(), text);
    assert_eq!(parse("").unwrap().second_level(), None);
    let second_level = |text: &str| parse(text).unwrap().second_level().unwrap();
    let dir = PathBuf::from("/ssd");
    let file = "second_level = \"/ssd\"\n";
    assert_eq!(
        second_level(&format!("{file}buffer_pool = \"2MiB\"")),
        SecondLevelConfig { dir, size: 16 << 20 }
    );
    assert_eq!(second_level(&format!("{file}second_level_size = \"5GiB\"")).size, 5 << 30);
    let flags = Flags { second_level_size: Some(Size(1 << 21)), ..Flags::default() };
    let both = Config::parse(flags, &format!("{file}second_level_size = \"5GiB\"")).unwrap();
    assert_eq!(both.second_level().unwrap().size, 1 << 21);
    for (bad, says) in [
        ("second_level_size = \"5GiB\"".to_owned(), "second_level_size requires second_level"),
        (format!("{file}second_level_size = 8192"), "second_level_size must be between"),
        (format!("{file}second_level_size = \"much\""), "second_level_size: "),
    ] {
        let refused = parse(&bad).unwrap_err();
        assert!(refused.starts_with(says), "{refused}");
    }
}

#[test]
fn directory_must_not_be_empty() {
    for key in ["data", "unix_socket", "second_level"] {
        let refused = Config::parse(Flags::default(), &format!("{key} = \"\"")).unwrap_err();
        assert_eq!(refused, format!("{key} must not be empty: name a directory"));
    }
}

#[test]
fn version_spill_can_be_disabled() {
    let parse = |text: &str| Config::parse(Flags::default(), text);
    assert_eq!(parse("").unwrap().version_spill, 1 << 30);
    assert_eq!(parse("version_spill = 0\n").unwrap().version_spill, 0);
    assert_eq!(parse("version-spill = \"2GiB\"\n").unwrap().version_spill, 2 << 30);
    let refused = parse("version_spill = 4096\n").unwrap_err();
    assert_eq!(refused, "version_spill must be between 1MiB and 16TiB, not 4KiB");
}

#[test]
fn help_texts_name_the_ranges() {
    let command = Flags::augment_args(clap::Command::new("serve"));
    let help = |name: &str| {
        let flag = command.get_arguments().find(|flag| flag.get_id() == name).unwrap();
        flag.get_long_help().or(flag.get_help()).unwrap().to_string()
    };
    let mut ranges = Config::ranges();
    assert!(ranges.len() > 10, "{ranges:?}");
    ranges.push(("version_spill", "1MiB to 16TiB".to_owned()));
    ranges.push(("latch_spins", format!("0 to {}", crate::latches::MAX_SPINS)));
    for (name, range) in ranges {
        assert!(help(name).contains(&range), "{name}, {range}: {}", help(name));
    }
}

#[test]
fn range_errors_have_units() {
    let refused = |text: &str| Config::parse(Flags::default(), text).unwrap_err();
    let pool = "buffer_pool must be between 1MiB and 16TiB, not ";
    assert_eq!(refused("buffer_pool = 8192"), format!("{pool}8KiB"));
    assert_eq!(refused("buffer_pool = 1001"), format!("{pool}1001B"));
    assert_eq!(refused("buffer_pool = 0"), format!("{pool}0B"));
    assert_eq!(refused("workers = 300"), "workers must be between 1 and 256, not 300");
}

#[test]
fn sizes_are_parsed() {
    assert_eq!("128MiB".parse(), Ok(Size(128 << 20)));
    assert_eq!("8192".parse(), Ok(Size(8192)));
    assert!("12 parsecs".parse::<Size>().is_err());
    assert!("".parse::<Size>().is_err());
    assert!("99999999999TiB".parse::<Size>().is_err());
}

/// The sample file has each setting once, in table order, with its default. Settings whose default
/// depends on the machine, or that have none, are examples.
#[test]
fn sample_file_shows_every_default() {
    const EXAMPLES: [&str; 7] = [
        "unix_socket",
        "partitions",
        "second_level",
        "second_level_size",
        "workers",
        "query_memory",
        "metrics",
    ];
    let sample = include_str!("../../../../packaging/clearway.toml");
    let key = |line: &str| {
        line.split_once(" = ").filter(|(key, _)| KEYS.contains(key)).map(|(key, _)| key.to_owned())
    };
    let lines: Vec<&str> = sample
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| key(line).is_some())
        .collect();
    assert_eq!(lines.iter().filter_map(|line| key(line)).collect::<Vec<_>>(), KEYS);
    Config::parse(Flags::default(), &lines.join("\n")).unwrap();
    let defaults: Vec<&str> = lines
        .into_iter()
        .filter(|line| key(line).is_some_and(|key| !EXAMPLES.contains(&key.as_str())))
        .collect();
    assert_eq!(
        Config::parse(Flags::default(), &defaults.join("\n")),
        Config::parse(Flags::default(), "")
    );
}
