//! The first packet of a connection. A packet that was taken is taken again, the same, when more bytes follow it, and no
//! beginning of it is.

use clearway_wire::startup::{MAX_STARTUP, startup};

pub(super) fn run(data: &[u8]) {
    let Ok(found) = startup(data) else { return };
    let Some((packet, len)) = found else {
        assert!(data.len() < MAX_STARTUP, "a packet of any length waits for more");
        return;
    };
    assert!(len <= data.len());
    assert_eq!(startup(&data[..len]).expect("the same packet"), Some((packet, len)));
    assert_eq!(startup(&data[..len - 1]).ok().flatten(), None);
}
