//! Numbers and timestamps as text. The text of a parsed value parses to the same value, and has the
//! same text.

use super::common::{TYPES, same};
use crate::input::Input;
use clearway_ir::Zone;
use clearway_ir::value::{parse_text, to_text};

const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "-11:30"];

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let ty = TYPES[usize::from(input.u8()) % TYPES.len()];
    let choice = usize::from(input.u8());
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    let _ = Zone::named(text);
    let zone = Zone::named(ZONES[choice % ZONES.len()]).expect("a zone that exists");
    let Ok(value) = parse_text(ty, text, &zone) else { return };
    let printed = to_text(ty, value.as_ref(), &zone);
    match parse_text(ty, &printed, &zone) {
        Ok(again) => {
            assert!(
                same(&value, &again),
                "{ty}: {text:?} is {value:?}, but its text {printed:?} is {again:?}"
            );
            assert_eq!(printed, to_text(ty, again.as_ref(), &zone));
        }
        Err(error) => {
            panic!("{ty}: {text:?} prints as {printed:?}, which cannot be read: {error:?}")
        }
    }
}
