//! A manifest in both of its forms.

use conclave_core::permissions::manifest::{CONTRACT, FORMAT, Manifest};

pub(super) fn check(input: &[u8]) {
    match Manifest::parse(input) {
        Ok(manifest) => written_and_read(&manifest),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let text = String::from_utf8_lossy(input);
    match Manifest::from_toml("x.toml", &text) {
        Ok(manifest) => written_and_read(&manifest),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn written_and_read(manifest: &Manifest) {
    assert!(manifest.format <= FORMAT && manifest.contract == CONTRACT);
    let json = serde_json::to_vec(manifest).expect("a manifest can be written");
    let read =
        Manifest::parse(&json).unwrap_or_else(|error| panic!("a manifest is read back: {error}"));
    assert_eq!(&read, manifest, "a manifest is read back as it was");
}
