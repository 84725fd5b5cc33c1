//! Loads a plugin from its bytes. The steps run in order, and the first failure is the reason for
//! the refusal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::permissions::manifest::Manifest;
use conclave_core::setup::{PluginFacts, Provenance};
use conclave_core::types::limits::{COMPONENT_BYTES, PluginLimits};
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolSpec;
use serde_json::Value;
use wasmtime::component::{Component, InstancePre};

use super::arguments::ArgumentChecker;
use super::cache::{Cache, Lookup};
use super::checked_code::CheckedCode;
use super::compiler::{Compiler, in_child};
use super::component::PluginComponent;
use super::kinds::Exports;
use super::probe::probe;
use super::program_file::ProgramFile;
use super::schema::{Schema, compile_each};
use super::{CodeOrigin, Inspection, LoadError, LoadedPlugin, anatomy, contract};
use crate::imports::interfaces::network::is_network;
use crate::imports::linker::link_network;
use crate::imports::state::CallState;
use crate::sandbox::engine::Engine;
use crate::sandbox::plain::FunctionDocs;
use crate::support::digest;
use crate::support::escape::excerpt;
use conclave_core::types::text::{show_duration, show_size as size};

/// Time limit for compiling the schemas of a plugin. Within the size limits it takes a fraction of
/// this.
pub(super) const COMPILING: Duration = Duration::from_secs(5);

/// Loads plugins into one engine. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Loader {
    engine: Engine,
    cache: Option<Arc<Cache>>,
    compiler: Compiler,
}

impl Loader {
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns a loader that compiles in this process. Without a cache every load compiles.
    #[must_use]
    pub fn new(engine: Engine, cache: Option<Cache>) -> Self {
        Self { engine, cache: cache.map(Arc::new), compiler: Compiler::InProcess }
    }

    /// The same loader with another compiler.
    #[must_use]
    pub fn with_compiler(self, compiler: Compiler) -> Self {
        Self { compiler, ..self }
    }

    /// Returns a loader for the plugins of the program itself, which are compiled in this process.
    pub(crate) fn in_process(&self) -> Self {
        self.clone().with_compiler(Compiler::InProcess)
    }

    /// Loads a component. Reads and compiles it, or takes it from the cache, and starts it once
    /// without grants to list its tools. It can read its own `settings`. `compiling` is called
    /// before a compilation, which takes a while.
    ///
    /// # Errors
    /// The reason for the refusal, in the order of the steps; see `LoadError`.
    pub async fn load(
        &self,
        component: impl Into<PluginComponent>,
        limits: &PluginLimits,
        settings: &Value,
        compiling: impl FnOnce() + Send + 'static,
    ) -> Result<LoadedPlugin, LoadError> {
        let began = Instant::now();
        let (loader, component) = (self.clone(), component.into());
        let theirs = limits.clone();
        // Hashing and compiling a large component take seconds of CPU time.
        let preparing =
            tokio::task::spawn_blocking(move || loader.prepare(&component, &theirs, compiling));
        let prepared = match self.compiler {
            // The thread cannot be stopped; its result is dropped.
            Compiler::InProcess => {
                tokio::time::timeout(Duration::from_millis(limits.compile_ms), preparing)
                    .await
                    .map_err(|_| LoadError::CompileTime {
                        limit: show_duration(limits.compile_ms),
                    })?
            }
            Compiler::Child { .. } => preparing.await,
        };
        let PreparedCode { inspection, code, exports, origin, notes } =
            prepared.map_err(|panic| LoadError::Compile(excerpt(&panic.to_string(), 600)))??;
        let mut facts = PluginFacts {
            manifest: inspection.manifest.clone(),
            kinds: inspection.kinds.clone(),
            tools: Vec::new(),
            sha256: inspection.sha256.clone(),
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        };
        let settings = with_defaults(&facts.manifest, settings);
        facts.tools = probe(&self.engine, &code, &exports, facts.clone(), limits, settings).await?;
        let arguments = ArgumentChecker::new(schemas(facts.tools.clone()).await?);
        Ok(LoadedPlugin {
            engine: self.engine.clone(),
            code,
            exports,
            arguments,
            facts,
            inspection,
            origin,
            notes,
            took: began.elapsed(),
        })
    }

