//! Plugins, from their bytes to callable code. Grants are not decided here: a loaded plugin has
//! none yet.

mod anatomy;
mod arguments;
mod cache;
mod compiler;
mod contract;
#[cfg(feature = "download")]
mod download;
mod embed;
mod exports;
mod load;
mod precompiled;
mod probe;
pub(crate) mod sandboxed;
mod schema;
mod source;
mod weight;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use conclave_core::permissions::manifest::{Manifest, ManifestError};
use conclave_core::setup::{PluginFacts, PluginKind};
use conclave_core::types::fault::Fault;
use serde::Serialize;
use serde_json::Value;
use wasmtime::component::InstancePre;

use crate::imports::call::CallState;
use crate::sandbox::engine::Engine;
use exports::Exports;

pub(crate) use arguments::ArgumentChecker;
pub(crate) use load::schemas;

pub use cache::{Cache, CacheError};
pub use compiler::Compiler;
pub use compiler::child::compile_component;
#[cfg(feature = "download")]
pub use download::{DownloadError, Downloads, fetch};
pub use embed::embed;
pub use load::{Loader, inspect};
pub use precompiled::{CodeTarget, CompiledComponent, Precompiled, precompile};
pub use source::read_component;

/// Why a component is refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("it has {size}; up to {limit} are taken (its limits.component)")]
    TooLarge { size: String, limit: String },
    #[error(
        "it is {found}, not a component. Build it for target wasm32-wasip2, or make a component of it."
    )]
    NotAComponent { found: &'static str },
    #[error("it is damaged: {0}")]
    Malformed(String),
    #[error(
        "it has no manifest (a custom section `conclave:manifest`). Build it with the SDK, or add one."
    )]
    NoManifest,
    #[error(
        "it has {count} manifests in {place}, so nobody can say which holds. Add one to the outermost component."
    )]
    ManifestTwice { count: usize, place: &'static str },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("it imports {import}, which this host does not have: {needed}")]
    ForeignImport { import: String, needed: &'static str },
    #[error("it was built for another contract: {name}. Build it again with the SDK of this host.")]
    OtherContract { name: String },
    #[error(
        "it exports nothing of the contract: neither `agent` nor `responder`, `memory`, `tools` or `delivery-strategy`"
    )]
    NothingExported,
    #[error("it cannot do without `{capability}`{why}, and {reason}")]
    Unoffered { capability: String, why: String, reason: &'static str },
    #[error("it cannot be compiled: {0}")]
    Compile(String),
    #[error("compiling it took longer than {limit} (its limits.compile_time)")]
    CompileTime { limit: String },
    #[error("compiling it took more than {limit} of memory (its limits.compile_memory)")]
    CompileMemory { limit: String },
    #[error("it does not fit the contract: {0}. Build it again with the SDK of this host.")]
    Types(String),
    #[error("it did not start: {}", .0.message)]
    NotStarted(Fault),
    #[error("it cannot say which tools it has: {0}")]
    Listing(String),
    #[error("its tool `{name}` is not right: {problem}")]
    Tool { name: String, problem: String },
    #[error("the input schemas of its tools are refused: {0}")]
    Schemas(String),
}

impl LoadError {
    fn too_slow() -> Self {
        Self::Schemas(format!("compiling them took more than {} s", load::COMPILING.as_secs()))
    }
}

/// The facts of a component that are known without running it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    pub manifest: Manifest,
    pub kinds: BTreeSet<PluginKind>,
    /// Names, as the component has them.
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// In lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// The origin of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    Compiled,
    Cache,
    /// It is part of the program: see [`Precompiled`].
    Program,
}

impl CodeOrigin {
    /// Returns whether the code was there before the load.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self != Self::Compiled
    }
}

/// A loaded component, which can be called with the grants of a config.
pub struct LoadedPlugin {
    engine: Engine,
    code: InstancePre<CallState>,
    exports: Exports,
    arguments: ArgumentChecker,
    facts: PluginFacts,
    inspection: Inspection,
    origin: CodeOrigin,
    notes: Vec<String>,
    took: Duration,
}

impl LoadedPlugin {
    /// Returns the facts for the core.
    #[must_use]
    pub fn facts(&self) -> &PluginFacts {
        &self.facts
    }

    /// Returns the facts that are known without running it.
    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// Returns where its code came from.
    #[must_use]
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }

    /// Returns notes for the operator, such as a manipulated cache entry. Usually empty.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the duration of the load.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn code(&self) -> &InstancePre<CallState> {
        &self.code
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.exports
    }

    pub(crate) fn tool_index(&self, name: &str) -> Option<usize> {
        self.facts.tools.iter().position(|tool| tool.name == name)
    }

    /// Checks arguments of at most so many bytes against the schema of a tool. Returns them with
    /// their JSON text.
    ///
    /// # Errors
    /// The problems, in words for the model.
    pub(crate) async fn check_arguments(
        &self,
        tool: usize,
        arguments: Value,
        most: u64,
    ) -> Result<(Value, String), String> {
        self.arguments.check(tool, arguments, most).await
    }
}

impl fmt::Debug for LoadedPlugin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LoadedPlugin")
            .field("name", &self.facts.manifest.name)
            .field("sha256", &self.facts.sha256)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
