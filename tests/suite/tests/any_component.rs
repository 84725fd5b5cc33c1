//! No bytes make the component parser of the host panic: real components with inserted bytes, cut,
//! or recombined.

use conclave_runtime::plugin::{embed, inspect};
use conclave_test_support::guest;
use proptest::prelude::*;

fn component() -> &'static [u8] {
    static BYTES: std::sync::LazyLock<Vec<u8>> =
        std::sync::LazyLock::new(|| std::fs::read(guest("echo")).expect("the guest can be read"));
    &BYTES
}

/// Parses the bytes, and formats the error if there is one.
fn check(bytes: &[u8]) {
    match inspect(bytes) {
        Ok(found) => assert_eq!(found.size, bytes.len() as u64),
        Err(error) => {
            let shown = error.to_string();
            assert!(
                !shown.is_empty()
                    && shown.len() < 64 << 10
                    && !shown.chars().any(|c| c == '\u{1b}'),
                "{shown:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_component_with_other_bytes_in_its_midst(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..6)), 1..4),
        near_the_start in any::<bool>(),
    ) {
        let mut bytes = component().to_vec();
        // Most of a component is code, which is not parsed here.
        let within = if near_the_start { 512 } else { bytes.len() };
        for (at, other) in &changes {
            let at = at.index(within);
            let end = (at + other.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&other[..end - at]);
        }
        check(&bytes);
    }

    #[test]
    fn a_component_that_is_cut_or_goes_on(cut in any::<prop::sample::Index>(), more in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = component()[..cut.index(component().len())].to_vec();
        bytes.extend(&more);
        check(&bytes);
    }

    #[test]
    fn bytes_that_begin_like_one(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_component in any::<bool>()) {
        let head: &[u8] = if is_component { b"\0asm\x0d\0\x01\0" } else { b"\0asm\x01\0\0\0" };
        bytes.splice(0..0, head.iter().copied());
        check(&bytes);
        drop(embed(&bytes, &conclave_core::permissions::manifest::Manifest::default()));
    }
}
