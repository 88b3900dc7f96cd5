use super::*;
use crate::{Engine, EngineConfig};
use clearway_storage::NodeConfig;
use clearway_testkit::MemDisk;
use std::path::Path;
use std::sync::mpsc;

fn open(disk: &MemDisk) -> Arc<Engine> {
    let node = NodeConfig {
        partitions: Some(1),
        frames: 64,
        wal_segment_size: 1 << 20,
        ..NodeConfig::default()
    };
    let config = EngineConfig {
        node,
        checkpoint_interval: Duration::from_secs(3600),
        ..EngineConfig::default()
    };
    Engine::open(Arc::new(disk.clone()), Path::new("/data"), config, Vec::new())
        .expect("a sound directory")
}

fn assert_failed(disk: &MemDisk, engine: &Arc<Engine>, planted: &str) {
    let expected = format!("thread checkpointer panicked: {planted}");
    assert_eq!(engine.failed(), Some(expected.clone()));
    assert_eq!(engine.shutdown(), Err(expected), "no last checkpoint");
    open(&disk.crash(1)).shutdown().expect("what was on the disk is sound");
}

#[test]
fn panic_between_checkpoints_fails_the_engine() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let checkpointer = Checkpointer::default();
    let (send, receive) = mpsc::channel();
    // Requests before and after the panic are both answered.
    for _ in 0..2 {
        let send = send.clone();
        checkpointer.request(Box::new(move |result| send.send(result).expect("the test waits")));
        checkpointer.start_with(engine.node(), Duration::MAX, u64::MAX, |_| {
            panic!("planted in its thread")
        });
        let refused = receive.recv().expect("an answer").expect_err("no checkpoint");
        assert_eq!(
            refused.message(),
            "checkpoints have stopped: the checkpointer panicked: planted in its thread"
        );
        checkpointer.stop();
    }
    assert_failed(&disk, &engine, "planted in its thread");
}

#[test]
fn panic_in_the_answer_to_a_checkpoint_fails_the_engine() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    engine.checkpointer.request(Box::new(|_| panic!("planted in an answer")));
    // The node itself refuses the next request.
    let (send, receive) = mpsc::channel();
    engine.checkpointer.request(Box::new(move |result| send.send(result).expect("the test waits")));
    let answered = receive.recv().expect("an answer");
    assert!(
        answered.is_ok() || answered.is_err_and(|e| e.message().contains("planted in an answer"))
    );
    engine.checkpointer.stop();
    assert_failed(&disk, &engine, "planted in an answer");
}
