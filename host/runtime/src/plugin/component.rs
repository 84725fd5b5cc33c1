//! A component to load. That of a program may have been inspected and compiled when the program was
//! built, so that its bytes are read only if they are asked for.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::load::inspect;
use super::program_file::{ProgramFile, ProgramFileError};
use super::{Inspection, LoadError};
use crate::support::digest;

/// A component to load: bytes, or a part of the program.
#[derive(Clone)]
pub struct PluginComponent(Content);

#[derive(Clone)]
enum Content {
    Bytes(Cow<'static, [u8]>),
    Prebuilt(Arc<Prebuilt>),
}

struct Prebuilt {
    bytes: PrebuiltBytes,
    inspection: Inspection,
    code: ProgramFile,
}

/// Where a program has the bytes of a component.
#[derive(Clone, Debug)]
pub enum PrebuiltBytes {
    /// In its own executable.
    InProgram(Cow<'static, [u8]>),
    /// In a file of its own.
    File(ProgramFile),
}

impl From<Vec<u8>> for PluginComponent {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Content::Bytes(Cow::Owned(bytes)))
    }
}

impl From<Cow<'static, [u8]>> for PluginComponent {
    fn from(bytes: Cow<'static, [u8]>) -> Self {
        Self(Content::Bytes(bytes))
    }
}

impl PluginComponent {
    /// Returns a component whose facts and machine code were made when the program was built. Code
    /// that is missing, or was made for another machine or version, is compiled as usual.
    ///
    /// # Safety
    /// The code is executed in this process, outside of any sandbox. The file's digest must be that
    /// of an unchanged result of [`precompile`](super::precompile), and must come from a place that
    /// is trusted as much as the program itself, such as its read-only data. The file need not be
    /// trusted: it is compared with its digest.
    #[must_use]
    #[expect(
        unsafe_code,
        reason = "the engine cannot check machine code; the caller must know its origin"
    )]
    pub unsafe fn prebuilt(
        bytes: PrebuiltBytes,
        inspection: Inspection,
        code: ProgramFile,
    ) -> Self {
        Self(Content::Prebuilt(Arc::new(Prebuilt { bytes, inspection, code })))
    }

    /// Returns the facts that are known without running it.
    ///
    /// # Errors
    /// As for [`Loader::load`](super::Loader::load), up to the compilation.
    pub fn inspection(&self) -> Result<Inspection, LoadError> {
        match &self.0 {
            Content::Bytes(bytes) => inspect(bytes),
            Content::Prebuilt(prebuilt) => Ok(prebuilt.inspection.clone()),
        }
    }

    /// Returns the bytes.
    ///
    /// # Errors
    /// If they are a file of the program that is missing or changed.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, ProgramFileError> {
        match &self.0 {
            Content::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Content::Prebuilt(prebuilt) => match &prebuilt.bytes {
                PrebuiltBytes::InProgram(bytes) => Ok(Cow::Borrowed(bytes)),
                PrebuiltBytes::File(file) => file.read().map(Cow::Owned),
            },
        }
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.0 {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Prebuilt(prebuilt) => prebuilt.inspection.size,
        }
    }

    /// The digest of the bytes in lower-case hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        match &self.0 {
            Content::Bytes(bytes) => digest::sha256(bytes),
            Content::Prebuilt(prebuilt) => prebuilt.inspection.sha256.clone(),
        }
    }

    /// The file with the component, if it is one beside the program.
    #[must_use]
    pub fn file(&self) -> Option<&ProgramFile> {
        match &self.0 {
            Content::Prebuilt(prebuilt) => match &prebuilt.bytes {
                PrebuiltBytes::File(file) => Some(file),
                PrebuiltBytes::InProgram(_) => None,
            },
            Content::Bytes(_) => None,
        }
    }

    /// The file with the machine code, if some was made when the program was built.
    #[must_use]
    pub fn code(&self) -> Option<&ProgramFile> {
        match &self.0 {
            Content::Bytes(_) => None,
            Content::Prebuilt(prebuilt) => Some(&prebuilt.code),
        }
    }
}

impl fmt::Debug for PluginComponent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PluginComponent")
            .field("size", &self.size())
            .field("file", &self.file())
            .field("code", &self.code())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program holds facts as JSON, so they must survive it.
    #[test]
    fn facts_of_each_stock_plugin_are_the_same_after_json() {
        for (name, bytes) in conclave_stock::stock() {
            let inspection = PluginComponent::from(bytes).inspection().expect("it is a plugin");
            let json = serde_json::to_string(&inspection).expect("they are plain data");
            let parsed: Inspection = serde_json::from_str(&json).expect("they are plain data");
            assert_eq!(parsed, inspection, "{name}");
        }
    }
}
