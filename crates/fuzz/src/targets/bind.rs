//! Parameter values, text and binary. A decoded value is encoded so that it decodes to the same
//! value again.

use super::common::{TYPES, check_wire_forms, session};
use crate::input::Input;
use clearway_wire::Format;
use clearway_wire::row::parameter;

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let ty = TYPES[usize::from(input.u8()) % TYPES.len()];
    let format = if input.u8() & 1 == 1 { Format::Binary } else { Format::Text };
    if let Ok(value) = parameter(ty, format, Some(input.rest()), &session().zone, 1) {
        check_wire_forms(ty, &value);
    }
}
