//! libFuzzer on the target named by the environment variable `FUZZ_TARGET`. `cargo xtask fuzz`
//! builds it with coverage and runs it.

#![no_main]

use clearway_fuzz::TARGETS;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fn chosen() -> fn(&[u8]) {
    static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
            eprintln!("FUZZ_TARGET={name}: there is no such target");
            std::process::exit(2);
        };
        target.run
    })
}

fuzz_target!(|data: &[u8]| chosen()(data));
