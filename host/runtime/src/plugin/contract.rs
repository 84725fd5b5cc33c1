//! Checks a component's imports and exports against the contract, by name and before compilation.
//! Their types are checked when the component is linked and probed.

use std::collections::{BTreeMap, BTreeSet};

use conclave_core::permissions::manifest::{ANY_SETTING, CapabilityRequest, Manifest};
use conclave_core::types::capability::Capability;
use conclave_core::types::plugin_kind::PluginKind;

use serde_json::json;

use super::anatomy::Anatomy;
use super::{LoadError, UnaskedImport};
use crate::imports::interfaces::config::STORES;
use crate::support::escape::excerpt;

/// The package of the contract, and the host's version of it.
const PACKAGE: &str = "conclave:plugin/";
const VERSION: &str = "0.1.0-draft";
/// Importable interfaces of the contract besides those of capabilities.
const IMPORTS: [&str; 7] =
    ["types", "actions", "state", "call", "delivery-context", "judge-feedback", "channel-secret"];
/// WASI packages: those that are linked but inert, and those whose calls are all refused.
const WASI: [&str; 7] = [
    "wasi:cli/",
    "wasi:io/",
    "wasi:clocks/",
    "wasi:random/",
    "wasi:filesystem/",
    "wasi:sockets/",
    "wasi:http/",
];
/// Maximum characters of a component's names that are shown.
const NAME: usize = 200;

/// Returns the kinds of plugin that the component exports; none if it exports nothing of the
/// contract, so that its functions are served as tools.
///
/// # Errors
/// `ForeignImport` or `OtherContract` for an import that this host lacks, `NothingExported` if it
/// has no export at all.
pub(crate) fn check(anatomy: &Anatomy<'_>) -> Result<BTreeSet<PluginKind>, LoadError> {
    anatomy.imports.iter().try_for_each(|import| check_import(import))?;
    let kinds: BTreeSet<PluginKind> = PluginKind::ALL
        .into_iter()
        .filter(|kind| anatomy.exports.contains(&export_name(*kind).as_str()))
        .collect();
    if !kinds.is_empty() {
        return Ok(kinds);
    }
    // An export of another contract version is the most likely reason.
    match anatomy.exports.iter().find(|export| export.starts_with(PACKAGE)) {
        Some(export) => Err(LoadError::OtherContract { name: excerpt(export, NAME) }),
        None if anatomy.exports.is_empty() => Err(LoadError::NothingExported(String::new())),
        None => Ok(kinds),
    }
}

/// A manifest for a component that is not built for the contract. It asks for what the imports can
/// use, so that an operator can grant it.
pub(crate) fn plain_manifest(anatomy: &Anatomy<'_>) -> Manifest {
    let mut asks = BTreeMap::new();
    for found in unasked(anatomy, &Manifest::default()) {
        if let Some(capability) = found.capability {
            asks.entry(capability.as_str().to_owned()).or_insert_with(|| CapabilityRequest {
                why: format!("It imports {}.", found.import),
                optional: true,
                ..CapabilityRequest::default()
            });
        }
    }
    // What a component reads from `wasi:config/store` it does not declare.
    let reads_settings = anatomy.imports.iter().any(|import| STORES.contains(import));
    let config = reads_settings.then(|| (ANY_SETTING.to_owned(), json!({ "type": "string" })));
    Manifest {
        config: config.into_iter().collect(),
        format: 1,
        name: "component".to_owned(),
        version: "0".to_owned(),
        contract: "0.1".to_owned(),
        description: "A component that was not built for Conclave.".to_owned(),
        asks,
        ..Manifest::default()
    }
}

/// The export name of a kind.
pub(crate) fn export_name(kind: PluginKind) -> String {
    format!("{PACKAGE}{}@{VERSION}", kind.as_str())
}

