//! Embeds a manifest into a component without one.

use conclave_core::permissions::manifest::{Manifest, SECTION};

use super::{LoadError, anatomy};

/// Returns the component with the manifest as its outermost section. A manifest in a nested module
/// stays, but is ignored from then on.
///
/// # Errors
/// `NotAComponent` or `Malformed` if the bytes are no component; `ManifestTwice` if it already has
/// an outermost manifest.
pub fn embed(component: &[u8], manifest: &Manifest) -> Result<Vec<u8>, LoadError> {
    if anatomy::has_outermost_manifest(component)? {
        return Err(LoadError::ManifestTwice { count: 2, place: "the outermost component" });
    }
    let json =
        serde_json::to_vec(manifest).expect("a manifest holds nothing but JSON values and texts");
    let mut section = Vec::with_capacity(json.len() + SECTION.len() + 16);
    write_length(&mut section, SECTION.len());
    section.extend_from_slice(SECTION.as_bytes());
    section.extend_from_slice(&json);
    let mut embedded = component.to_vec();
    // A custom section has the id 0, and is valid at the end.
    embedded.push(0);
    write_length(&mut embedded, section.len());
    embedded.extend_from_slice(&section);
    Ok(embedded)
}

/// Appends a length as LEB128, the encoding of the binary format.
fn write_length(bytes: &mut Vec<u8>, mut length: usize) {
    loop {
        let low = u8::try_from(length & 0x7f).expect("seven bits fit");
        length >>= 7;
        if length == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::permissions::manifest::Manifest;

    use super::{anatomy, embed};

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn manifest(description: &str) -> Manifest {
        let (name, version, contract) = ("x".into(), "1".into(), "0.1".into());
        Manifest {
            format: 1,
            name,
            version,
            contract,
            description: description.into(),
            ..Manifest::default()
        }
    }

    #[test]
    fn an_embedded_manifest_is_read_back() {
        // Encoded lengths of one, two and three bytes.
        for length in [0, 200, 20_000] {
            let embedded = embed(EMPTY, &manifest(&"d".repeat(length))).expect("it is a component");
            let read = anatomy::read(&embedded).expect("it is a component with a manifest");
            assert_eq!(
                Manifest::parse(read.manifest.expect("it has one"))
                    .expect("it is right")
                    .description
                    .len(),
                length
            );
        }
    }

    #[test]
    fn a_second_manifest_is_refused() {
        let embedded = embed(EMPTY, &manifest("first")).expect("it is a component");
        assert!(embed(&embedded, &manifest("second")).is_err());
        assert!(embed(b"not wasm", &manifest("third")).is_err());
    }
}
