//! A model's reply, in one chunk and in many, as each API reads it.

use conclave_core::types::completion::ModelApi;
use conclave_models::fuzzing::{ParsedReply, read};

use crate::Random;

const KEY: &str = "sk-fuzz-0123456789abcdef";
/// Above the stream of any input: this check depends on the chunks, so it has a test of its own.
const LIMIT: u64 = 1 << 20;

pub(super) fn check(input: &[u8]) {
    ModelApi::ALL.into_iter().for_each(|api| check_api(input, api));
}

fn check_api(input: &[u8], api: ModelApi) {
    let whole = read([input], api, LIMIT, KEY);
    hides_the_key(&whole);
    let mut random = Random::new(
        input.iter().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte))),
    );
    let mut cuts: Vec<usize> =
        (0..5).map(|_| random.below(input.len() + 1)).chain([0, input.len()]).collect();
    cuts.sort_unstable();
    for other in [
        read(cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]), api, LIMIT, KEY),
        read(input.chunks(1), api, LIMIT, KEY),
        read(input.chunks(3), api, LIMIT, KEY),
    ] {
        hides_the_key(&other);
        assert_eq!(
            (&other.streamed, &other.answer),
            (&whole.streamed, &whole.answer),
            "cut otherwise it says something else"
        );
    }
    let short = read(input.chunks(7), api, 64, KEY);
    hides_the_key(&short);
    assert!(
        short.streamed.len() <= 64 + KEY.len() * 8,
        "more was streamed than allowed: {}",
        short.streamed.len()
    );
}

fn hides_the_key(read: &ParsedReply) {
    assert!(!read.streamed.contains(KEY), "the key was streamed");
    assert!(!read.error.contains(KEY), "an error repeats the key");
    if let Ok(completion) = &read.answer {
        let json = serde_json::to_string(completion).expect("a completion can be journalled");
        assert!(!json.contains(KEY), "an answer repeats the key: {json}");
    }
}
