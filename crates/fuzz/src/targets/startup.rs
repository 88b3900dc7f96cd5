//! The first packet of a connection. A complete packet decodes the same if more bytes follow it,
//! and no prefix of it is complete.

use clearway_wire::startup::{EncryptionRequests, MAX_STARTUP, startup};

pub(super) fn run(data: &[u8]) {
    for all in [false, true] {
        check(data, EncryptionRequests { ssl: all, gss: all });
    }
}

fn check(data: &[u8], earlier: EncryptionRequests) {
    let startup = |data| startup(data, earlier);
    let Ok(found) = startup(data) else { return };
    let Some(taken) = found else {
        assert!(data.len() < MAX_STARTUP, "a packet beyond the limit waits for more");
        return;
    };
    let Ok((packet, len)) = taken else { return };
    assert!(len <= data.len());
    assert_eq!(startup(&data[..len]), Ok(Some(Ok((packet, len)))));
    assert_eq!(startup(&data[..len - 1]), Ok(None));
}
