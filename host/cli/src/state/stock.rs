//! The stock plugins of this program, and the files that belong to it: machine code and large
//! components. They are in `lib/conclave` beside the folder of the program, wherever both are moved.

use std::collections::BTreeMap;
use std::path::PathBuf;

use conclave_runtime::plugin::{PluginComponent, PrebuiltBytes, ProgramFile};

/// The components that configs can name as `stock:NAME`. No file is read.
pub(crate) fn stock() -> BTreeMap<String, PluginComponent> {
    let mut embedded = conclave_stock::stock();
    let folder = folder();
    let file = |digest: &str, ending: &str| {
        ProgramFile::new(folder.join(format!("{digest}.{ending}")), digest)
    };
    let mut stock = BTreeMap::new();
    for prebuilt in conclave_stock::prebuilt() {
        let Ok(inspection) = serde_json::from_str(prebuilt.facts) else { continue };
        let bytes = match (prebuilt.component, embedded.remove(prebuilt.name)) {
            (Some(digest), _) => PrebuiltBytes::File(file(digest, "wasm")),
            (None, Some(bytes)) => PrebuiltBytes::InProgram(bytes),
            (None, None) => continue,
        };
        #[expect(
            unsafe_code,
            reason = "machine code cannot be checked; its digest is as much a part of the program as its own code"
        )]
        // SAFETY: facts and digest are in the program's read-only data. The build put them there,
        // after `host/cli/precompile.rs` had made the code with `precompile`.
        let component =
            unsafe { PluginComponent::prebuilt(bytes, inspection, file(prebuilt.code, "cwasm")) };
        stock.insert(prebuilt.name.to_owned(), component);
    }
    stock.extend(embedded.into_iter().map(|(name, bytes)| (name, bytes.into())));
    stock
}

/// The folder of the program's files.
pub(crate) fn folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // The program may be started through a link, and the folder is beside the program itself.
    let program = program.canonicalize().unwrap_or(program);
    program.ancestors().nth(2).map(|root| root.join("lib/conclave")).unwrap_or_default()
}
