//! A partition: a state machine that executes fragments under a concurrency-control scheme.
