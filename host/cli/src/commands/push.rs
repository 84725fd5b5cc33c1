//! `conclave plugin push SOURCE REFERENCE`: publishes a component in an OCI registry. Runs nothing
//! of it.

use conclave_runtime::plugin::{Package, Statement, Subject, signers};
use serde_json::json;
use std::io::Write;

use crate::args::{OutputArgs, Push};
use crate::commands::sign::read_key;
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::registry::{envelopes_beside, failed, reference, registry};
use crate::state::source::{self, ComponentPlace};
use crate::ui::show::{FAINT, bytes, one_line, paint};
use crate::ui::stdout;

pub(crate) async fn push(args: &Push, output: OutputArgs) -> Result<u8, CliError> {
    let reference = reference(&args.reference)?;
    if reference.tag().is_none() || reference.digest().is_some() {
        let what = format!("{reference} is not a tag to push to");
        return Err(CliError::usage(what)
            .hint("name registry, repository and tag: oci://registry.example/team/notes:1.2.0"));
    }
    let again = |source: &str| format!("conclave plugin push {} {reference}", shell(source));
    let found = source::find(&args.source, again).await?;
    let key = args.sign.as_deref().map(read_key).transpose()?;
    let mut signatures = match &found.place {
        ComponentPlace::File(file) => envelopes_beside(file)?,
        _ => Vec::new(),
    };
    let package = Package::new(found.bytes()?, &found.inspection);
    let registry = registry();
    let pushed = registry.push(&reference, &package).await.map_err(|error| failed(&error))?;
    signatures.extend(key.map(|key| key.sign(&Statement::of_artifact(&pushed))));
    // A signature of another component, or of another packaging of it, proves nothing here.
    signatures.retain(|envelope| {
        !signers(std::slice::from_ref(envelope), Subject::Artifact(&pushed)).is_empty()
    });
    for envelope in &signatures {
        registry.push_signature(&pushed, envelope).await.map_err(|error| failed(&error))?;
    }
    let signed_by = signers(&signatures, Subject::Artifact(&pushed));
    let signed_by: Vec<String> = signed_by.iter().map(ToString::to_string).collect();
    let pushed = pushed.reference();
    if output.json {
        let sha256 = &found.inspection.sha256;
        stdout::json(
            json!({ "type": "push", "reference": pushed, "sha256": sha256, "signed_by": signed_by }),
        )?;
    } else {
        if !output.quiet {
            let manifest = &found.inspection.manifest;
            let what = format!(
                "pushed {} {}, {}",
                one_line(&manifest.name, 64),
                one_line(&manifest.version, 64),
                bytes(found.inspection.size)
            );
            let _ = writeln!(crate::ui::output::stderr(), "{}", paint(FAINT, what));
            for key in &signed_by {
                let _ = writeln!(
                    crate::ui::output::stderr(),
                    "{}",
                    paint(FAINT, format_args!("signed by {key}"))
                );
            }
        }
        stdout::line(pushed)?;
    }
    Ok(exit::OK)
}
