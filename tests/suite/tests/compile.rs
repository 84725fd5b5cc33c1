//! Compilation of third-party components by a child process with limits: its results, and its
//! refusal of a component that takes too long.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use conclave_core::config::{Config, ProblemCode, Problems};
use conclave_runtime::plugin::Compiler;
use conclave_runtime::{Follow, Host, HostOptions, Prepared};
use conclave_test_support::{Rig, bare, block_on, calling, program};
use serde_json::json;

use crate::by_hand::{More, config, tool};
use crate::cli::text;

fn child() -> Compiler {
    Compiler::Child { program: program(), args: vec!["compile-component".into()] }
}

/// Loads a config with a compiler, and a cache of its own.
fn prepare(rig: &Rig, compiler: Compiler, cache: &str, config: &str) -> Result<Prepared, Problems> {
    let folder = rig.folder().to_string_lossy().into_owned();
    let config = Config::parse("conclave.toml", &folder, config)?;
    let cache = Some(rig.folder().join(cache));
    let host = Host::new(HostOptions { compiler, cache, ..HostOptions::default() })
        .expect("the engine starts");
    block_on(host.prepare(&config, &(Arc::new(|_| {}) as Follow))).map_err(Problems::from)
}

/// The reason why the plugins of a config are refused.
fn refused(rig: &Rig, compiler: Compiler, config: &str) -> String {
    let problems = prepare(rig, compiler, "cache", config).err().expect("it is refused");
    let codes = problems.codes();
    assert!(!codes.is_empty());
    assert!(codes.iter().all(|code| *code == ProblemCode::PluginRefused), "{problems}");
    problems.to_string()
}

/// Returns a component that is small but slow to compile.
fn slow() -> Vec<u8> {
    let mut functions = String::new();
    for number in 0..500 {
        let _ = write!(functions, "(func (param i32) (result i32) (local.get 0)");
        for step in 0..60 {
            let _ = write!(
                functions,
                "(i32.const {}) (i32.mul) (local.tee 0) (local.get 0) (i32.xor)",
                number * 60 + step
            );
        }
        functions.push(')');
    }
    tool(More { module: &functions, ..More::default() })
}

/// Returns the compiled code in a cache, without the cache's header.
fn kept(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .expect("the cache is there")
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "cwasm"))
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                std::fs::read(entry.path()).expect("it can be read")[48..].to_vec(),
            )
        })
        .collect();
    entries.sort();
    entries
}

/// Returns the children of this process that still run or were not waited for.
#[cfg(target_os = "linux")]
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let stats = std::fs::read_dir("/proc").expect("it is there").flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    // The state and the parent follow the name in parentheses.
    stats
        .filter(|stat| {
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&own)
        })
        .collect()
}

#[test]
fn a_child_makes_the_same_code_and_it_runs() {
    let rig = Rig::new();
    let config = calling("echo", "run", &json!({ "text": "hello" }), "");
    let prepared = prepare(&rig, child(), "by-child", &config).expect("it loads");
    assert!(prepared.plugins().iter().all(|plugin| !plugin.from_cache));
    let run = prepared.start(Some("go".to_owned()), conclave_runtime::RunOptions::default());
    let outcome = block_on(async { run.expect("it starts").outcome().await });
    assert_eq!(outcome.expect("it ends").content.as_deref(), Some("hello"));
    prepare(&rig, Compiler::InProcess, "here", &config).expect("it loads");
    let (by_child, here) = (kept(&rig.folder().join("by-child")), kept(&rig.folder().join("here")));
    assert_eq!(by_child.len(), 2, "agent and tool");
    assert!(
        by_child == here,
        "the code differs: {:?}",
        by_child
            .iter()
            .zip(&here)
            .map(|(one, other)| (&one.0, one.1.len(), other.1.len()))
            .collect::<Vec<_>>()
    );
    // A host with an in-process compiler finds the child's results in the cache.
    let again = prepare(&rig, Compiler::InProcess, "by-child", &config).expect("it loads");
    assert!(again.plugins().iter().all(|plugin| plugin.from_cache));
}

#[test]
fn a_component_that_takes_long_to_compile_is_given_up() {
    let rig = Rig::new().with_file("subject.wasm", slow());
    for compiler in [child(), Compiler::InProcess] {
        let told = refused(&rig, compiler, &config(r#"compile_time = "10 ms""#));
        assert!(told.contains("`subject` is refused: compiling it took longer than 10 ms (its limits.compile_time)"), "{told}");
        #[cfg(target_os = "linux")]
        assert_eq!(
            children(),
            [] as [String; 0],
            "a child that is given up is ended, and waited for"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_component_that_takes_much_memory_to_compile_is_given_up() {
    let rig = Rig::new().with_file("subject.wasm", slow());
    for memory in ["1 MiB", "8 MiB"] {
        let told = refused(&rig, child(), &config(&format!("compile_memory = \"{memory}\"")));
        let reason = format!(
            "`subject` is refused: compiling it took more than {memory} of memory (its limits.compile_memory)"
        );
        assert!(told.contains(&reason), "{told}");
        assert_eq!(children(), [] as [String; 0]);
    }
}

#[test]
fn a_component_that_does_not_compile_is_refused_with_the_reason() {
    let rig = Rig::new().with_file(
        "subject.wasm",
        tool(More { module: "(func (result i32) (i64.const 1))", ..More::default() }),
    );
    let told = refused(&rig, child(), &config(""));
    assert!(
        told.contains("`subject` is refused: it cannot be compiled")
            && told.contains("type mismatch"),
        "{told}"
    );
}

#[test]
fn a_compiler_that_is_none_is_no_way_around() {
    let rig = Rig::new().with_file("subject.wasm", tool(More::default()));
    for (program, said) in [
        ("/nonexistent/conclave", "could not be started"),
        ("/bin/false", "ended without an answer"),
    ] {
        let compiler = Compiler::Child { program: program.into(), args: Vec::new() };
        let told = refused(&rig, compiler, &config(""));
        assert!(told.contains("cannot be compiled") && told.contains(said), "{told}");
    }
}

#[test]
fn a_component_that_is_too_large_is_refused() {
    let told = refused(
        &Rig::new().with_file("subject.wasm", slow()),
        child(),
        &config(r#"component = "64 KiB""#),
    );
    assert!(told.contains("up to 64 KiB are taken (its limits.component)"), "{told}");
}

/// The program compiles files in a child process, and reports an exceeded limit like any refused
/// plugin.
#[test]
fn the_program_refuses_what_takes_too_long_to_compile() {
    let rig = Rig::new()
        .with_file("subject.wasm", slow())
        .with_file("c.toml", config(r#"compile_time = "10 ms""#));
    let output = rig
        .conclave(&["run", "c.toml", "go"])
        .env("CONCLAVE_CACHE", rig.folder().join("cache"))
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("limits.compile_time"), "{}", text(&output.stderr));
}

#[test]
fn the_child_answers_nothing_but_a_component() {
    let answer = |arguments: &[&str]| {
        let mut command = bare(program());
        command.arg("compile-component").args(arguments).stdin(Stdio::null());
        command.output().expect("the program runs")
    };
    let output = answer(&["1000000000", "10"]);
    assert_eq!(
        (output.status.code(), output.stderr.len()),
        (Some(3), 0),
        "{}",
        text(&output.stdout)
    );
    assert_eq!(answer(&["much", "10"]).status.code(), Some(2));
    assert_eq!(answer(&[]).status.code(), Some(2));
}
