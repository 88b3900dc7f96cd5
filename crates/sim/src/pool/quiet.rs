//! Checks on an idle pool, whose state is known exactly.

use super::{PATIENCE, Stage};
use clearway_buffer::MissingPage;
use clearway_sync::virtual_time;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for something that must happen by itself: longer than any wait of the cooler
/// and any batch on a slow disk.
const SETTLING: Duration = Duration::from_secs(20);
/// Time between two checks. Short, because while threads run, the clock may advance up to the next
/// time-out.
const MOMENT: Duration = Duration::from_millis(5);
/// The number of frames that the cooler keeps free in pools this small.
const LOW: u32 = 2;
/// A cooler that checks again only after this time must be woken. A slow disk answers sooner.
const LONG: Duration = Duration::from_secs(5);

/// Waits until `done` or for `within`; returns whether it is done.
fn comes(within: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = virtual_time::now();
    loop {
        if done() {
            return true;
        }
        if virtual_time::now() - began > within {
            return false;
        }
        virtual_time::sleep(MOMENT);
    }
}

/// Checks that every page can be fetched, is the newest version, and is known to the policy unless
/// a scan may have read it; and that the cooler frees frames before a thread waits for one.
pub fn look_at_all_pages(stage: &Stage) -> Result<(), String> {
    for id in stage.world.all_pages() {
        if let Ok(_keep) = stage.fetch(MissingPage::Page(id)) {
            let page = stage
                .pool
                .read(id)
                .map_err(|want| format!("{id} is kept, but it is not there: {want:?}"))?;
            stage.check_newest(id, &page);
            if !stage.view.has(id) && !stage.was_scanned(id) {
                return Err(format!("{id} is in the pool, and the policy does not know it"));
            }
        }
        if !comes(SETTLING, || stage.is_over() || stage.pool.stats().free >= LOW) {
            return Err(
                "no page is pinned, and hardly a frame is free, but the cooler sleeps".into()
            );
        }
    }
    Ok(())
}

/// Checks that a thread that must wait for a frame wakes the cooler, even one that has just seen
/// all frames in use and would check again later.
pub fn starve(stage: &Arc<Stage>) -> Result<(), String> {
    if stage.world.pool.waits.idle_retry < LONG {
        return Ok(());
    }
    let mut pages = stage.world.all_pages();
    let mut keeps = Vec::new();
    while !stage.is_over() && stage.pool.stats().free >= LOW {
        let Some(id) = pages.next() else { return Ok(()) };
        keeps.extend(stage.fetch(MissingPage::Page(id)));
        virtual_time::sleep(LONG / 10);
    }
    drop(keeps);
    // One more than the number of free frames.
    for id in pages.take(LOW as usize) {
        stage.ask_for(MissingPage::Page(id), drop);
        if !comes(LONG / 2, || stage.all_answered()) {
            return Err(format!(
                "no page is pinned, but {id} waits for a frame, and the cooler sleeps"
            ));
        }
    }
    Ok(())
}

/// Checks that no pin is left: every frame can be allocated.
pub fn take_all_frames(stage: &Stage) -> Result<(), String> {
    let frames = stage.world.pool.frames;
    let began = virtual_time::now();
    let mut reserved = Vec::new();
    while reserved.len() < frames as usize {
        let promise = stage.fetch(MissingPage::Frames(1));
        match stage.pool.reserve_frames(1) {
            Ok(frame) => reserved.push(frame),
            Err(_) if virtual_time::now() - began < PATIENCE => {
                virtual_time::sleep(Duration::from_millis(1))
            }
            Err(want) => {
                let had = reserved.len();
                return Err(format!(
                    "no page is pinned, but only {had} of {frames} frames can be allocated: {want:?}, {promise:?}"
                ));
            }
        }
    }
    match stage.world.all_pages().find(|id| stage.pool.is_resident(*id)) {
        None => Ok(()),
        Some(id) => Err(format!("all frames are free, but {id} is resident")),
    }
}
