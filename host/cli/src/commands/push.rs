//! `conclave plugin push SOURCE REFERENCE`: publishes a component in an OCI registry. Runs nothing
//! of it. A tag that names something else is replaced only if the user confirms it.

use std::collections::BTreeSet;

use conclave_core::config::{PublicKey, lost_signers};
use conclave_core::types::oci::OciReference;
use conclave_runtime::plugin::{
    Artifact, Package, Registry, RegistryError, SigningKey, Statement, Subject, signers,
};
use serde_json::json;

use crate::args::{OutputArgs, Push};
use crate::commands::sign::read_key;
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::registry::{envelopes_beside, reference, registry};
use crate::state::source::{self, ComponentPlace};
use crate::ui::ask;
use crate::ui::show::{bytes, one_line};
use crate::ui::{stderr, stdout};

/// Columns of a text that a registry states.
const TEXT: usize = 64;

pub(crate) async fn push(args: &Push, output: OutputArgs) -> Result<u8, CliError> {
    let reference = reference(&args.reference)?;
    if reference.tag().is_none() || reference.digest().is_some() {
        let what = format!("{reference} is not a tag to push to");
        return Err(CliError::usage(what)
            .hint("name registry, repository and tag: oci://registry.example/team/notes:1.2.0"));
    }
    let command_for = |source: &str| format!("conclave plugin push {} {reference}", shell(source));
    let found = source::find(&args.source, command_for).await?;
    let key = args.sign.as_deref().map(read_key).transpose()?;
    let mut signatures = match &found.place {
        ComponentPlace::File(file) => envelopes_beside(file)?,
        _ => Vec::new(),
    };
    let package = Package::new(found.bytes()?, &found.inspection);
    let registry = registry();
    let mut signing = signers(&signatures, Subject::File { sha256: &package.component_digest() });
    signing.extend(key.iter().map(SigningKey::public));
    let version = &found.inspection.manifest.version;
    let replaced = replaced(&registry, &reference, &package).await?;
    let warnings = warnings(&reference, version, replaced.as_ref(), &signing);
    // Before the question, so that the user decides with them in view.
    if !output.json {
        for warning in &warnings {
            stderr::warning(warning);
        }
    }
    if let Some(replaced) = replaced.filter(|_| !args.replace) {
        confirm(&reference, &replaced, command_for(&args.source))?;
    }
    let pushed = registry.push(&reference, &package).await.map_err(failed)?;
    // After the push: the statement names the digest of the pushed manifest.
    signatures.extend(key.map(|key| key.sign(&Statement::of_artifact(&pushed))));
    // A signature of another component, or of another packaging of it, proves nothing here.
    signatures.retain(|envelope| {
        !signers(std::slice::from_ref(envelope), Subject::Artifact(&pushed)).is_empty()
    });
    for envelope in &signatures {
        registry.push_signature(&pushed, envelope).await.map_err(failed)?;
    }
    let signed_by = signers(&signatures, Subject::Artifact(&pushed));
    let signed_by: Vec<String> = signed_by.iter().map(ToString::to_string).collect();
    let pushed = pushed.reference();
    if output.json {
        let sha256 = &found.inspection.sha256;
        stdout::json(
            json!({ "type": "push", "reference": pushed, "sha256": sha256, "signed_by": signed_by, "warnings": warnings }),
        )?;
    } else {
        if !output.quiet {
            let manifest = &found.inspection.manifest;
            let what = format!(
                "pushed {} {}, {}",
                one_line(&manifest.name, TEXT),
                one_line(&manifest.version, TEXT),
                bytes(found.inspection.size)
            );
            stderr::note(what);
            for key in &signed_by {
                stderr::note(format_args!("signed by {key}"));
            }
        }
        stdout::line(pushed)?;
    }
    Ok(exit::OK)
}

/// The error of a push. What a pull needs is no help here: nothing is kept that could stand for the
/// registry.
fn failed(error: RegistryError) -> CliError {
    match error {
        RegistryError::Unreachable { .. } => CliError::plugin(error.to_string())
            .hint("check its address and your network, and push again"),
        error => error.into(),
    }
}

