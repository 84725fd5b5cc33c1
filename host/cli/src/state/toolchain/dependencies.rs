//! The packages that a plugin in Python depends on: installed by pip into the folder of its build,
//! once for each list, so that a later build needs no network.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::{Toolchain, answer, output_of, show_output, step, with_hint};
use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::show::{one_line, show_path, unwritten};

/// The answer of the Python SDK's command `dependencies`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Dependencies {
    dependencies: Vec<String>,
    /// The interpreter and its arguments, which install the packages.
    command: Option<Vec<String>>,
    error: Option<String>,
    hint: Option<String>,
}

/// What `pip install --report` says: the wheels that it would install.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PipReport {
    install: Vec<PipWheel>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PipWheel {
    download_info: PipDownload,
    metadata: PipMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PipDownload {
    url: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PipMetadata {
    name: String,
}

impl Toolchain {
    /// Installs the packages of a pyproject.toml. Returns their folder; `None` if there are none.
    pub(super) fn dependencies(
        &self,
        app: &Path,
        out: &Path,
        output: OutputArgs,
    ) -> Result<Option<PathBuf>, CliError> {
        let project = app.with_file_name(self.language.project_file());
        let folder = out.join("dependencies");
        let mut command = self.sdk_command("dependencies");
        command.arg(&project).arg("--out").arg(&folder);
        let listing: Dependencies = answer(command, &project)?;
        if let Some(error) = listing.error {
            return Err(with_hint(CliError::plugin(error), listing.hint));
        }
        let Some(arguments) = listing.command else { return Ok(None) };
        let list = folder.with_extension("txt");
        let requirements = listing.dependencies.join("\n");
        if std::fs::read_to_string(&list).is_ok_and(|previous| previous == requirements) {
            return Ok(Some(folder));
        }
        step(output, &format!("installing {} …", listing.dependencies.join(", ")));
        let mut pip = Command::new(&self.interpreter);
        pip.args(arguments.iter().skip(1));
        let ran = output_of(&mut pip)?;
        if !ran.status.success() {
            return Err(match self.compiled(&listing.dependencies).as_slice() {
                [] => {
                    show_output(&ran);
                    CliError::usage("the dependencies could not be installed".to_owned()).hint(
                        "a component takes packages of pure Python alone; the output above says which has none",
                    )
                }
                compiled => {
                    let what = format!(
                        "{}: a component cannot load the compiled code of {}",
                        show_path(&project),
                        compiled.join(", ")
                    );
                    CliError::plugin(what).hint(
                        "use a package in pure Python, or the standard library; or write the plugin in Rust",
                    )
                }
            });
        }
        std::fs::write(&list, requirements).map_err(|error| unwritten(&list, error))?;
        Ok(Some(folder))
    }

    /// The packages with compiled code among those that these packages need. pip finds them for
    /// this machine where it found none for a component, and its own error reads as if they did not
    /// exist.
    fn compiled(&self, dependencies: &[String]) -> Vec<String> {
        let mut pip = Command::new(&self.interpreter);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"])
            .args(["--ignore-installed", "--only-binary=:all:", "--report", "-"])
            .args(dependencies);
        let report: PipReport = output_of(&mut pip)
            .ok()
            .and_then(|ran| serde_json::from_slice(&ran.stdout).ok())
            .unwrap_or_default();
        let is_compiled = |wheel: &PipWheel| !wheel.download_info.url.ends_with("-none-any.whl");
        let compiled = report.install.into_iter().filter(is_compiled);
        compiled.map(|wheel| one_line(&wheel.metadata.name, 64)).collect()
    }
}
