//! `conclave add mcp:COMMAND`: starts a server, confined to the grants that the user gave, shows its
//! tools and the addresses that it was refused meanwhile, and adds it with the grants that the user
//! confirmed. Which files it was refused, the kernel reports to the server alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::config::Config;
use conclave_core::config::edit::{Fragment, GrantText, capability_of, proposed_name};
use conclave_core::permissions::fetch::{UrlPattern, target};
use conclave_core::types::capability::Capability;
use conclave_core::types::text::read_command;
use conclave_core::types::wording::quoted;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::servers::{
    ServerFailure, ServerLauncher, ServerPlugin, ServerStart, ToolServers,
};
use conclave_runtime::{PrepareError, Prepared};
use serde_json::json;

use super::{command_for, fragments, questions, require_new};
use crate::args::{Add, OutputArgs};
use crate::commands::call;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::config_file::{ConfigFile, tell};
use crate::state::folders::{FolderGuard, check_by_host};
use crate::state::setup;
use crate::ui::ask;
use crate::ui::show::{FAINT, NAME, ODD, one_line, paint, show_path};
use crate::ui::stderr;

/// Columns of a server's text.
const TEXT: usize = 200;
/// Tools that are listed.
const TOOLS: usize = 20;
/// A grant that covers no real address. With it the server gets a proxy, whose refusals are the
/// addresses that it asks for.
const NOTHING: &str = "fetch = [\"https://nothing.invalid/\"]";

pub(super) async fn add(args: &Add, command: &str, output: OutputArgs) -> Result<u8, CliError> {
    let file = ConfigFile::open(&args.file)?;
    let mut edit = file.edit()?;
    let name = args.name.clone().or_else(|| name_of(command)).ok_or_else(|| {
        CliError::usage("the command names no plugin").hint("name the plugin with --as NAME")
    })?;
    require_new(args, &edit.plugins(), &name)?;
    let quiet = output.result_only();
    let asks = args.grants.is_empty() && !args.no_questions && !quiet && ask::is_user_there();
    let mut chosen = fragments(&args.grants)?;
    if asks {
        let folders = questions::folders_of(&folders_in(command, file.folder()));
        chosen.extend(folders.and_then(|value| Fragment::parse(&format!("files = {value}")).ok()));
    }
    let trial = Trial::start(&name, &args.source, &chosen, file.folder()).await?;
    if !quiet {
        trial.show(&name);
    }
    let tools = trial.tools(args)?;
    if asks {
        let urls = questions::tunnels(&trial.refused_urls);
        chosen.extend(urls.and_then(|value| Fragment::parse(&format!("fetch = {value}")).ok()));
    }
    let before = Config::parse(&show_path(&args.file), "", edit.text()).ok();
    let comment =
        [format!("an MCP server, confined to these grants; as added: {} tools", tools.len())];
    edit.add_plugin(&name, &args.source, &comment)?;
    chosen.iter().try_for_each(|fragment| edit.grant(&name, fragment))?;
    let edited = edit.finish()?;
    let guard = FolderGuard::new(file.folder(), args.yes || asks);
    guard.check(&name, &chosen, before.as_ref(), &edited)?;
    check_by_host(&args.file, &name, before.as_ref(), &edited)?;
    file.write(&edited)?;
    let refused_urls = &trial.refused_urls;
    tell(
        &file,
        &edited,
        json!({ "plugin": name, "tools": tools, "refused": refused_urls }),
        output,
    )?;
    if !quiet {
        let lines = "`conclave plugin lock` pins its tools; `[[policy]]` lets them run unasked";
        stderr::line(format_args!("  {}", paint(FAINT, lines)));
    }
    Ok(exit::OK)
}

/// The name to propose for a server: of its package, its script or its program.
fn name_of(command: &str) -> Option<String> {
    let (program, arguments) = read_command(command)?;
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let runs_another = ["npx", "uvx", "node", "bun", "deno"].contains(&base(&program).as_str())
        || base(&program).starts_with("python");
    let script = arguments.iter().find(|word| !word.starts_with('-')).filter(|_| runs_another);
    let word = base(script.unwrap_or(&program));
    let word = word.split('@').next().unwrap_or(&word);
    let stem = word.rsplit_once('.').map_or(word, |(stem, _)| stem);
    let short = stem.trim_start_matches("mcp-").trim_start_matches("server-");
    proposed_name(if short.is_empty() { stem } else { short })
}

/// The folders of the machine that a command names.
fn folders_in(command: &str, folder: &Path) -> Vec<String> {
    let arguments = read_command(command).map(|(_, arguments)| arguments).unwrap_or_default();
    let is_folder = |word: &String| word.contains('/') && folder.join(word).is_dir();
    arguments.into_iter().filter(is_folder).collect()
}

/// A server that was started to look at it.
struct Trial {
    started: Result<Prepared, PrepareError>,
    /// The addresses that it was refused, as patterns of their hosts.
    refused_urls: BTreeSet<String>,
}

