//! Test of the number of pools of a process. It is a program of its own, because the limit is for
//! the whole process.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use carina_frame::{Pool, PoolConfig, PoolError};

fn one_frame() -> Result<Pool, PoolError> {
    Pool::new(PoolConfig {
        frames: 1,
        frame_bytes: 64,
    })
}

#[test]
fn pools_come_and_go_without_end_and_are_bounded_at_once() {
    for _ in 0..200 {
        let pool = one_frame().unwrap();
        assert!(pool.take().is_some());
    }
    let mut pools = Vec::new();
    let error = loop {
        match one_frame() {
            Ok(pool) => pools.push(pool),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PoolError::TooMany) && pools.len() == 64);
}
