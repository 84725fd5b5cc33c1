//! The part of WASI that a language's standard library expects, inert: no arguments, no environment, closed standard input, no folders, a
//! clock that stands still at the call's time, randomness that is fixed by the call. Built when a guest first asks for it, because most
//! calls never do.

use std::sync::Arc;
use std::time::Duration;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use conclave_core::ids::{CallId, Millis, RoomId};
use sha2::{Digest, Sha256};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx};

use super::log::LogBook;
use super::stdio::Output;
use crate::subscribe::Level;

/// Bytes of randomness that one call of the host may give.
const RANDOM_MAX: u64 = 1 << 20;

/// WASI's state, and the streams to look at when the call has ended.
pub(crate) struct Wasi {
    pub(crate) context: WasiCtx,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

impl Wasi {
    pub(crate) fn new(room: &RoomId, call: CallId, now: Millis, book: &Arc<LogBook>) -> Box<Self> {
        let stdout = Output::new(Arc::clone(book), Level::Info);
        let stderr = Output::new(Arc::clone(book), Level::Warn);
        let seed = seed(room, call);
        let (low, _) = seed.split_at(16);
        let mut builder = WasiCtx::builder();
        builder
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .wall_clock(Still(Duration::from_millis(now.0)))
            .monotonic_clock(Still(Duration::ZERO))
            .secure_random(ChaCha20Rng::from_seed(seed))
            .insecure_random(ChaCha20Rng::from_seed(seed))
            .insecure_random_seed(u128::from_le_bytes(low.try_into().expect("half of 32 bytes")))
            .max_random_size(RANDOM_MAX);
        Box::new(Self { context: builder.build(), stdout, stderr })
    }
}

/// Randomness is a function of room and call, so a call that is run again gives the same answer.
fn seed(room: &RoomId, call: CallId) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"conclave randomness 1\0");
    hash.update(call.0.to_le_bytes());
    hash.update(room.as_str().as_bytes());
    hash.finalize().into()
}

/// A clock that shows the time of the last recorded answer, which is the call's start. Waiting on it really waits.
struct Still(Duration);

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        self.0
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1_000_000
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_is_fixed_by_room_and_call() {
        let (here, there) = (RoomId::from("r"), RoomId::from("s"));
        assert_eq!(seed(&here, CallId(1)), seed(&here, CallId(1)));
        assert_ne!(seed(&here, CallId(1)), seed(&here, CallId(2)));
        assert_ne!(seed(&here, CallId(1)), seed(&there, CallId(1)));
    }
}
