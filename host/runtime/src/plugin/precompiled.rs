//! Machine code of components that is part of the program, so that no run waits for a compiler.

use std::collections::BTreeMap;
use std::fmt;

use crate::sandbox::engine;
use crate::support::digest;

/// The machines that can run precompiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeTarget {
    /// This machine, with all instructions that it has.
    ThisMachine,
    /// Every machine of this processor family and operating system.
    AnyMachine,
}

/// The machine code of a component.
#[derive(Clone, Debug)]
pub struct CompiledComponent {
    /// The digest of the component, in lower-case hexadecimal.
    pub sha256: String,
    /// The machine code, in the format of this version's engine.
    pub code: Vec<u8>,
}

/// Compiles a component for an [`Engine`](crate::engine::Engine) of this version, for a
/// [`Precompiled`] of a later program.
///
/// # Errors
/// The compiler's reason.
pub fn precompile(component: &[u8], target: CodeTarget) -> Result<CompiledComponent, String> {
    let compiler = match target {
        CodeTarget::ThisMachine => engine::compiler(),
        CodeTarget::AnyMachine => engine::portable_compiler(),
    };
    let compiled = compiler.and_then(|compiler| compiler.precompile_component(component));
    let code = compiled.map_err(|error| format!("{error:#}"))?;
    Ok(CompiledComponent { sha256: digest::sha256(component), code })
}

/// The machine code of components, by their digests. A component whose code is missing, or was made
/// for another machine or version, is compiled as usual.
#[derive(Clone, Default)]
pub struct Precompiled(BTreeMap<&'static str, &'static [u8]>);

impl Precompiled {
    /// Returns the code of components, given with their digests in lower-case hexadecimal.
    ///
    /// # Safety
    /// The code is executed in this process, outside of any sandbox. Every pair must be an unchanged
    /// result of [`precompile`], such as bytes of the program itself.
    #[must_use]
    #[expect(
        unsafe_code,
        reason = "the engine cannot check machine code; the caller must know its origin"
    )]
    pub unsafe fn new(code: impl IntoIterator<Item = (&'static str, &'static [u8])>) -> Self {
        Self(code.into_iter().collect())
    }

    /// Returns the number of components.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no code at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, sha256: &str) -> Option<&'static [u8]> {
        self.0.get(sha256).copied()
    }
}

impl fmt::Debug for Precompiled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::limits::PluginLimits;
    use serde_json::json;

    use super::*;
    use crate::engine::{Engine, EngineSettings};
    use crate::plugin::{CodeOrigin, Loader};

    /// Returns the digest and the code of a stock plugin, and the plugin itself.
    fn compiled(target: CodeTarget) -> Option<(Vec<u8>, CompiledComponent)> {
        let component = conclave_stock::stock().get("search")?.to_vec();
        let compiled = precompile(&component, target).expect("it compiles");
        Some((component, compiled))
    }

    fn loaded(component: &[u8], sha256: String, code: Vec<u8>) -> CodeOrigin {
        #[expect(unsafe_code, reason = "the code is of `precompile`, or no code at all")]
        // SAFETY: each test passes what `precompile` returned, or bytes that the engine refuses.
        let precompiled = unsafe { Precompiled::new([(&*sha256.leak(), &*code.leak())]) };
        let engine = Engine::new(&EngineSettings { slots: 1, ..EngineSettings::default() })
            .expect("the engine starts");
        let loader = Loader::new(engine, None).with_precompiled(precompiled);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (limits, settings) = (PluginLimits::default(), json!({}));
        let load = loader.load(component.to_vec(), &limits, &settings, || {});
        runtime.expect("it starts").block_on(load).expect("it loads").origin()
    }

    #[test]
    fn code_for_this_and_for_any_machine_is_run_as_it_is() {
        for target in [CodeTarget::ThisMachine, CodeTarget::AnyMachine] {
            let Some((component, CompiledComponent { sha256, code })) = compiled(target) else {
                return;
            };
            assert_eq!(loaded(&component, sha256, code), CodeOrigin::Program, "{target:?}");
        }
    }

    #[test]
    fn code_of_another_component_or_version_is_not_run() {
        let Some((component, CompiledComponent { sha256, code })) =
            compiled(CodeTarget::ThisMachine)
        else {
            return;
        };
        assert_eq!(loaded(&component, "0".repeat(64), code), CodeOrigin::Compiled);
        assert_eq!(loaded(&component, sha256, b"no code".to_vec()), CodeOrigin::Compiled);
    }
}
