//! `[w] why`: the rule that asks or the grants of the tool's plugin, the callers, and the tool's
//! reach.

use std::fmt::Write as _;

use anstyle::Style;
use conclave_core::inspect::approval_reasons::asking_causes;
use conclave_core::inspect::permission_summary::rights_table;
use conclave_core::types::approval::{ApprovalRequest, BRIEF_MAX};
use conclave_core::types::ids::PluginName;

use super::request_context::RequestContext;
use crate::ui::screen::columns;
use crate::ui::show::{NAME, foreign, one_line, paint, printable};

/// The explanation as several lines, each safe to print.
pub(super) fn text(request: &ApprovalRequest, about: &RequestContext) -> String {
    let setup = about.setup();
    let mut text = String::new();
    let causes = asking_causes(&setup, request).into_iter().map(|cause| {
        let rule = cause
            .rule
            .map(|rule| format!(":\n{}", foreign::block(&rule, Style::new(), 6, columns())));
        format!("      {}{}", printable(&cause.text), rule.unwrap_or_default())
    });
    text.push_str(&causes.collect::<Vec<_>>().join("\n"));
    let _ = write!(
        text,
        "\n      called by {} in the task {}",
        paint(NAME, &request.caller),
        one_line(request.task.as_str(), 80)
    );
    let led_by = |plugins: &[PluginName], does: &str| match plugins.split_last() {
        Some((last, others)) => {
            let others: Vec<String> =
                others.iter().rev().map(|by| format!(" for {}", paint(NAME, by))).collect();
            format!(", because {} {does} it{}", paint(NAME, last), others.concat())
        }
        None => String::new(),
    };
    text.push_str(&led_by(&request.led_by, "requests"));
    for delegator in request.delegators.iter().rev() {
        let (plugin, task) =
            (paint(NAME, &delegator.plugin), one_line(delegator.task.as_str(), 80));
        let _ = write!(text, "\n      delegated by {plugin} in the task {task}");
        text.push_str(&led_by(&delegator.led_by, "requested"));
        let brief: String = delegator.brief.chars().take(BRIEF_MAX).collect();
        let _ = write!(text, "\n{}", foreign::block(&brief, Style::new(), 6, columns()));
    }
    let Some((name, plugin)) = about.plugin_of(request) else { return text };
    let rows = rights_table(&setup, about.sources());
    let row = rows.into_iter().find(|row| row.plugin == name);
    let may = row
        .map(|row| row.may.join("; "))
        .filter(|may| !may.is_empty())
        .unwrap_or_else(|| "only compute".to_owned());
    let _ = write!(text, "\n      {} may {}", paint(NAME, &name), printable(&may));
    for grant in &plugin.grants.files {
        let folder = std::path::absolute(&grant.dir)
            .map_or_else(|_| grant.dir.clone(), |dir| dir.display().to_string());
        let how = grant.mode.describe().trim_end_matches(" of");
        let _ =
            write!(text, "\n        {} is {} ({how})", printable(&grant.at), printable(&folder));
    }
    if let Some(fetch) = &plugin.grants.fetch {
        let urls: Vec<String> = fetch
            .rules
            .iter()
            .map(|rule| format!("{} {}", rule.methods.join("|"), rule.url))
            .collect();
        let _ = write!(text, "\n        it may send: {}", printable(&urls.join(", ")));
        if !fetch.headers.is_empty() {
            let _ = write!(text, ", with the headers {}", printable(&fetch.headers.join(", ")));
        }
        if !fetch.private.is_empty() {
            let nets: Vec<String> = fetch.private.iter().map(ToString::to_string).collect();
            let _ = write!(text, ", also in the private networks {}", printable(&nets.join(", ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::request_context::testing::{about, request};
    use super::*;

    #[test]
    fn why_names_the_cause_the_caller_and_the_reach() {
        let about = about(Path::new("/srv/notes"), Path::new("/nowhere/conclave.toml"));
        let request = ApprovalRequest { led_by: vec!["sneaky".into()], ..request(json!({})) };
        let text = anstream::adapter::strip_str(&text(&request, &about)).to_string();
        for part in [
            "no rule of the config matches, and notes may write notes/",
            "called by librarian in the task desk, because sneaky requests it",
            "notes may read and write notes/",
            "/notes is /srv/notes (read and write)",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
