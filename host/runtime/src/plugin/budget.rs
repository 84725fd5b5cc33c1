//! The budget of a component: what one file may declare before the host builds anything of it.
//! Declarations refer to one another, so a small file can stand for types, names and instances that
//! take gigabytes. This pass counts them, reads one at a time, and keeps numbers only.

use std::ops::Range;

use wasmparser::{
    BinaryReader, BinaryReaderError, ComponentAlias, ComponentDefinedType, ComponentExternalKind,
    ComponentInstance, ComponentOuterAliasKind, ComponentType, ComponentTypeRef, CoreType,
    FromReader, Instance, InstanceTypeDeclaration, ModuleTypeDeclaration, Payload, TypeBounds,
};

use super::LoadError;
use super::anatomy::malformed;

/// Levels of components, modules and types inside one another. Compositions of compositions have
/// about ten, and the engine's own bound on the depth of a type is 100.
const NESTING: u64 = 32;
/// Imports and exports of the component itself, each. A component of 25 MB in Python has 31 and 2.
const INTERFACE: u64 = 1_000;
/// Types, their fields, cases and parameters, and all that is imported, exported or aliased: 4 300 in
/// that component.
const DECLARATIONS: u64 = 100_000;
/// Bytes of names of interfaces, functions, fields and cases: 66 KB there.
const NAMES: u64 = 1 << 20;
/// Instances of modules and components when those inside one another are written out: 71 there. Ten
/// components that each instantiate the one before ten times are ten thousand million.
const INSTANCES: u64 = 10_000;
/// Bytes of the types, functions, tables and exports of all modules: 219 KB there.
const MODULES: u64 = 4 << 20;
/// Sections of all components and modules, of any kind: 684 there. Each costs time in every pass over
/// the file, however small it is.
const SECTIONS: u64 = 20_000;

/// One countable resource of a component.
#[derive(Debug)]
struct Quota {
    what: &'static str,
    limit: u64,
    used: u64,
}

impl Quota {
    fn new(what: &'static str, limit: u64) -> Self {
        Self { what, limit, used: 0 }
    }

    fn spend(&mut self, amount: u64) -> Result<(), LoadError> {
        self.used = self.used.saturating_add(amount);
        if self.used > self.limit {
            return Err(LoadError::Budget { what: self.what, limit: self.limit });
        }
        Ok(())
    }
}

/// What a component that is being read has declared so far.
#[derive(Debug)]
pub(super) struct Budget {
    sections: Quota,
    declarations: Quota,
    names: Quota,
    imports: Quota,
    exports: Quota,
    modules: Quota,
    /// The components that are being read, the outermost first.
    open: Vec<OpenComponent>,
    levels: u64,
}

/// A component that is being read.
#[derive(Debug, Default)]
struct OpenComponent {
    /// The instances that one instance of it makes.
    instances: u64,
    /// The instances that one instance of each component in its index space makes.
    components: Vec<u64>,
    /// Whether each type in its index space is an instance of types only. Kept for the outermost.
    types: Vec<bool>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            sections: Quota::new("sections", SECTIONS),
            declarations: Quota::new("types, fields and other declarations", DECLARATIONS),
            names: Quota::new("bytes of names", NAMES),
            imports: Quota::new("imports", INTERFACE),
            exports: Quota::new("exports", INTERFACE),
            modules: Quota::new("bytes of declarations in its modules", MODULES),
            open: Vec::new(),
            levels: 0,
        }
    }
}

impl Budget {
    /// Notes the beginning of a component or a module.
    ///
    /// # Errors
    /// `Budget` if too many are inside one another.
    pub(super) fn enter(&mut self, is_component: bool) -> Result<(), LoadError> {
        self.levels += 1;
        nesting(self.levels)?;
        if is_component {
            self.open.push(OpenComponent::default());
        }
        Ok(())
    }