    fn prepare(
        &self,
        component: &PluginComponent,
        limits: &PluginLimits,
        compiling: impl FnOnce(),
    ) -> Result<PreparedCode, LoadError> {
        require_size(component.size(), limits.component)?;
        let inspection = component.inspection()?;
        // Cheap checks come before the compilation.
        contract::check_asks(&inspection.manifest)?;
        let (compiled, origin, notes) =
            self.compiled(component, &inspection.sha256, limits, compiling)?;
        let code = self.link(&compiled, &inspection.imports)?;
        // Only the functions of plain components have no other description.
        let bytes = inspection.is_plain.then(|| component.bytes().ok()).flatten();
        let docs = bytes.map(|bytes| FunctionDocs::read(&bytes)).unwrap_or_default();
        let exports = Exports::find(&code, &inspection, &docs)?;
        Ok(PreparedCode { inspection, code, exports, origin, notes })
    }

    /// Returns compiled code, from the program or the cache if possible.
    fn compiled(
        &self,
        component: &PluginComponent,
        sha256: &str,
        limits: &PluginLimits,
        compiling: impl FnOnce(),
    ) -> Result<(Component, CodeOrigin, Vec<String>), LoadError> {
        let mut notes = Vec::new();
        match component.code().map(ProgramFile::code) {
            Some(Ok(code)) => {
                if let Some(compiled) = self.revive(&code) {
                    return Ok((compiled, CodeOrigin::Program, notes));
                }
            }
            // A program without its files works all the same.
            Some(Err(error)) if !error.is_missing() => {
                notes.push(format!("{error}; the plugin was compiled again"));
            }
            Some(Err(_)) | None => {}
        }
        let Some(cache) = &self.cache else {
            compiling();
            return Ok((self.compile(component, limits)?.0, CodeOrigin::Compiled, notes));
        };
        let name = format!("{sha256}-{:016x}", self.compatibility());
        match cache.get(&name) {
            Lookup::Hit(code) => {
                if let Some(component) = self.revive(&code) {
                    return Ok((component, CodeOrigin::Cache, notes));
                }
            }
            Lookup::Miss => {}
            Lookup::Tampered => notes.push(format!(
                "the compiled copy of {sha256} in the cache was not written by this host; it was deleted and the plugin compiled again"
            )),
        }
        compiling();
        let (compiled, code) = self.compile(component, limits)?;
        let stored =
            code.map_or_else(|| compiled.serialize().map_err(|error| format!("{error:#}")), Ok);
        let stored =
            stored.and_then(|code| cache.put(&name, &code).map_err(|error| error.to_string()));
        // Without a cache entry the next load only takes longer.
        notes.extend(stored.err());
        Ok((compiled, CodeOrigin::Compiled, notes))
    }

    /// Compiles a component; also returns its code if it is available.
    fn compile(
        &self,
        component: &PluginComponent,
        limits: &PluginLimits,
    ) -> Result<(Component, Option<Vec<u8>>), LoadError> {
        let bytes = component.bytes()?;
        let failed =
            |error: wasmtime::Error| LoadError::Compile(excerpt(&format!("{error:#}"), 600));
        match &self.compiler {
            Compiler::InProcess => {
                Ok((Component::from_binary(self.engine.wasm(), &bytes).map_err(failed)?, None))
            }
            Compiler::Child { program, args } => {
                let code = in_child(program, args, &bytes, limits)?;
                Ok((self.take_over(&code).map_err(failed)?, Some(code)))
            }
        }
    }

    #[expect(
        unsafe_code,
        reason = "loading compiled code cannot be checked by the engine; the child that made it is this host's own"
    )]
    fn take_over(&self, code: &[u8]) -> wasmtime::Result<Component> {
        // SAFETY: these bytes came through a pipe that only the child held, from a program that the
        // embedder named as its compiler and that ended with the code for success; they are what
        // `Engine::precompile_component` gave there. The child runs nothing of the component, so
        // the component has no say in them but through a fault of the compiler, which would have
        // the same effect here.
        unsafe { Component::deserialize(self.engine.wasm(), code) }
    }

    /// `None` for code of another build of the engine, or for another machine, which is no error.
    #[expect(
        unsafe_code,
        reason = "loading compiled code cannot be checked by the engine; a MAC or a digest says that this host or its build made it"
    )]
    fn revive(&self, code: &CheckedCode) -> Option<Component> {
        let engine = self.engine.wasm();
        // SAFETY: `Cache::get` gave this code, so it carries a MAC under a key that only this
        // host's user can read, and is what `Component::serialize` gave `Cache::put`, unchanged; or
        // `ProgramFile::code` gave it, so it has the digest that the caller of
        // `PluginComponent::prebuilt` vouched for. It was checked as it was read, and nothing can
        // change it since: it is memory of this function's caller, a file in memory that is
        // sealed, or a file of the program that only those can write who can write the program.
        unsafe {
            match (code, code.path()) {
                (CheckedCode::Bytes(bytes), _) => Component::deserialize(engine, bytes),
                // A hardened system may refuse to run code of a mapped file.
                (_, Some(path)) => Component::deserialize_file(engine, &path)
                    .or_else(|_| Component::deserialize(engine, std::fs::read(&path)?)),
                (_, None) => return None,
            }
        }
        .ok()
    }

    /// A hash that differs between engines with incompatible code.
    fn compatibility(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.engine.wasm().precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    /// Links every import, which also checks their types.
    fn link(
        &self,
        component: &Component,
        imports: &[String],
    ) -> Result<InstancePre<CallState>, LoadError> {
        let failed = |error: wasmtime::Error| LoadError::Types(excerpt(&format!("{error:#}"), 600));
        if !imports.iter().any(|import| is_network(import)) {
            return self.engine.linker().instantiate_pre(component).map_err(failed);
        }
        // The network interfaces are defined by the import types of this component.
        let mut linker = self.engine.linker().clone();
        link_network(&mut linker, component).map_err(failed)?;
        linker.instantiate_pre(component).map_err(failed)
    }
}

