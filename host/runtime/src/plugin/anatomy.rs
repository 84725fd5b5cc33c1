//! The parts of a component that are readable without compiling or running it: manifest, imports
//! and exports.

use conclave_core::permissions::manifest::SECTION;
use wasmparser::{Encoding, Parser, Payload};

use super::LoadError;
use super::budget::Budget;
use crate::support::escape::excerpt;

/// Maximum bytes of a manifest. As JSON in memory it takes up to a hundred times as many.
const MANIFEST: usize = 64 << 10;

/// The parts of a component that decide about its admission.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Anatomy<'a> {
    /// The JSON of the manifest, if it has one.
    pub(crate) manifest: Option<&'a [u8]>,
    /// What it needs of the host. Imports that only name types need nothing.
    pub(crate) imports: Vec<&'a str>,
    pub(crate) exports: Vec<&'a str>,
}

/// The parent of the current section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionLevel {
    Component,
    Module,
}

/// Reads a component, within a budget for what it declares.
///
/// # Errors
/// `NotAComponent`, `Malformed`, `Budget`, or `ManifestTwice` if the manifest is ambiguous.
pub(crate) fn read(bytes: &[u8]) -> Result<Anatomy<'_>, LoadError> {
    // The first four bytes identify WebAssembly, the next four a component.
    if !bytes.starts_with(b"\0asm") {
        return Err(LoadError::NotAComponent { kind: "not WebAssembly" });
    }
    let mut levels: Vec<SectionLevel> = Vec::new();
    let mut found = ManifestSections::default();
    let mut budget = Budget::default();
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        let outermost = levels.len() == 1;
        let payload = payload.map_err(|error| malformed(&error))?;
        budget.section(&payload, bytes)?;
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } if levels.is_empty() => {
                return Err(LoadError::NotAComponent { kind: "a core module, not a component" });
            }
            Payload::Version { encoding, .. } => {
                let level = if encoding == Encoding::Module {
                    SectionLevel::Module
                } else {
                    SectionLevel::Component
                };
                levels.push(level);
                budget.enter(level == SectionLevel::Component)?;
            }
            Payload::End(_) => {
                let level = levels.pop();
                budget.leave(level == Some(SectionLevel::Component));
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import.map_err(|error| malformed(&error))?;
                    let is_type = budget.import(import.name.name, import.ty)?;
                    if outermost && !is_type {
                        imports.push(import.name.name);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export.map_err(|error| malformed(&error))?;
                    budget.export(export.name.name, export.kind, export.index)?;
                    if outermost {
                        exports.push(export.name.name);
                    }
                }
            }
            Payload::CustomSection(section) if section.name() == SECTION => {
                found.add(&levels, section.data());
            }
            _ => {}
        }
    }
    Ok(Anatomy { manifest: found.decide()?, imports, exports })
}

/// Whether the outermost component has a manifest.
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

pub(super) fn malformed(error: &impl std::fmt::Display) -> LoadError {
    // The message can quote the component.
    LoadError::Malformed(excerpt(&error.to_string(), 300))
}

/// The manifests of a component, by their location.
#[derive(Default)]
struct ManifestSections<'a> {
    outermost: Occurrences<'a>,
    /// Toolchains put it here; tools that add one later put it outermost.
    in_modules: Occurrences<'a>,
}

/// The first of several sections, and their number.
#[derive(Clone, Copy, Default)]
struct Occurrences<'a> {
    first: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Occurrences<'a> {
    fn add(&mut self, data: &'a [u8]) {
        self.first.get_or_insert(data);
        self.count += 1;
    }
}

impl<'a> ManifestSections<'a> {
    fn add(&mut self, levels: &[SectionLevel], data: &'a [u8]) {
        match levels {
            [_] => self.outermost.add(data),
            [.., SectionLevel::Module] => self.in_modules.add(data),
            // A nested component's manifest only applies to itself.
            _ => {}
        }
    }

    fn decide(self) -> Result<Option<&'a [u8]>, LoadError> {
        let (chosen, place) = match self.outermost.count {
            0 => (self.in_modules, "its core modules"),
            _ => (self.outermost, "the component"),
        };
        if chosen.count > 1 {
            return Err(LoadError::ManifestTwice { count: chosen.count, place });
        }
        if chosen.first.is_some_and(|manifest| manifest.len() > MANIFEST) {
            let limit = MANIFEST as u64;
            return Err(LoadError::Budget { what: "bytes in its manifest", limit });
        }
        Ok(chosen.first)
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
            Err(LoadError::NotAComponent { kind: "not WebAssembly" })
        ));
        assert!(matches!(
            read(&module(&[b"m"]).finish()),
            Err(LoadError::NotAComponent { kind: "a core module, not a component" })
        ));
        let mut cut = component(&[b"a"], &[]);
        cut.pop();
        assert!(matches!(read(&cut), Err(LoadError::Malformed(_))));
    }

    #[test]
    fn what_is_wrong_with_a_component_is_one_harmless_line() {
        let message = malformed(&format!("unknown name \u{1b}[2J\n\u{202e}{}", "x".repeat(1_000)))
            .to_string();
        assert!(
            message.len() < 600 && !message.contains(['\u{1b}', '\n', '\u{202e}']),
            "{message:?}"
        );
    }

    #[test]
    fn imports_and_exports_are_those_of_the_outermost_component() {
        let bytes = wat::parse_str(
            r#"(component
                (import "wasi:io/poll@0.2.6" (instance $poll (export "poll" (func))))
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

    #[test]
    fn imports_that_only_name_types_need_nothing() {
        let bytes = wat::parse_str(
            r#"(component
                (type $point (record (field "x" u32)))
                (import "point" (type (eq $point)))
                (import "acme:shapes/types@1.0.0" (instance
                    (type $shape (record (field "sides" u32)))
                    (export "shape" (type (eq $shape)))))
                (import "acme:shapes/draw@1.0.0" (instance (export "draw" (func))))
                (import "acme:shapes/canvas@1.0.0" (instance (export "c" (type (sub resource)))))
                (import "canvas" (type (sub resource))))"#,
        )
        .unwrap();
        assert_eq!(
            read(&bytes).unwrap().imports,
            ["acme:shapes/draw@1.0.0", "acme:shapes/canvas@1.0.0", "canvas"]
        );
    }
}