fn check_import(import: &str) -> Result<(), LoadError> {
    let (interface, version) = import.split_once('@').unwrap_or((import, ""));
    if let Some(name) = interface.strip_prefix(PACKAGE) {
        let is_known = IMPORTS.contains(&name) || capability_of(name).is_some();
        return match (version == VERSION, is_known) {
            (true, true) => Ok(()),
            (true, false) => Err(foreign(import, "no version of this host has it")),
            (false, _) => Err(LoadError::OtherContract { name: excerpt(import, NAME) }),
        };
    }
    if STORES.contains(&import) {
        return Ok(());
    }
    let is_wasi = WASI.iter().any(|package| interface.starts_with(package));
    match is_wasi {
        true if version.starts_with("0.2.") => Ok(()),
        true => Err(foreign(
            import,
            "this host has WASI 0.2; build the plugin for target wasm32-wasip2",
        )),
        false if interface.starts_with("wasi:") => Err(foreign(
            import,
            "plugins get no such authority; see the capabilities of the contract",
        )),
        false => Err(foreign(
            import,
            "compose the component with one that exports it, so that nothing is left to import",
        )),
    }
}

/// The imports of authority that the manifest does not ask for.
pub(crate) fn unasked(anatomy: &Anatomy<'_>, manifest: &Manifest) -> Vec<UnaskedImport> {
    let authority = |import: &str| {
        if let Some(name) = import.strip_prefix(PACKAGE) {
            let capability = capability_of(name.split('@').next().unwrap_or_default());
            return capability.filter(|capability| !capability.is_own()).map(Some);
        }
        // These are implemented on top of the capability; sockets are not.
        [
            ("wasi:filesystem/", Some(Capability::Files)),
            ("wasi:http/", Some(Capability::Fetch)),
            ("wasi:sockets/", None),
        ]
        .into_iter()
        .find_map(|(package, capability)| import.starts_with(package).then_some(capability))
    };
    let unasked = anatomy.imports.iter().filter_map(|import| {
        let capability = authority(import)?;
        let is_asked = capability.is_some_and(|capability| manifest.ask(capability).is_some());
        (!is_asked).then(|| UnaskedImport {
            import: excerpt(import, NAME),
            capability,
            is_wasi: import.starts_with("wasi:"),
        })
    });
    unasked.collect()
}

/// The capability that a plugin uses through an interface of the contract.
fn capability_of(interface: &str) -> Option<Capability> {
    Capability::ALL.into_iter().find(|capability| capability.interface() == Some(interface))
}

fn foreign(import: &str, needed: &'static str) -> LoadError {
    LoadError::ForeignImport { import: excerpt(import, NAME), needed }
}

