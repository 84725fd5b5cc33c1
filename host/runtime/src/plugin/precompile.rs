//! Compiles components for a later program, so that none of its runs waits for a compiler.

use super::{Inspection, LoadError, inspect};
use crate::sandbox::engine;
use crate::support::escape::excerpt;

/// The machines that can run precompiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeTarget {
    /// This machine, with all instructions that it has.
    ThisMachine,
    /// Every machine of this processor family and operating system.
    AnyMachine,
}

/// What [`PluginComponent::prebuilt`](super::PluginComponent::prebuilt) takes.
#[derive(Clone, Debug)]
pub struct CompiledComponent {
    /// The facts of the component.
    pub inspection: Inspection,
    /// The machine code, in the format of this version's engine.
    pub code: Vec<u8>,
}

/// Compiles a component for an [`Engine`](crate::engine::Engine) of this version.
///
/// # Errors
/// If it is not a plugin, or the compiler fails.
pub fn precompile(component: &[u8], target: CodeTarget) -> Result<CompiledComponent, LoadError> {
    let inspection = inspect(component)?;
    let compiler = match target {
        CodeTarget::ThisMachine => engine::compiler(),
        CodeTarget::AnyMachine => engine::portable_compiler(),
    };
    let compiled = compiler.and_then(|compiler| compiler.precompile_component(component));
    let failed = |error: wasmtime::Error| LoadError::Compile(excerpt(&format!("{error:#}"), 600));
    Ok(CompiledComponent { inspection, code: compiled.map_err(failed)? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use conclave_core::types::limits::PluginLimits;
    use serde_json::json;

    use super::*;
    use crate::engine::{Engine, EngineSettings};
    use crate::plugin::{
        CodeOrigin, LoadedPlugin, Loader, PluginComponent, PrebuiltBytes, ProgramFile,
    };

    /// A stock plugin, and what is made of it.
    fn compiled(target: CodeTarget) -> Option<(Vec<u8>, CompiledComponent)> {
        let component = conclave_stock::stock().get("search")?.to_vec();
        let compiled = precompile(&component, target).expect("it compiles");
        Some((component, compiled))
    }

    /// The component with its code in this file, of which it expects these bytes.
    fn prebuilt(
        bytes: PrebuiltBytes,
        inspection: Inspection,
        path: &Path,
        code: &[u8],
    ) -> PluginComponent {
        let code = ProgramFile::new(path, ProgramFile::digest_of(code));
        #[expect(unsafe_code, reason = "the code is of `precompile`, or no code at all")]
        // SAFETY: each test names what `precompile` returned, or bytes that the engine refuses.
        unsafe {
            PluginComponent::prebuilt(bytes, inspection, code)
        }
    }

    fn loaded(component: PluginComponent) -> Result<LoadedPlugin, LoadError> {
        let engine = Engine::new(&EngineSettings { slots: 1, ..EngineSettings::default() })
            .expect("the engine starts");
        let loader = Loader::new(engine, None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (limits, settings) = (PluginLimits::default(), json!({}));
        runtime.expect("it starts").block_on(loader.load(component, &limits, &settings, || {}))
    }

    #[test]
    fn code_for_this_and_for_any_machine_is_run_as_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("code");
        for target in [CodeTarget::ThisMachine, CodeTarget::AnyMachine] {
            let Some((component, CompiledComponent { inspection, code })) = compiled(target) else {
                return;
            };
            std::fs::write(&path, &code).unwrap();
            let bytes = PrebuiltBytes::InProgram(component.into());
            let plugin = loaded(prebuilt(bytes, inspection, &path, &code)).unwrap();
            assert_eq!(plugin.origin(), CodeOrigin::Program, "{target:?}");
        }
    }

    #[test]
    fn a_component_that_is_compiled_is_not_read() {
        let temp = tempfile::tempdir().unwrap();
        let (path, missing) = (temp.path().join("code"), temp.path().join("component"));
        let Some((component, CompiledComponent { inspection, code })) =
            compiled(CodeTarget::ThisMachine)
        else {
            return;
        };
        std::fs::write(&path, &code).unwrap();
        let file = ProgramFile::new(&missing, ProgramFile::digest_of(&component));
        let prebuilt = prebuilt(PrebuiltBytes::File(file), inspection.clone(), &path, &code);
        let plugin = loaded(prebuilt.clone()).unwrap();
        assert_eq!((plugin.origin(), plugin.inspection()), (CodeOrigin::Program, &inspection));
        // Without the code it is needed, and its absence is named.
        std::fs::remove_file(&path).unwrap();
        let error = loaded(prebuilt.clone()).unwrap_err();
        assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
        std::fs::write(&missing, &component).unwrap();
        assert_eq!(loaded(prebuilt).unwrap().origin(), CodeOrigin::Compiled);
    }

    #[test]
    fn changed_code_and_code_of_another_version_are_not_run() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("code");
        let Some((component, CompiledComponent { inspection, code })) =
            compiled(CodeTarget::ThisMachine)
        else {
            return;
        };
        let with = |expected: &[u8]| {
            let bytes = PrebuiltBytes::InProgram(component.clone().into());
            loaded(prebuilt(bytes, inspection.clone(), &path, expected)).unwrap()
        };
        let mut changed = code.clone();
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&path, changed).unwrap();
        let plugin = with(&code);
        assert_eq!(plugin.origin(), CodeOrigin::Compiled);
        assert!(plugin.notes()[0].contains("is not the file"), "{:?}", plugin.notes());
        std::fs::write(&path, b"no code").unwrap();
        let plugin = with(b"no code");
        assert_eq!((plugin.origin(), plugin.notes().is_empty()), (CodeOrigin::Compiled, true));
    }
}
