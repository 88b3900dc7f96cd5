//! A peer's verbs over TCP. A frame does not depend on the bytes after it, and a prefix of a frame
//! is incomplete. A verb changes only the region of its key, and is answered by complete frames.

use clearway_fabric::tcp::frame::{self, MAX_WORDS, TcpFrame};
use clearway_fabric::tcp::{RegionServer, Regions};
use std::sync::atomic::Ordering::Relaxed;

/// The key that the corpus uses, and an unused one.
pub(crate) const KEY: u64 = 0x0123_4567_89ab_cdef;
const OTHER_KEY: u64 = !KEY;
const WORDS: usize = 8;

pub(super) fn run(data: &[u8]) {
    let regions = Regions::default();
    let (known, other) = (regions.add(KEY, WORDS), regions.add(OTHER_KEY, WORDS));
    let mut server = RegionServer::default();
    let mut rest = data;
    loop {
        let (frame, length) = match frame::decode(rest) {
            Ok(Some(found)) => found,
            Ok(None) => {
                assert!(
                    rest.len() < 4 + 17 + MAX_WORDS * 8,
                    "a frame beyond the limit waits for more"
                );
                return;
            }
            Err(_) => return,
        };
        assert_eq!(frame::decode(&rest[..length]), Ok(Some((frame, length))));
        assert_eq!(frame::decode(&rest[..length - 1]), Ok(None));
        let mut out = Vec::new();
        let served = server.serve(&regions, frame, &mut out);
        check_answer(frame, served, &out);
        let for_other = matches!(
            frame,
            TcpFrame::Write { key: OTHER_KEY, .. }
                | TcpFrame::Cas { key: OTHER_KEY, .. }
                | TcpFrame::Faa { key: OTHER_KEY, .. }
        );
        // Relaxed: one thread.
        assert!(
            for_other || other.iter().all(|word| word.load(Relaxed) == 0),
            "another region changed"
        );
        if let TcpFrame::Write { key: KEY, word, payload } = frame
            && served
        {
            let found = known[word as usize..].iter().map(|word| word.load(Relaxed)); // Relaxed: one thread.
            assert!(payload.values().eq(found.take(payload.len())));
        }
        if for_other {
            return;
        }
        rest = &rest[length..];
    }
}

/// Checks that a verb that is executed has exactly one answer, a frame of its own type, and that
/// others have none.
fn check_answer(request: TcpFrame<'_>, served: bool, out: &[u8]) {
    if !served {
        assert!(out.is_empty());
        return;
    }
    let Ok(Some((answer, length))) = frame::decode(out) else { panic!("no whole answer") };
    assert_eq!(length, out.len());
    match (request, answer) {
        (TcpFrame::Read { words, .. }, TcpFrame::ReadDone(found)) => {
            assert_eq!(found.len(), words as usize)
        }
        (TcpFrame::Write { .. }, TcpFrame::WriteDone) => {}
        (TcpFrame::Cas { .. } | TcpFrame::Faa { .. }, TcpFrame::AtomicDone(_)) => {}
        other => panic!("{other:?}"),
    }
}