    /// Notes the end of a component or a module.
    pub(super) fn leave(&mut self, is_component: bool) {
        self.levels = self.levels.saturating_sub(1);
        if let Some(closed) = self.open.pop_if(|_| is_component)
            && let Some(parent) = self.open.last_mut()
        {
            parent.components.push(closed.instances);
        }
    }

    /// Counts a section and its declarations.
    ///
    /// # Errors
    /// `Budget` with the resource that it has too much of; `Malformed` if it cannot be read.
    pub(super) fn section(&mut self, payload: &Payload<'_>, bytes: &[u8]) -> Result<(), LoadError> {
        // Functions are the content of one section.
        if !matches!(payload, Payload::CodeSectionEntry(_)) {
            self.sections.spend(1)?;
        }
        match payload {
            Payload::TypeSection(section) => self.module(&section.range()),
            Payload::ImportSection(section) => self.module(&section.range()),
            Payload::FunctionSection(section) => self.module(&section.range()),
            Payload::TableSection(section) => self.module(&section.range()),
            Payload::MemorySection(section) => self.module(&section.range()),
            Payload::TagSection(section) => self.module(&section.range()),
            Payload::GlobalSection(section) => self.module(&section.range()),
            Payload::ExportSection(section) => self.module(&section.range()),
            Payload::ElementSection(section) => self.module(&section.range()),
            // Their bytes are content; each segment is a declaration.
            Payload::DataSection(section) => self.modules.spend(section.count().into()),
            Payload::CoreTypeSection(section) => {
                let mut reader = reader(bytes, section.range());
                repeat(&mut reader, |reader| self.core_type(reader))
            }
            Payload::ComponentTypeSection(section) => {
                let mut reader = reader(bytes, section.range());
                repeat(&mut reader, |reader| {
                    let has_types_only = self.component_type(reader)?;
                    self.add_type(has_types_only);
                    Ok(())
                })
            }
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    self.count_core_instance(&instance.map_err(|error| malformed(&error))?)?;
                }
                Ok(())
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    self.instance(&instance.map_err(|error| malformed(&error))?)?;
                }
                Ok(())
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias.map_err(|error| malformed(&error))?)?;
                }
                Ok(())
            }
            Payload::ComponentCanonicalSection(section) => {
                self.declarations.spend(section.count().into())
            }
            _ => Ok(()),
        }
    }

    /// Counts an import. Returns whether it needs nothing of the host, because it only names types.
    ///
    /// # Errors
    /// `Budget` with the resource that it has too much of.
    pub(super) fn import(&mut self, name: &str, ty: ComponentTypeRef) -> Result<bool, LoadError> {
        self.declare(name)?;
        if self.open.len() == 1 {
            self.imports.spend(1)?;
        }
        self.defined(ty.kind(), None)?;
        Ok(match ty {
            ComponentTypeRef::Type(TypeBounds::Eq(_)) => true,
            ComponentTypeRef::Instance(index) => {
                let types = self.open.last().map(|open| open.types.as_slice()).unwrap_or_default();
                types.get(index as usize).copied().unwrap_or_default()
            }
            _ => false,
        })
    }

    /// Counts an export.
    ///
    /// # Errors
    /// `Budget` with the resource that it has too much of.
    pub(super) fn export(
        &mut self,
        name: &str,
        kind: ComponentExternalKind,
        index: u32,
    ) -> Result<(), LoadError> {
        self.declare(name)?;
        if self.open.len() == 1 {
            self.exports.spend(1)?;
        }
        self.defined(kind, Some(index))
    }

    fn module(&mut self, range: &Range<usize>) -> Result<(), LoadError> {
        self.modules.spend(range.len() as u64)
    }

    fn declare(&mut self, name: &str) -> Result<(), LoadError> {
        self.declarations.spend(1)?;
        self.names.spend(name.len() as u64)
    }

    fn declare_all<'a>(
        &mut self,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<(), LoadError> {
        names.try_for_each(|name| self.declare(name))
    }

    fn add_type(&mut self, has_types_only: bool) {
        if let [open] = self.open.as_mut_slice() {
            open.types.push(has_types_only);
        }
    }

    /// Notes an item that enters the index spaces. `index` is that of the exported item.
    fn defined(
        &mut self,
        kind: ComponentExternalKind,
        index: Option<u32>,
    ) -> Result<(), LoadError> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        match kind {
            ComponentExternalKind::Component => {
                let known = index.and_then(|index| open.components.get(index as usize)).copied();
                // What such a component makes is known only where it is passed.
                let known = known.ok_or(LoadError::Budget {
                    what: "components that are passed to components",
                    limit: 0,
                })?;
                open.components.push(known);
            }
            ComponentExternalKind::Type => {
                let has_types_only =
                    index.and_then(|index| open.types.get(index as usize)).copied();
                self.add_type(has_types_only.unwrap_or_default());
            }
            _ => {}
        }
        Ok(())
    }

    fn count_instances(&mut self, instances: u64) -> Result<(), LoadError> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        open.instances = open.instances.saturating_add(instances);
        if open.instances > INSTANCES {
            return Err(LoadError::Budget { what: "instances, written out", limit: INSTANCES });
        }
        Ok(())
    }

    /// Counts a core instance, and the names that it declares.
    fn count_core_instance(&mut self, instance: &Instance<'_>) -> Result<(), LoadError> {
        self.count_instances(1)?;
        match instance {
            Instance::Instantiate { args, .. } => {
                self.declare_all(args.iter().map(|argument| argument.name))
            }
            Instance::FromExports(exports) => {
                self.declare_all(exports.iter().map(|export| export.name))
            }
        }
    }

    fn instance(&mut self, instance: &ComponentInstance<'_>) -> Result<(), LoadError> {
        match instance {
            ComponentInstance::Instantiate { component_index, args } => {
                let known = self
                    .open
                    .last()
                    .and_then(|open| open.components.get(*component_index as usize).copied());
                // An index of nothing is an error of the compiler.
                self.count_instances(known.unwrap_or_default().saturating_add(1))?;
                self.declare_all(args.iter().map(|argument| argument.name))
            }
            ComponentInstance::FromExports(exports) => {
                self.count_instances(1)?;
                self.declare_all(exports.iter().map(|export| export.name.name))
            }
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), LoadError> {
        match alias {
            ComponentAlias::InstanceExport { kind, name, .. } => {
                self.declare(name)?;
                self.defined(*kind, None)
            }
            ComponentAlias::CoreInstanceExport { name, .. } => self.declare(name),
            ComponentAlias::Outer { kind, count, index } => {
                self.declare("")?;
                match kind {
                    ComponentOuterAliasKind::Component => {
                        let outer = self.open.iter().rev().nth(*count as usize);
                        let known =
                            outer.and_then(|outer| outer.components.get(*index as usize).copied());
                        if let Some(open) = self.open.last_mut() {
                            open.components.push(known.unwrap_or_default());
                        }
                    }
                    ComponentOuterAliasKind::Type => self.add_type(false),
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// Reads a type. Types of instances and components hold types, so these are read without
    /// recursion: 3 bytes nest one more. Returns whether it is an instance of types only.
    fn component_type(&mut self, reader: &mut BinaryReader<'_>) -> Result<bool, LoadError> {
        // The declarations that are left to read, at each level.
        let mut levels: Vec<u32> = Vec::new();
        let mut has_types_only = true;
        self.type_or_level(reader, &mut levels)?;
        let is_instance = !levels.is_empty();
        while let Some(remaining) = levels.last_mut() {
            let Some(next) = remaining.checked_sub(1) else {
                levels.pop();
                continue;
            };
            *remaining = next;
            match peek(reader)? {
                0x00 => {
                    skip(reader)?;
                    self.core_type(reader)?;
                }
                0x01 => {
                    skip(reader)?;
                    self.type_or_level(reader, &mut levels)?;
                    nesting(self.levels + levels.len() as u64)?;
                }
                0x03 => {
                    skip(reader)?;
                    let import: wasmparser::ComponentImport<'_> = read(reader)?;
                    has_types_only = false;
                    self.declare(import.name.name)?;
                }
                _ => match read(reader)? {
                    InstanceTypeDeclaration::Export { name, ty } => {
                        let is_type = matches!(ty, ComponentTypeRef::Type(TypeBounds::Eq(_)));
                        has_types_only &= is_type;
                        self.declare(name.name)?;
                    }
                    InstanceTypeDeclaration::Alias(ComponentAlias::InstanceExport {
                        name, ..
                    }) => self.declare(name)?,
                    _ => self.declare("")?,
                },
            }
        }
        Ok(is_instance && has_types_only)
    }

    /// Reads a type, or the beginning of one that holds declarations.
    fn type_or_level(
        &mut self,
        reader: &mut BinaryReader<'_>,
        levels: &mut Vec<u32>,
    ) -> Result<(), LoadError> {
        self.declarations.spend(1)?;
        if matches!(peek(reader)?, 0x41 | 0x42) {
            skip(reader)?;
            levels.push(reader.read_var_u32().map_err(|error| malformed(&error))?);
            return Ok(());
        }
        match read(reader)? {
            ComponentType::Func(function) => {
                self.declare_all(function.params.iter().map(|(name, _)| *name))
            }
            ComponentType::Defined(defined) => match defined {
                ComponentDefinedType::Record(fields) => {
                    self.declare_all(fields.iter().map(|(name, _)| *name))
                }
                ComponentDefinedType::Variant(cases) => {
                    self.declare_all(cases.iter().map(|case| case.name))
                }
                ComponentDefinedType::Flags(names) | ComponentDefinedType::Enum(names) => {
                    self.declare_all(names.iter().copied())
                }
                ComponentDefinedType::Tuple(types) => self.declarations.spend(types.len() as u64),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn core_type(&mut self, reader: &mut BinaryReader<'_>) -> Result<(), LoadError> {
        self.declarations.spend(1)?;
        // The type of a module; any other is a group of core types.
        if peek(reader)? == 0x50 {
            skip(reader)?;
            return repeat(reader, |reader| match read(reader)? {
                ModuleTypeDeclaration::Type(group) => {
                    self.declarations.spend(group.types().len() as u64)
                }
                ModuleTypeDeclaration::Export { name, .. } => self.declare(name),
                ModuleTypeDeclaration::Import(import) => {
                    self.declare(import.module)?;
                    self.declare(import.name)
                }
                ModuleTypeDeclaration::OuterAlias { .. } => self.declare(""),
            });
        }
        match read(reader)? {
            CoreType::Rec(group) => self.declarations.spend(group.types().len() as u64),
            CoreType::Module(declarations) => self.declarations.spend(declarations.len() as u64),
        }
    }
}

fn nesting(levels: u64) -> Result<(), LoadError> {
    if levels > NESTING {
        return Err(LoadError::Budget {
            what: "components and types inside one another",
            limit: NESTING,
        });
    }
    Ok(())
}

fn reader(bytes: &[u8], range: Range<usize>) -> BinaryReader<'_> {
    BinaryReader::new(bytes.get(range.clone()).unwrap_or_default(), range.start)
}

/// Reads a number, and as many items.
fn repeat<'a>(
    reader: &mut BinaryReader<'a>,
    mut item: impl FnMut(&mut BinaryReader<'a>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let count = reader.read_var_u32().map_err(|error| malformed(&error))?;
    (0..count).try_for_each(|_| item(reader))
}

fn read<'a, T: FromReader<'a>>(reader: &mut BinaryReader<'a>) -> Result<T, LoadError> {
    reader.read().map_err(|error: BinaryReaderError| malformed(&error))
}

fn peek(reader: &BinaryReader<'_>) -> Result<u8, LoadError> {
    reader.clone().read_u8().map_err(|error| malformed(&error))
}

fn skip(reader: &mut BinaryReader<'_>) -> Result<(), LoadError> {
    reader.read_u8().map(drop).map_err(|error| malformed(&error))
}

#[cfg(test)]
mod tests;
