//! One tool, that of `conclave plugin new`, in each language beside the one in Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use conclave_core::types::ids::PluginName;
use conclave_runtime::engine::{Engine, EngineSettings};
use conclave_runtime::plugin::{Cache, Loader};
use conclave_runtime::{Host, HostOptions};
use serde_json::json;

use crate::BenchError;
use crate::conclave;
use crate::measure::{self, Effort, Plan, Times};
use crate::report::{Reach, Row, Rows, Side, Size};
use crate::sandbox_calls::SandboxCalls;

/// A language with its component and the names of its rows.
struct Language {
    name: &'static str,
    /// The file without `.wasm`, and the plugin in the config.
    component: &'static str,
    compile: &'static str,
    load: &'static str,
    call: &'static str,
    /// The most that a call in a fresh sandbox may take.
    call_micros: f64,
}

const RUST: &str = "rust";
const LANGUAGES: [Language; 3] = [
    Language {
        name: "JavaScript (QuickJS)",
        component: "quickjs",
        compile: "compile a tool in JavaScript (QuickJS)",
        load: "load a tool in JavaScript (QuickJS), cached",
        call: "fresh call of a tool in JavaScript (QuickJS)",
        call_micros: 250.0,
    },
    Language {
        name: "JavaScript (StarlingMonkey)",
        component: "starlingmonkey",
        compile: "compile a tool in JavaScript (StarlingMonkey)",
        load: "load a tool in JavaScript (StarlingMonkey), cached",
        call: "fresh call of a tool in JavaScript (StarlingMonkey)",
        call_micros: 250.0,
    },
    Language {
        name: "Python",
        component: "python",
        compile: "compile a tool in Python",
        load: "load a tool in Python, cached",
        call: "fresh call of a tool in Python",
        call_micros: 1_500.0,
    },
];
/// The most that loading compiled code may take.
const LOAD_MICROS: f64 = 50_000.0;
/// The largest component that a quick measurement compiles more than once.
const QUICK_BYTES: usize = 4 << 20;
const WORDS: &str = "a fresh sandbox for every call";

/// The tools, in one folder.
struct Tools<'a> {
    folder: &'a Path,
    effort: Effort,
    rust: Vec<u8>,
    engine: Engine,
    /// A loader that compiles, and one that takes code from the cache.
    compiling: Loader,
    caching: Loader,
}

/// Measures the `wanted` rows of each language whose component is in `folder`.
pub(crate) async fn rows(
    folder: &Path,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    let names = |it: &Language| [it.compile, it.load, it.call];
    let languages: Vec<&Language> =
        LANGUAGES.iter().filter(|it| names(it).into_iter().any(wanted)).collect();
    if languages.is_empty() {
        return Ok(());
    }
    let Some(tools) = Tools::open(folder, effort)? else {
        rows.skip("tools in Python and JavaScript", absent(folder, RUST));
        return Ok(());
    };
    for language in languages {
        let Ok(wasm) = fs::read(component(folder, language.component)) else {
            rows.skip(language.name, absent(folder, language.component));
            continue;
        };
        if wanted(language.compile) {
            if effort == Effort::Quick && wasm.len() > QUICK_BYTES {
                let why = "it takes half a minute; leave out --quick".to_owned();
                rows.skip(language.compile, why);
            } else {
                rows.keep(tools.compile(language, &wasm).await?);
            }
        }
        if wanted(language.load) {
            rows.keep(tools.load(language, &wasm).await?);
        }
        if wanted(language.call) {
            rows.keep(tools.call(language).await?);
        }
    }
    Ok(())
}

fn component(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_extension("wasm")
}

fn absent(folder: &Path, name: &str) -> String {
    let path = component(folder, name);
    format!(
        "{} is not there; `cargo xtask bench` builds it where pip and npm reach their packages",
        path.display()
    )
}