/// The artifact that a tag names before the push, if it is another one.
struct ReplacedArtifact {
    /// The version that it states, or its digest; for display.
    description: String,
    /// The keys that signed it.
    signers: BTreeSet<PublicKey>,
}

/// Returns what the tag names, if it is there and is another artifact.
async fn replaced(
    registry: &Registry,
    reference: &OciReference,
    package: &Package,
) -> Result<Option<ReplacedArtifact>, CliError> {
    let artifact = match registry.artifact(reference, || {}).await {
        Ok(artifact) => artifact,
        Err(RegistryError::NotFound { .. }) => return Ok(None),
        Err(RegistryError::NotAComponent { reason, .. }) => {
            let description = one_line(&format!("something else: {reason}"), 3 * TEXT);
            return Ok(Some(ReplacedArtifact { description, signers: BTreeSet::new() }));
        }
        Err(error) => return Err(failed(error)),
    };
    if artifact.reference().digest() == Some(package.digest().as_str()) {
        return Ok(None);
    }
    let signatures = registry.signatures(&artifact).await.map_err(failed)?;
    let signers = signers(&signatures.envelopes, Subject::Artifact(&artifact));
    Ok(Some(ReplacedArtifact { description: describe(&artifact), signers }))
}

fn describe(artifact: &Artifact) -> String {
    let digest: String = artifact.component_sha256().chars().take(12).collect();
    match artifact.version() {
        Some(version) => format!("version {}, sha256 {digest}…", one_line(&version, TEXT)),
        None => format!("sha256 {digest}…"),
    }
}

/// Returns what the publisher most likely does not mean: a tag that is another version, and
/// signatures that the tag loses.
fn warnings(
    reference: &OciReference,
    version: &str,
    replaced: Option<&ReplacedArtifact>,
    signing: &BTreeSet<PublicKey>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let tag = reference.tag().unwrap_or_default();
    if names_version(tag) && !is_version(tag, version) {
        warnings.push(format!(
            "the tag is {tag}, and the manifest states version {}",
            one_line(version, TEXT)
        ));
    }
    let lost_keys = replaced.map(|replaced| lost_signers(&replaced.signers, signing));
    for key in lost_keys.unwrap_or_default() {
        warnings.push(format!("what the tag names now is signed by {key}; this is not"));
    }
    warnings
}

/// Whether a tag has the form of a version: `1.2.0`, `v1`.
fn names_version(tag: &str) -> bool {
    let numbers = tag.strip_prefix('v').unwrap_or(tag);
    numbers.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether a tag names this version, or the series that it belongs to: `1` and `1.2` for 1.2.0.
fn is_version(tag: &str, version: &str) -> bool {
    let numbers = tag.strip_prefix('v').unwrap_or(tag);
    version == numbers
        || version.strip_prefix(numbers).is_some_and(|rest| rest.starts_with(['.', '-', '+']))
}

/// Asks whether the tag is to name something else from now on.
///
/// # Errors
/// If the user does not confirm it, or no user is there.
fn confirm(
    reference: &OciReference,
    replaced: &ReplacedArtifact,
    command: String,
) -> Result<(), CliError> {
    let what = format!("{reference} names another artifact: {}", replaced.description);
    if !ask::is_user_there() {
        return Err(CliError::policy(format!("{what}; nothing was published"))
            .hint(format!("push to another tag; or replace it: {command} --replace")));
    }
    if ask::confirm(&format!("{what}. Replace it?")) {
        return Ok(());
    }
    Err(CliError::internal("nothing was published"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_of_another_version_is_a_warning() {
        let tagged = |tag: &str| {
            let reference: OciReference =
                format!("oci://registry.test/team/notes:{tag}").parse().expect("a reference");
            warnings(&reference, "1.2.0", None, &BTreeSet::new()).len()
        };
        let same = ["1.2.0", "v1.2.0", "1.2", "1", "latest", "stable"].map(tagged);
        assert_eq!(same, [0; 6]);
        assert_eq!(["1.2.1", "v2", "0.1.0", "12", "1.20"].map(tagged), [1; 5]);
    }
}
