//! The stock plugins in Python, which componentize-py from pip makes components of. Where it cannot
//! be installed they are left out, with one line that gives the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::XtaskFailure;
use crate::files;
use crate::phase;
use crate::place::{Checkout, digest, files_below};
use crate::servers;
use crate::shared::SharedComponents;

/// The plugins' folders, each named as its plugin.
const FOLDERS: [&str; 1] = ["plugins/tools/python"];
const BUILDER: &str = "host/xtask/python_plugin.py";
/// What a component is made of, besides the plugin's folder and the builder.
const SHARED: [(&str, &str); 3] = [
    ("sdk/python/conclave_sdk", ".py"),
    ("sdk/python/conclave_sdk/_build", ".txt"),
    ("wit", ".wit"),
];

/// Returns the component and the name of each plugin, which is built again only after its inputs
/// changed; none if componentize-py cannot be installed.
pub(crate) fn build(place: &Checkout) -> Result<Vec<(PathBuf, String)>, XtaskFailure> {
    let mut built = Vec::new();
    for folder in FOLDERS {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        let out = place.own().join("python-plugins").join(name);
        let component = out.join(format!("{name}.wasm"));
        let (digest, inputs_file) = (inputs_digest(place, folder)?, out.join("inputs"));
        let is_current = fs::read_to_string(&inputs_file).is_ok_and(|found| found == digest);
        let shared = SharedComponents::find(place, &format!("python-{name}"), &digest);
        let names = [name.to_owned()];
        if !(is_current && component.is_file()) {
            if let Some(known) = shared.as_ref().and_then(|shared| shared.get(&names)) {
                built.extend(known);
                continue;
            }
            let interpreter = match servers::componentize(place) {
                Ok(interpreter) => interpreter,
                Err(reason) => {
                    eprintln!("stock:{name} is left out: {reason}");
                    continue;
                }
            };
            let mut command = Command::new(interpreter);
            command.arg(place.root.join(BUILDER)).arg(place.root.join(folder)).arg(&out);
            phase::beforehand(place, &format!("building stock:{name}"), name, command)?;
            files::write(&inputs_file, digest)?;
            if let Some(shared) = shared {
                shared.put(&[(component.clone(), name.to_owned())]);
            }
        }
        built.push((component, name.to_owned()));
    }
    Ok(built)
}

/// Returns a digest of all inputs.
fn inputs_digest(place: &Checkout, folder: &str) -> Result<String, XtaskFailure> {
    let own = place.root.join(folder);
    let mut files = vec![place.root.join(BUILDER), own.join("conclave-plugin.toml")];
    files.push(own.join("pyproject.toml"));
    files.extend(modules(&own));
    for (folder, ending) in SHARED {
        files.extend(files_below(&place.root.join(folder), ending));
    }
    digest(place, files)
}

/// Returns the modules beside an app, without its tests and what a build left there.
fn modules(folder: &Path) -> Vec<PathBuf> {
    let is_module = |path: &PathBuf| {
        path.parent() == Some(folder)
            && path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with("test_"))
    };
    files_below(folder, ".py").into_iter().filter(is_module).collect()
}