impl<'a> Tools<'a> {
    /// Returns `None` if there is no tool in Rust to compare with.
    fn open(folder: &'a Path, effort: Effort) -> Result<Option<Self>, BenchError> {
        let Ok(rust) = fs::read(component(folder, RUST)) else { return Ok(None) };
        let engine = Engine::new(&EngineSettings::default())
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let cache = Cache::open(&conclave::cache(folder))
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let compiling = Loader::new(engine.clone(), None);
        let caching = Loader::new(engine.clone(), Some(cache));
        Ok(Some(Self { folder, effort, rust, engine, compiling, caching }))
    }

    /// Measures the compilation. The compiler of this profile takes about twice the time of a
    /// release build.
    async fn compile(&self, language: &Language, wasm: &[u8]) -> Result<Row, BenchError> {
        let times = async |wasm: &[u8]| -> Result<Times, BenchError> {
            let mut times = Vec::new();
            for _ in 0..if self.effort == Effort::Quick { 1 } else { 3 } {
                let began = Instant::now();
                conclave::load(&self.compiling, wasm).await?;
                times.push(began.elapsed());
            }
            Ok(Times::of(times))
        };
        Ok(Row {
            what: language.compile,
            baseline: Some(Side::new("Rust", times(&self.rust).await?)),
            subject: Side::new(language.name, times(wasm).await?),
            reach: Reach::Nothing,
        })
    }

    async fn load(&self, language: &Language, wasm: &[u8]) -> Result<Row, BenchError> {
        for component in [&self.rust[..], wasm] {
            conclave::load(&self.caching, component).await?;
        }
        let baseline = async || conclave::load(&self.caching, &self.rust).await;
        let subject = async || conclave::load(&self.caching, wasm).await;
        let (baseline, subject) =
            measure::by_turns(Plan::long(self.effort), baseline, subject).await?;
        let side = |does, times, wasm: &[u8]| {
            Side::new(does, times).with(Size::Component(wasm.len() as u64))
        };
        Ok(Row {
            what: language.load,
            baseline: Some(side("Rust", baseline, &self.rust)),
            subject: side(language.name, subject, wasm),
            reach: Reach::AtMostMicros(LOAD_MICROS),
        })
    }

    async fn call(&self, language: &Language) -> Result<Row, BenchError> {
        let options =
            HostOptions { cache: Some(conclave::cache(self.folder)), ..HostOptions::default() };
        let host = Host::with_engine(self.engine.clone(), options);
        let calls =
            SandboxCalls::new(conclave::loaded(&host, self.folder, &config(language)).await?);
        let (rust, other) = (PluginName::from(RUST), PluginName::from(language.component));
        let arguments = Arc::new(json!({ "text": WORDS }));
        let scratch = Arc::default();
        let call =
            async |plugin: &PluginName| calls.tool(plugin, "count", &arguments, &scratch).await;
        let memory = async |plugin: &PluginName| {
            let answer = call(plugin).await?;
            if answer.content == "6" {
                Ok(answer.memory)
            } else {
                Err(BenchError::Answer(answer.content))
            }
        };
        let (of_rust, of_other) = (memory(&rust).await?, memory(&other).await?);
        let baseline = async || call(&rust).await.map(drop);
        let subject = async || call(&other).await.map(drop);
        let (baseline, subject) =
            measure::by_turns(Plan::medium(self.effort), baseline, subject).await?;
        Ok(Row {
            what: language.call,
            baseline: Some(Side::new("Rust", baseline).with(Size::Memory(of_rust))),
            subject: Side::new(language.name, subject).with(Size::Memory(of_other)),
            reach: Reach::AtMostMicros(language.call_micros),
        })
    }
}

fn config(language: &Language) -> String {
    let name = language.component;
    format!(
        r#"
entry = "main"
[plugins.agent]
source = "../guests/agent_echo.wasm"
[plugins.{RUST}]
source = "{RUST}.wasm"
[plugins.{name}]
source = "{name}.wasm"
[tasks.main]
agent = "agent"
"#
    )
}
