//! The WASI interfaces that standard libraries expect, without access to the host. There is no
//! environment; only a program has arguments and input. The clock stands at the call's time.
//! Randomness is derived from the room's secret, the plugin and the call. Built at the first use,
//! because most calls need none of it.

use std::sync::Arc;
use std::time::Duration;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use conclave_core::types::ids::{CallId, PluginName};
use conclave_core::types::room_secret::RoomSecret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx};

use super::call_core::CallCore;
use super::stdio::GuestStream;
use crate::observe::subscribe::Level;

/// Maximum bytes of randomness for one host call.
const RANDOM_MAX: u64 = 1 << 20;

/// The arguments and the standard input of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramInput {
    pub(crate) arguments: Vec<String>,
    pub(crate) stdin: String,
}

/// WASI in one call.
#[derive(Default)]
pub(crate) struct Wasi {
    /// The input of a program, if the call runs one.
    pub(crate) program: Option<ProgramInput>,
    built: Option<Box<BuiltWasi>>,
}

/// The WASI context, and the output streams to finish after the call.
struct BuiltWasi {
    context: WasiCtx,
    stdout: GuestStream,
    stderr: GuestStream,
}

/// The time of the monotonic clock, which stands still. Go's runtime takes zero for a broken clock,
/// and does not start.
const MONOTONIC: Duration = Duration::from_secs(1);

impl Wasi {
    pub(crate) fn context(&mut self, core: &CallCore) -> &mut WasiCtx {
        let program = self.program.as_ref();
        &mut self.built.get_or_insert_with(|| BuiltWasi::new(core, program)).context
    }

    /// The end of standard error, empty if there was no output.
    pub(crate) fn finish_output(&self) -> String {
        self.built.as_ref().map_or_else(String::new, |wasi| {
            wasi.stdout.finish();
            wasi.stderr.finish()
        })
    }

    /// Returns what a program printed on standard output and on standard error.
    pub(crate) fn printed(&self) -> (String, String) {
        self.built.as_ref().map(|wasi| (wasi.stdout.text(), wasi.stderr.text())).unwrap_or_default()
    }

    /// Drops the context, which belongs to the instance.
    pub(crate) fn release(&mut self) {
        self.built = None;
    }
}

impl BuiltWasi {
    fn new(core: &CallCore, program: Option<&ProgramInput>) -> Box<Self> {
        let (start, book) = (&core.start, &core.book);
        let stdout = match program {
            // What it prints is its result.
            Some(_) => {
                let most = usize::try_from(core.plugin.limits().output).unwrap_or(usize::MAX);
                GuestStream::capture(Arc::clone(book), most)
            }
            None => GuestStream::new(Arc::clone(book), Level::Info),
        };
        let stderr = GuestStream::new(Arc::clone(book), Level::Warn);
        let seed = |stream| seed(&start.secret, &start.plugin, start.call, stream);
        let insecure = seed(RandomStream::Insecure);
        let (low, _) = insecure.split_at(16);
        let mut builder = WasiCtx::builder();
        builder
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .wall_clock(Still(Duration::from_millis(start.now.0)))
            .monotonic_clock(Still(MONOTONIC))
            .secure_random(ChaCha20Rng::from_seed(seed(RandomStream::Secure)))
            .insecure_random(ChaCha20Rng::from_seed(insecure))
            .insecure_random_seed(u128::from_le_bytes(low.try_into().expect("half of 32 bytes")))
            .max_random_size(RANDOM_MAX);
        if let Some(input) = program {
            builder.arg(start.plugin.as_str()).args(&input.arguments);
            builder.stdin(MemoryInputPipe::new(input.stdin.clone()));
        }
        Box::new(Self { context: builder.build(), stdout, stderr })
    }
}

/// The purposes of randomness, which are independent: a plugin may publish one stream without
/// revealing the other.
#[derive(Clone, Copy, Debug)]
enum RandomStream {
    Secure,
    Insecure,
}

impl RandomStream {
    fn domain(self) -> &'static [u8] {
        match self {
            Self::Secure => b"conclave randomness 2, secure\0",
            Self::Insecure => b"conclave randomness 2, insecure\0",
        }
    }
}

/// The seed of a stream. It is stable across replays and unpredictable without the room's secret.
fn seed(secret: &RoomSecret, plugin: &PluginName, call: CallId, stream: RandomStream) -> [u8; 32] {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a MAC takes a key of any length");
    mac.update(stream.domain());
    mac.update(&call.0.to_le_bytes());
    // The plugin's name comes last, so that no two inputs have the same bytes.
    mac.update(plugin.as_str().as_bytes());
    mac.finalize().into_bytes().into()
}

/// A clock that stands at the time of the last recorded answer, the start of the call. Waiting on
/// it really waits.
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
    use std::collections::BTreeSet;

    use chacha20::rand_core::Rng as _;
    use conclave_core::types::ids::RoomId;
    use sha2::Digest as _;
    use wasmtime_wasi::p2::bindings::random::{
        insecure::Host as _, insecure_seed::Host as _, random::Host as _,
    };

    use super::*;
    use crate::imports::testing::{core, setup};

    fn secret(byte: u8) -> RoomSecret {
        RoomSecret::new([byte; RoomSecret::LENGTH])
    }

    fn bytes(seed: [u8; 32]) -> [u8; 32] {
        let mut bytes = [0; 32];
        ChaCha20Rng::from_seed(seed).fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn each_plugin_call_and_stream_of_a_secret_has_bytes_of_its_own_and_the_same_ones_again() {
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for byte in 0..3 {
            for plugin in ["a", "ab", "b", ""] {
                for call in [0, 1, u64::from(b'a')] {
                    for stream in [RandomStream::Secure, RandomStream::Insecure] {
                        let drawn = || {
                            bytes(seed(
                                &secret(byte),
                                &PluginName::from(plugin),
                                CallId(call),
                                stream,
                            ))
                        };
                        assert_eq!(drawn(), drawn());
                        seen.insert(drawn());
                        count += 1;
                    }
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn whoever_knows_room_and_call_cannot_work_out_the_bytes() {
        // The inputs that every plugin of a room knows: the constant, the call's number and the
        // room's name.
        let guessed = |room: &RoomId, call: CallId| -> [u8; 32] {
            let mut hash = Sha256::new();
            hash.update(b"conclave randomness 1\0");
            hash.update(call.0.to_le_bytes());
            hash.update(room.as_str().as_bytes());
            hash.finalize().into()
        };
        let core = core(setup());
        let mut wasi = BuiltWasi::new(&core, None);
        let random = wasi.context.random();
        let secure = random.get_random_bytes(32).unwrap();
        let insecure = random.get_insecure_random_bytes(32).unwrap();
        let insecure_seed = random.insecure_seed().unwrap();
        let guess = guessed(&core.start.room, core.start.call);
        assert_ne!(secure, bytes(guess));
        assert_ne!(insecure, bytes(guess));
        // The streams have nothing in common.
        assert_ne!(secure, insecure);
        let seeded = |seed: [u8; 32]| {
            (
                u64::from_le_bytes(seed[..8].try_into().unwrap()),
                u64::from_le_bytes(seed[8..16].try_into().unwrap()),
            )
        };
        assert_ne!(insecure_seed, seeded(guess));
        assert_ne!(
            insecure_seed,
            seeded(seed(
                &core.start.secret,
                &core.start.plugin,
                core.start.call,
                RandomStream::Secure
            ))
        );
        // A replay gets the same randomness.
        let mut repeated = BuiltWasi::new(&core, None);
        assert_eq!(repeated.context.random().get_random_bytes(32).unwrap(), secure);
    }
}
