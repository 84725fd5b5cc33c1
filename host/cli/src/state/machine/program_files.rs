//! The check of the files that belong to the program.

use std::collections::BTreeMap;

use conclave_runtime::plugin::{PluginComponent, ProgramFileError};

use super::Finding;
use crate::state::stock;
use crate::ui::show::{plural, show_path};

/// Reads all files that belong to the program; `None` for a program without any.
pub(crate) fn program_files() -> Option<Finding> {
    rate(&stock::stock(), &show_path(stock::folder()))
}

/// Rates the files of these components, which are in this folder.
fn rate(stock: &BTreeMap<String, PluginComponent>, folder: &str) -> Option<Finding> {
    const WHAT: &str = "program's files";
    let (mut count, mut slow, mut unusable, mut changed) = (0, Vec::new(), Vec::new(), 0);
    for (name, component) in stock {
        let (code, bytes) = (component.code(), component.file());
        count += u64::from(code.is_some()) + u64::from(bytes.is_some());
        let mut is_usable = |read: Option<Result<(), ProgramFileError>>| match read {
            Some(Err(error)) => {
                changed += usize::from(!error.is_missing());
                false
            }
            None | Some(Ok(())) => true,
        };
        let has_code = is_usable(code.map(|file| file.check()));
        let has_bytes = is_usable(bytes.map(|file| file.check()));
        match (has_code, has_bytes) {
            (true, true) => {}
            // The bytes are needed to compile it, or to push it to a registry.
            (_, false) => unusable.push(format!("stock:{name}")),
            (false, true) => slow.push(format!("stock:{name}")),
        }
    }
    if count == 0 {
        return None;
    }
    if slow.is_empty() && unusable.is_empty() {
        let count = plural(count, "file", "files");
        return Some(Finding::ok(WHAT, format!("{count} for the stock plugins in {folder}")));
    }
    let mut found = format!("not complete in {folder}");
    if changed > 0 {
        found.push_str(&format!(" ({changed} changed)"));
    }
    if !unusable.is_empty() {
        found.push_str(&format!("; {} may not load", unusable.join(", ")));
    }
    if !slow.is_empty() {
        let count = plural(slow.len() as u64, "stock plugin", "stock plugins");
        found.push_str(&format!("; {count} compiled at first use"));
    }
    Some(Finding::note(
        WHAT,
        found,
        "install the program again; or put the archive's folder `lib` beside its folder `bin`",
    ))
}

#[cfg(test)]
mod tests {
    use conclave_runtime::plugin::{PrebuiltBytes, ProgramFile, inspect};

    use super::*;
    use crate::state::machine::CheckResult;

    #[test]
    fn each_missing_and_changed_file_is_counted() {
        let embedded = conclave_stock::stock();
        let Some(bytes) = embedded.get("search") else { return };
        let temp = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            ProgramFile::new(temp.path().join(name), ProgramFile::digest_of(name.as_bytes()))
        };
        let write = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
        let component = |bytes, code: &str| {
            let inspection = inspect(embedded.get("search").unwrap()).unwrap();
            #[expect(unsafe_code, reason = "it is checked, and never loaded")]
            // SAFETY: nothing loads the code.
            unsafe {
                PluginComponent::prebuilt(bytes, inspection, file(code))
            }
        };
        let stock = BTreeMap::from([
            ("big".to_owned(), component(PrebuiltBytes::File(file("big")), "big-code")),
            ("small".to_owned(), component(PrebuiltBytes::InProgram(bytes.clone()), "code")),
        ]);
        let rated = || rate(&stock, "lib").unwrap();
        for name in ["big", "big-code", "code"] {
            write(name, name);
        }
        assert_eq!(rated(), Finding::ok("program's files", "3 files for the stock plugins in lib"));
        write("code", "other");
        let found = rated();
        assert_eq!(found.state, CheckResult::Note);
        assert_eq!(
            found.message,
            "not complete in lib (1 changed); 1 stock plugin compiled at first use"
        );
        std::fs::remove_file(temp.path().join("big")).unwrap();
        assert!(rated().message.contains("; stock:big may not load; 1 stock plugin"));
        assert_eq!(rate(&BTreeMap::new(), "lib"), None);
    }
}