/// Checks that the manifest does not require a capability that this host lacks.
///
/// # Errors
/// `UnknownCapability`, with the first such capability.
pub(crate) fn check_asks(manifest: &Manifest) -> Result<(), LoadError> {
    for (name, ask) in manifest.asks.iter().filter(|(_, ask)| !ask.optional) {
        let why = || {
            if ask.why.is_empty() {
                String::new()
            } else {
                format!(" ({})", excerpt(&ask.why, 200))
            }
        };
        if Capability::from_name(name).is_none() {
            return Err(LoadError::UnknownCapability { capability: excerpt(name, 64), why: why() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anatomy<'a>(imports: &[&'a str], exports: &[&'a str]) -> Anatomy<'a> {
        Anatomy { manifest: Some(b"{}"), imports: imports.to_vec(), exports: exports.to_vec() }
    }

    const TOOLS: &str = "conclave:plugin/tools@0.1.0-draft";

    #[test]
    fn what_it_exports_says_what_it_is() {
        let kinds =
            check(&anatomy(&[], &[TOOLS, "something-else", "conclave:plugin/agent@0.1.0-draft"]))
                .unwrap();
        assert_eq!(kinds, BTreeSet::from([PluginKind::Agent, PluginKind::Tools]));
        for kind in PluginKind::ALL {
            let export = format!("conclave:plugin/{}@0.1.0-draft", kind.as_str());
            assert_eq!(check(&anatomy(&[], &[&export])).unwrap(), BTreeSet::from([kind]));
        }
    }

    #[test]
    fn known_imports_are_taken() {
        let imports = [
            "conclave:plugin/log@0.1.0-draft",
            "wasi:io/streams@0.2.6",
            "wasi:sockets/tcp@0.2.0",
            "wasi:http/types@0.2.3",
        ];
        assert!(check(&anatomy(&imports, &[TOOLS])).is_ok());
    }

    #[test]
    fn imports_of_authority_that_the_manifest_lacks_are_found() {
        let imports = [
            "conclave:plugin/log@0.1.0-draft",
            "conclave:plugin/files@0.1.0-draft",
            "conclave:plugin/kv@0.1.0-draft",
            "wasi:filesystem/types@0.2.6",
            "wasi:http/types@0.2.3",
            "wasi:sockets/tcp@0.2.0",
            "wasi:clocks/wall-clock@0.2.6",
        ];
        let manifest = Manifest {
            asks: [("files".to_owned(), CapabilityRequest::default())].into(),
            ..Manifest::default()
        };
        let unasked: Vec<_> = unasked(&anatomy(&imports, &[TOOLS]), &manifest)
            .into_iter()
            .map(|found| (found.import, found.capability, found.is_wasi))
            .collect();
        assert_eq!(
            unasked,
            [
                ("conclave:plugin/kv@0.1.0-draft".to_owned(), Some(Capability::Kv), false),
                ("wasi:http/types@0.2.3".to_owned(), Some(Capability::Fetch), true),
                ("wasi:sockets/tcp@0.2.0".to_owned(), None, true),
            ]
        );
    }

    #[test]
    fn any_other_import_is_refused_and_named() {
        for import in [
            "env",
            "wasi:keyvalue/store@0.2.0",
            "wasi:io/streams@0.3.0",
            "wasi:nn/graph@0.2.0",
            "acme:db/sql@1.0.0",
            "conclave:plugin/telepathy@0.1.0-draft",
        ] {
            match check(&anatomy(&[import], &[TOOLS])) {
                Err(LoadError::ForeignImport { import: refused, .. }) => {
                    assert_eq!(refused, import)
                }
                other => panic!("{import}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_contract_is_told_apart_from_a_foreign_import() {
        let newer = "conclave:plugin/log@0.2.0";
        assert!(matches!(
            check(&anatomy(&[newer], &[TOOLS])),
            Err(LoadError::OtherContract { .. })
        ));
        assert!(matches!(
            check(&anatomy(&[], &["conclave:plugin/tools@0.2.0"])),
            Err(LoadError::OtherContract { .. })
        ));
        assert!(matches!(check(&anatomy(&[], &[])), Err(LoadError::NothingExported(_))));
        assert!(check(&anatomy(&[], &["run"])).is_ok_and(|kinds| kinds.is_empty()), "a function");
    }

    #[test]
    fn names_reach_a_terminal_as_one_harmless_line() {
        let hostile = "\u{1b}[2J\n\u{202e}";
        let (other, foreign) = (
            format!("conclave:plugin/{hostile}@9"),
            format!("acme:{hostile}{}", "x".repeat(1_000)),
        );
        for (imports, exports) in [
            (vec![foreign.as_str()], vec![]),
            (vec![other.as_str()], vec![]),
            (vec![], vec![other.as_str()]),
        ] {
            let message = check(&anatomy(&imports, &exports)).unwrap_err().to_string();
            assert!(
                message.len() < 600 && !message.contains(['\u{1b}', '\n', '\u{202e}']),
                "{message:?}"
            );
        }
    }

    #[test]
    fn a_required_ask_that_nobody_can_grant_is_refused() {
        let asks = |name: &str, optional| {
            let ask = CapabilityRequest {
                why: "Reads forecasts.".to_owned(),
                optional,
                ..CapabilityRequest::default()
            };
            Manifest { asks: [(name.to_owned(), ask)].into(), ..Manifest::default() }
        };
        assert!(check_asks(&asks("files", false)).is_ok());
        assert!(check_asks(&asks("exec", true)).is_ok());
        assert!(matches!(
            check_asks(&asks("telepathy", false)),
            Err(LoadError::UnknownCapability { .. })
        ));
    }
}