/// The operator's settings with the manifest's defaults. Their types are checked later against the
/// manifest; until then the tool list may depend on wrong settings.
fn with_defaults(manifest: &Manifest, settings: &Value) -> Value {
    let defaults = manifest
        .config
        .iter()
        .filter_map(|(name, declared)| Some((name.clone(), declared.get("default")?.clone())));
    let written = settings
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()));
    Value::Object(defaults.chain(written).collect())
}

/// Compiles the schemas of a plugin's tools.
///
/// # Errors
/// As [`each_schema`], also if one of them is refused.
pub(crate) async fn schemas(tools: Vec<ToolSpec>) -> Result<Vec<Schema>, LoadError> {
    each_schema(tools).await?.into_iter().collect()
}

/// Compiles the schema of each of a plugin's tools on a blocking thread.
///
/// # Errors
/// `Schemas` if that takes too long.
pub(crate) async fn each_schema(
    tools: Vec<ToolSpec>,
) -> Result<Vec<Result<Schema, LoadError>>, LoadError> {
    let deadline = Instant::now() + COMPILING;
    let compiling = tokio::task::spawn_blocking(move || compile_each(&tools, deadline));
    match tokio::time::timeout(COMPILING, compiling).await {
        Ok(Ok(compiled)) => Ok(compiled),
        Ok(Err(panic)) => Err(LoadError::Schemas(excerpt(&panic.to_string(), 600))),
        Err(_) => Err(LoadError::too_slow()),
    }
}

struct PreparedCode {
    inspection: Inspection,
    code: InstancePre<CallState>,
    exports: Exports,
    origin: CodeOrigin,
    notes: Vec<String>,
}

fn require_size(length: u64, most: u64) -> Result<(), LoadError> {
    if length > most {
        Err(LoadError::TooLarge { size: size(length), limit: size(most) })
    } else {
        Ok(())
    }
}

/// Inspects a component without compiling or running it.
///
/// # Errors
/// As for `Loader::load`, up to the compilation.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, LoadError> {
    let length = bytes.len() as u64;
    require_size(length, COMPONENT_BYTES)?;
    let sha256 = digest::sha256(bytes);
    let anatomy = anatomy::read(bytes)?;
    let mut kinds = contract::check(&anatomy)?;
    let is_plain = kinds.is_empty();
    let manifest = match anatomy.manifest {
        Some(json) => Manifest::parse(json)?,
        None if is_plain => contract::plain_manifest(&anatomy),
        None => return Err(LoadError::NoManifest),
    };
    if is_plain {
        kinds.insert(PluginKind::Tools);
    }
    let unasked = contract::unasked(&anatomy, &manifest);
    let owned = |names: Vec<&str>| names.into_iter().map(|name| excerpt(name, 200)).collect();
    Ok(Inspection {
        manifest,
        kinds,
        is_plain,
        has_manifest: anatomy.manifest.is_some(),
        imports: owned(anatomy.imports),
        unasked,
        exports: owned(anatomy.exports),
        sha256,
        size: length,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_written_is_the_manifests_default() {
        let manifest = json!({
            "format": 1, "name": "x", "version": "0.1.0", "contract": "0.1", "description": "", "license": "", "asks": {},
            "config": { "a": { "type": "integer", "default": 1 }, "b": { "type": "integer", "default": 2 }, "c": { "type": "integer" } },
        });
        let manifest = Manifest::parse(manifest.to_string().as_bytes()).expect("it is a manifest");
        assert_eq!(with_defaults(&manifest, &json!({ "b": 3 })), json!({ "a": 1, "b": 3 }));
    }
}
