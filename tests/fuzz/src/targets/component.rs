//! A component's bytes, before any of it is compiled.

use conclave_core::permissions::manifest::{CONTRACT, FORMAT, Manifest, SECTION};
use conclave_runtime::plugin::{embed, inspect};

pub(super) fn check(input: &[u8]) {
    match inspect(input) {
        Ok(inspection) => {
            assert_eq!(inspection.size, input.len() as u64);
            let section = SECTION.as_bytes();
            assert!(
                !inspection.has_manifest
                    || input.windows(section.len()).any(|window| window == section),
                "a manifest from nowhere"
            );
            assert!(
                inspection
                    .imports
                    .iter()
                    .chain(&inspection.exports)
                    .all(|name| !name.chars().any(char::is_control))
            );
            assert!(
                embed(input, &manifest()).is_err()
                    || inspect(&embed(input, &manifest()).unwrap_or_default()).is_ok()
            );
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && told.len() < 64 << 10, "an error of {} bytes", told.len());
        }
    }
    // Bytes behind the last section would be read as the start of another one.
    if let Ok(whole) = embed(input, &manifest()) {
        assert!(whole.starts_with(input), "the component itself is changed");
        if let Ok(inspection) = inspect(&whole) {
            assert_eq!(
                inspection.manifest,
                manifest(),
                "the manifest that was put in is the one that is read"
            );
        }
    }
}

fn manifest() -> Manifest {
    let (name, version, contract) = ("put-in".to_owned(), "1".to_owned(), CONTRACT.to_owned());
    Manifest { format: FORMAT, name, version, contract, ..Manifest::default() }
}
