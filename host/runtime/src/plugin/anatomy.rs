//! The parts of a component that are readable without compiling or running it: manifest, imports
//! and exports.

use conclave_core::permissions::manifest::SECTION;
use wasmparser::{Encoding, Parser, Payload};

use super::LoadError;
use crate::imports::call::log::excerpt;

/// The parts of a component that decide about its admission.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Anatomy<'a> {
    /// The JSON of the manifest, if it has one.
    pub(crate) manifest: Option<&'a [u8]>,
    pub(crate) imports: Vec<&'a str>,
    pub(crate) exports: Vec<&'a str>,
}

/// The parent of the current section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionLevel {
    Component,
    Module,
}

/// Reads a component.
///
/// # Errors
/// `NotAComponent`, `Malformed`, or `ManifestTwice` if the manifest is ambiguous.
pub(crate) fn read(bytes: &[u8]) -> Result<Anatomy<'_>, LoadError> {
    // The first four bytes identify WebAssembly, the next four a component.
    if !bytes.starts_with(b"\0asm") {
        return Err(LoadError::NotAComponent { found: "no WebAssembly" });
    }
    let mut levels: Vec<SectionLevel> = Vec::new();
    let mut found = ManifestSections::default();
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        let outermost = levels.len() == 1;
        match payload.map_err(|error| malformed(&error))? {
            Payload::Version { encoding: Encoding::Module, .. } if levels.is_empty() => {
                return Err(LoadError::NotAComponent { found: "a core module" });
            }
            Payload::Version { encoding, .. } => {
                levels.push(if encoding == Encoding::Module {
                    SectionLevel::Module
                } else {
                    SectionLevel::Component
                });
            }
            Payload::End(_) => drop(levels.pop()),
            Payload::ComponentImportSection(section) if outermost => {
                for import in section {
                    imports.push(import.map_err(|error| malformed(&error))?.name.name);
                }
            }
            Payload::ComponentExportSection(section) if outermost => {
                for export in section {
                    exports.push(export.map_err(|error| malformed(&error))?.name.name);
                }
            }
            Payload::CustomSection(section) if section.name() == SECTION => {
                found.add(&levels, section.data())
            }
            _ => {}
        }
    }
    Ok(Anatomy { manifest: found.decide()?, imports, exports })
}

/// Returns whether the outermost component has a manifest.
///
/// # Errors
/// As for `read`, for bytes that are no component.
pub(crate) fn has_outermost_manifest(bytes: &[u8]) -> Result<bool, LoadError> {
    match read(bytes) {
        Ok(_) | Err(LoadError::ManifestTwice { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| malformed(&error))? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 1 && section.name() == SECTION => {
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

fn malformed(error: &impl std::fmt::Display) -> LoadError {
    // The message can quote the component.
    LoadError::Malformed(excerpt(&error.to_string(), 300))
}

/// The manifests of a component, by their location.
#[derive(Default)]
struct ManifestSections<'a> {
    outermost: Vec<&'a [u8]>,
    /// Toolchains put it here; tools that add one later put it outermost.
    in_modules: Vec<&'a [u8]>,
}

impl<'a> ManifestSections<'a> {
    fn add(&mut self, levels: &[SectionLevel], data: &'a [u8]) {
        match levels {
            [_] => self.outermost.push(data),
            [.., SectionLevel::Module] => self.in_modules.push(data),
            // A nested component's manifest only applies to itself.
            _ => {}
        }
    }

    fn decide(self) -> Result<Option<&'a [u8]>, LoadError> {
        match (self.outermost.as_slice(), self.in_modules.as_slice()) {
            ([only], _) | ([], [only]) => Ok(Some(only)),
            ([], []) => Ok(None),
            ([], several) => {
                Err(LoadError::ManifestTwice { count: several.len(), place: "its core modules" })
            }
            (several, _) => {
                Err(LoadError::ManifestTwice { count: several.len(), place: "the component" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use wasm_encoder::{Component, CustomSection, Module, ModuleSection};

    use super::*;

    fn section(data: &[u8]) -> CustomSection<'_> {
        CustomSection { name: Cow::Borrowed(SECTION), data: Cow::Borrowed(data) }
    }

    fn module(manifests: &[&[u8]]) -> Module {
        let mut module = Module::new();
        for data in manifests {
            module.section(&section(data));
        }
        module
    }

    fn component(outermost: &[&[u8]], modules: &[&[&[u8]]]) -> Vec<u8> {
        let mut component = Component::new();
        for manifests in modules {
            component.section(&ModuleSection(&module(manifests)));
        }
        for data in outermost {
            component.section(&section(data));
        }
        component.finish()
    }

    fn manifest(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
        read(bytes).map(|anatomy| anatomy.manifest.unwrap_or_default().to_vec())
    }

    #[test]
    fn the_outermost_manifest_holds() {
        assert_eq!(
            manifest(&component(&[b"outer"], &[&[b"inner"], &[b"other"]])).unwrap(),
            b"outer"
        );
    }

    #[test]
    fn a_manifest_in_a_core_module_will_do() {
        assert_eq!(manifest(&component(&[], &[&[], &[b"inner"]])).unwrap(), b"inner");
    }

    #[test]
    fn two_at_the_same_level_are_refused() {
        let twice = |bytes: Vec<u8>| {
            matches!(manifest(&bytes), Err(LoadError::ManifestTwice { count: 2, .. }))
        };
        assert!(twice(component(&[b"a", b"a"], &[&[b"inner"]])));
        assert!(twice(component(&[], &[&[b"a"], &[b"b"]])));
        assert!(twice(component(&[], &[&[b"a", b"b"]])));
    }

    #[test]
    fn a_component_inside_does_not_speak_for_the_whole() {
        let inner = component(&[b"inner"], &[]);
        let mut outer = Component::new();
        outer.section(&wasm_encoder::RawSection { id: 4, data: &inner });
        assert_eq!(read(&outer.finish()).unwrap().manifest, None);
    }

    #[test]
    fn what_is_no_component_is_told_apart() {
        assert!(matches!(
            read(b"#!/bin/sh"),
            Err(LoadError::NotAComponent { found: "no WebAssembly" })
        ));
        assert!(matches!(
            read(&module(&[b"m"]).finish()),
            Err(LoadError::NotAComponent { found: "a core module" })
        ));
        let mut cut = component(&[b"a"], &[]);
        cut.pop();
        assert!(matches!(read(&cut), Err(LoadError::Malformed(_))));
    }

    #[test]
    fn what_is_wrong_with_a_component_is_one_harmless_line() {
        let shown = malformed(&format!("unknown name \u{1b}[2J\n\u{202e}{}", "x".repeat(1_000)))
            .to_string();
        assert!(shown.len() < 600 && !shown.contains(['\u{1b}', '\n', '\u{202e}']), "{shown:?}");
    }

    #[test]
    fn imports_and_exports_are_those_of_the_outermost_component() {
        let bytes = wat::parse_str(
            r#"(component
                (import "wasi:io/poll@0.2.6" (instance $poll))
                (component $inner (import "not-ours" (func)))
                (export "things" (instance $poll))
                (@custom "conclave:manifest" "{}"))"#,
        )
        .unwrap();
        let anatomy = read(&bytes).unwrap();
        assert_eq!(
            (anatomy.imports, anatomy.exports),
            (vec!["wasi:io/poll@0.2.6"], vec!["things"])
        );
    }
}
