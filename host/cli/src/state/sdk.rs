//! The sources of the SDKs, from the build of this program.

use crate::args::Language;

mod table {
    include!(concat!(env!("OUT_DIR"), "/sdk.rs"));
}

/// The versions of all packages that this program was built with. Cargo drops those that a plugin
/// does not need.
pub(crate) const LOCK: &str = table::LOCK;

/// The path and the text of each file that a plugin in the language needs, the contract included,
/// from the root of the SDK.
pub(crate) fn files(language: Language) -> impl Iterator<Item = (&'static str, &'static str)> {
    let folder = |name: &str| match name.split('/').collect::<Vec<_>>()[..] {
        ["wit", ..] => None,
        ["sdk", "python", ..] => Some(Language::Python),
        ["sdk", "js", ..] => Some(Language::Js),
        _ => Some(Language::Rust),
    };
    let is_needed = move |name: &str| folder(name).is_none_or(|of| of == language);
    table::FILES.iter().copied().filter(move |(name, _)| is_needed(name))
}