impl Trial {
    /// Starts a server with these grants alone.
    async fn start(
        name: &str,
        source: &str,
        grants: &[Fragment],
        folder: &Path,
    ) -> Result<Self, CliError> {
        let mut grants = grants.to_vec();
        let has_network = grants.iter().any(|fragment| fragment.grants.iter().any(is_fetch));
        if !has_network {
            grants.extend(Fragment::parse(NOTHING).ok());
        }
        let config = call::of_source(name, source, &grants, folder)?;
        let launcher = Arc::<Mutex<Option<ServerLauncher>>>::default();
        let host = call::host_with(|options| {
            options.servers = options.servers.take().map(|client| {
                Arc::new(WatchedServers { client, launcher: Arc::clone(&launcher) }) as _
            });
        })?;
        let started = host.prepare(&config, &setup::follow(true)).await;
        let launcher = launcher.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = launcher.as_ref().map(ServerLauncher::refusals).unwrap_or_default();
        let refused_urls = refused.iter().filter_map(|record| pattern_of(&record.denial.target));
        Ok(Self { started, refused_urls: refused_urls.collect() })
    }

    /// The names of its tools.
    fn tools(&self, args: &Add) -> Result<Vec<String>, CliError> {
        match &self.started {
            Ok(prepared) => Ok(prepared.tools()),
            Err(
                PrepareError::Config(problems)
                | PrepareError::Keys(problems)
                | PrepareError::Plugins(problems),
            ) => {
                let lines: Vec<&str> =
                    problems.0.iter().map(|problem| problem.what.as_str()).collect();
                let mut hints: Vec<String> =
                    problems.0.iter().filter_map(|problem| problem.remedy.clone()).collect();
                let grant =
                    "--grant 'files = [{ dir = \"…\", at = \"/folder\", mode = \"read\" }]'";
                hints.push(format!(
                    "it started with the grants of this command alone; give it what it needs: {} {grant}",
                    command_for(args, &args.source)
                ));
                Err(CliError::plugin(lines.join("\n")).hint(hints.join("\n      ")))
            }
        }
    }

    fn show(&self, name: &str) {
        if let Ok(prepared) = &self.started {
            let tools = prepared.tools();
            stderr::line(format_args!("{} has {} tools", paint(NAME, name), tools.len()));
            for tool in tools.iter().take(TOOLS) {
                let text = prepared.setup().tool(tool).map(|(_, tool)| tool.description.clone());
                let text = one_line(&text.unwrap_or_default(), TEXT.saturating_sub(tool.len()));
                stderr::line(format_args!("  {}  {text}", one_line(tool, TEXT)));
            }
            if tools.len() > TOOLS {
                stderr::line(format_args!("  and {} more", tools.len() - TOOLS));
            }
        }
        for url in &self.refused_urls {
            let what = format!("while it started, it was refused {}", one_line(url, TEXT));
            stderr::styled(ODD, what);
        }
        let unseen = "which files it was refused, the kernel tells nobody but the server";
        stderr::line(format_args!("  {}\n", paint(FAINT, unseen)));
    }
}

fn is_fetch(grant: &GrantText) -> bool {
    capability_of(grant) == Some(Capability::Fetch)
}

/// The pattern of all of a host, by an address there.
fn pattern_of(url: &str) -> Option<String> {
    let url = target(url).ok()?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let pattern = format!("{}://{}{port}/*", url.scheme(), url.host_str()?);
    UrlPattern::parse(&pattern).is_ok().then_some(pattern)
}

/// The client of servers, which remembers the launcher of the one that it connects to.
struct WatchedServers {
    client: Arc<dyn ToolServers>,
    launcher: Arc<Mutex<Option<ServerLauncher>>>,
}

impl ToolServers for WatchedServers {
    fn connect(
        &self,
        start: ServerStart,
    ) -> BoxFuture<'static, Result<ServerPlugin, ServerFailure>> {
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        launcher.clone_from(&start.launcher);
        self.client.connect(start)
    }
}

/// Returns the grant of tunnels to these hosts.
pub(super) fn tunnels(urls: &[String]) -> String {
    let rule = |url: &String| match url.starts_with("https:") {
        true => format!("{{ url = {}, methods = [\"CONNECT\"] }}", quoted(url)),
        false => quoted(url),
    };
    format!("[{}]", urls.iter().map(rule).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_after_what_runs() {
        for (command, name) in [
            ("npx -y @modelcontextprotocol/server-filesystem@1.2 /data", "filesystem"),
            ("uvx mcp-server-git", "git"),
            ("python3 /opt/tickets.py --stdio", "tickets"),
            ("/opt/bin/github-mcp-server stdio", "github-mcp-server"),
        ] {
            assert_eq!(name_of(command).as_deref(), Some(name), "{command}");
        }
        assert_eq!(name_of("'open"), None);
    }

    #[test]
    fn the_grant_of_a_host_is_of_all_of_it() {
        assert_eq!(pattern_of("https://a.example/").as_deref(), Some("https://a.example/*"));
        assert_eq!(pattern_of("http://a.example:81/x?y").as_deref(), Some("http://a.example:81/*"));
        assert_eq!(
            tunnels(&["https://a.example/*".to_owned(), "http://b.example/*".to_owned()]),
            r#"[{ url = "https://a.example/*", methods = ["CONNECT"] }, "http://b.example/*"]"#
        );
    }
}
