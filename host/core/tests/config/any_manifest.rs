//! No bytes make the manifest parser panic, and each accepted manifest is within its documented
//! limits.

use conclave_core::permissions::manifest::Manifest;
use conclave_core::types::capability::Capability;
use proptest::prelude::*;

const RIGHT: &str = r#"{"format": 1, "name": "weather", "version": "0.1.0", "contract": "0.1", "description": "d", "asks": {
    "fetch": {"why": "w", "urls": ["https://api.met.no/*"]}, "log": {}, "unknown": {"optional": true},
    "secrets": {"met": {"why": "w", "hosts": ["api.met.no"], "optional": true}}}, "config": {"units": {"type": "string"}}}"#;

fn check(json: &[u8]) {
    let Ok(manifest) = Manifest::parse(json) else { return };
    for text in [&manifest.name, &manifest.version] {
        assert!(
            (1..=64).contains(&text.len())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c)),
            "{text:?}"
        );
    }
    let json = serde_json::to_vec(&manifest).expect("a manifest is JSON");
    assert_eq!(Manifest::parse(&json).expect("what was taken in once is taken in again"), manifest);
    let _ = Capability::ALL.map(|capability| manifest.ask(capability));
}

#[test]
fn the_right_one_is_taken_in() {
    assert!(
        Manifest::parse(RIGHT.as_bytes()).is_ok_and(|manifest| manifest
            .ask(Capability::Secrets)
            .is_some_and(|ask| ask.optional))
    );
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            drop(Manifest::from_toml("x.toml", text));
        }
    }

    #[test]
    fn a_right_one_with_something_else_in_its_midst(
        at in any::<prop::sample::Index>(),
        length in 0_usize..12,
        piece in prop_oneof![
            "\\PC{0,3}",
            prop::sample::select(vec!["{", "}", "[", "]", "null", "1e999", "true", "\"\"", "\\u0000", "\\ud800", ",", ":", "{}", "[[[[[[[["]).prop_map(str::to_owned),
        ],
    ) {
        let start = RIGHT.floor_char_boundary(at.index(RIGHT.len()));
        let end = RIGHT.floor_char_boundary((start + length).min(RIGHT.len()));
        check(format!("{}{piece}{}", &RIGHT[..start], &RIGHT[end..]).as_bytes());
    }

    #[test]
    fn deep_ones(depth in 0_usize..20_000) {
        check(RIGHT.replace(r#"{"type": "string"}"#, &format!("{}{}", "[".repeat(depth), "]".repeat(depth))).as_bytes());
    }
}
