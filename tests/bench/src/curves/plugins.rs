//! The plugins in a config: the cost of preparing it when all code is in the cache, and of a task.
//! Every plugin has a component of its own.

use std::fs;
use std::path::Path;
use std::time::Instant;

use conclave_runtime::{Host, HostOptions, RunOptions};

use super::series::{Curve, Rounds};
use super::{Place, failed};
use crate::BenchError;
use crate::durable::Folder;

const PLUGINS: [u64; 4] = [1, 10, 100, 1_000];

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let sizes = place.sizes(&PLUGINS);
    let folder = Folder::make(&place.folder()?, "plugins")?;
    components(place.guests, folder.path(), sizes.last().copied().unwrap_or(1))?;
    let host = Host::new(HostOptions {
        cache: Some(folder.path().join("cache")),
        ..HostOptions::default()
    })
    .map_err(failed)?;
    let config = |plugins: u64| config(folder.path(), plugins);
    // Compiles every component once. The most plugins come first, so that a config that does not
    // load stops the measurement early.
    for &plugins in sizes.iter().rev() {
        place.load(&host, &config(plugins)).await?;
    }
    let (mut preparing, mut task) =
        (Rounds::new("preparing the config"), Rounds::new("a task of one step"));
    for _ in 0..place.rounds() {
        for &plugins in sizes {
            let mut times = Vec::new();
            for _ in 0..(30 / plugins).max(2) {
                let began = Instant::now();
                let prepared = place.load(&host, &config(plugins)).await?;
                times.push(began.elapsed());
                drop(prepared);
            }
            preparing.take(plugins, times);
            let prepared = place.load(&host, &config(plugins)).await?;
            let mut times = Vec::new();
            for _ in 0..200 {
                let began = Instant::now();
                let run = prepared.start(Some("go".to_owned()), RunOptions::default());
                run.map_err(failed)?.outcome().await.map_err(failed)?;
                times.push(began.elapsed());
            }
            task.take(plugins, times);
        }
    }
    Ok(Curve {
        what: super::PLUGINS.to_owned(),
        axis: "plugins in the config".to_owned(),
        series: vec![preparing.series(), task.series()],
        remark: None,
    })
}

/// Returns a config with an agent and tools, of this many plugins together.
fn config(folder: &Path, plugins: u64) -> String {
    let mut text = "entry = \"main\"\n[tasks.main]\nagent = \"agent\"\n\
                    [plugins.agent]\nsource = \"agent_echo.wasm\"\n"
        .to_owned();
    for number in 1..plugins {
        let path = folder.join(format!("{number}.wasm"));
        text += &format!("[plugins.p{number}]\nsource = {:?}\n", path.to_string_lossy());
    }
    text
}

/// Writes this many different components: the same tool, each with a number in a custom section.
fn components(guests: &Path, folder: &Path, count: u64) -> Result<(), BenchError> {
    let path = guests.join("echo.wasm");
    let wasm = fs::read(&path).map_err(|cause| BenchError::Component { path, cause })?;
    for number in 1..count {
        let path = folder.join(format!("{number}.wasm"));
        let mut bytes = wasm.clone();
        bytes.extend(custom_section(&number.to_string()));
        fs::write(&path, bytes).map_err(|cause| BenchError::Write { path, cause })?;
    }
    Ok(())
}

/// Returns a custom section without content: its id, its length, and its name with the length
/// before it. Lengths below 128 are one byte.
fn custom_section(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap_or(0);
    [&[0, length + 1, length], name.as_bytes()].concat()
}
