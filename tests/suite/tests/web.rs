//! `conclave serve` with programs of the web that others wrote: a browser, a checker of accessibility,
//! a checker of APIs, a proxy. `cargo xtask test` installs the first three, and runs these alone.

mod browser;
mod conformance;
mod nginx;

use std::path::{Path, PathBuf};

use conclave_test_support::{Rig, guest};

/// Returns the Python of the virtual environment with Playwright and Schemathesis.
fn python() -> PathBuf {
    let named = std::env::var_os("CONCLAVE_WEB").expect("`cargo xtask test` says where it is");
    PathBuf::from(named)
}

/// Returns a file of these tests.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/web").join(name)
}

/// Returns the first of these programs that the machine has.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A service's program is often in a folder of administrators.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let files = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// Returns a config whose agent writes files in an overlay, and then calls a tool that needs an
/// approval.
fn desk() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\n[plugins.actor]\nsource = {:?}\ngrants.tools = [\"echo.*\", \"writer.*\"]\n\
         config = {{ script = [{{ call = \"writer.forge\", arguments = {{}} }}, {{ call = \"echo.run\", arguments = {{ text = \"it ran\" }} }}] }}\n\
         [plugins.echo]\nsource = {:?}\n[plugins.writer]\nsource = {:?}\n\
         grants.files = [{{ dir = \"data\", at = \"/folder\", mode = \"overlay\" }}]\n\
         [[policy]]\ntool = \"echo.run\"\ndecide = \"ask\"\n[channels.web]\nkind = \"web\"\n",
        guest("acting_agent").display().to_string(),
        guest("echo").display().to_string(),
        guest("overlay_escape").display().to_string(),
    );
    Rig::new().with_file("c.toml", config).with_file("data/a.txt", "inside\n")
}
