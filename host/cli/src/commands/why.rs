//! `conclave why EVENT`: an event, its caller, and the decision of each layer. Reads journals and
//! changes nothing.

mod find;
mod folder;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conclave_core::config::Config;
use conclave_core::inspect::explain::{
    AccessQuestion, Explanation, LayerVerdict, explain, explain_denial,
};
use conclave_core::journal::record::ReplayedRecord;
use conclave_core::permissions::grants::Grants;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::Setup;
use conclave_core::types::approval::{Approval, ApprovalRequest, Delegator};
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{PluginName, TaskName};
use serde_json::{Value, json};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::setup;
use crate::ui::show::explanation::{ConfigLines, as_json, lines, print};
use crate::ui::show::listing::Listing;
use crate::ui::show::{BAD, FAINT, GOOD, NAME, ODD, one_line, paint, plural};
use crate::ui::stdout;
use find::{Address, RoomJournal, RunPlaces};
use words::{Asker, CallIndex};

pub(crate) fn why(args: &args::WhyArgs, output: OutputArgs) -> Result<u8, CliError> {
    let address = args.event.as_deref().map(Address::parse).transpose()?;
    let run_places = RunPlaces { journal: args.journal.as_deref(), store: args.store.as_ref() };
    let run = find::run(run_places, address.as_ref())?;
    let config = CurrentConfig::of(args.file.clone().or(run.config.clone()));
    let is_newest = address.is_none();
    match address.and_then(|address| Some((address.seq?, address.child))) {
        Some((seq, child)) => {
            let journal = find::room(&run, &child)?;
            event(&journal, seq, &config, output)
        }
        None => list(&find::rooms(&run)?, is_newest, &config, output),
    }
}

/// Events of the list that refused something.
const BAD_SIGNS: [&str; 6] =
    ["approval-refused", "limit-refused", "gate-blocked", "DENIED", "failed", "refused"];
/// Columns in front of an event's subject in the list.
const BEFORE_WHAT: usize = 43;
/// Columns of a text in a record, at most; `--json` has all of it.
const LONGEST: usize = 240;

/// The grants with paths relative to the folder, so that they do not depend on where the program
/// was started.
fn as_written(grants: &Grants) -> Grants {
    let mut grants = grants.clone();
    grants.files.iter_mut().for_each(|grant| grant.dir.clone_from(&grant.display_path));
    grants
}

/// The current config of the run.
struct CurrentConfig {
    file: PathBuf,
    config: Option<Config>,
}

impl CurrentConfig {
    fn of(file: Option<PathBuf>) -> Self {
        let file = file.unwrap_or_else(|| PathBuf::from(args::CONFIG));
        let config =
            if file.exists() { setup::read_config(&file, &BTreeMap::new()).ok() } else { None };
        Self { file: shorter(&file), config }
    }

    /// The config's lines, if the plugin's grants are still those of the run.
    fn lines(&self, setup: &Setup, plugin: &str) -> ConfigLines<'_> {
        let granted = setup.plugins.get(plugin).map(|plugin| as_written(&plugin.grants));
        let now = self
            .config
            .as_ref()
            .and_then(|config| config.plugins.get(plugin))
            .map(|plugin| as_written(&plugin.grants));
        ConfigLines {
            // Other lines would not be the ones that decided.
            config: self.config.as_ref().filter(|_| granted.is_some() && granted == now),
            file: &self.file,
        }
    }
}

/// The path relative to the current folder if it lies below it.
fn shorter(file: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    file.strip_prefix(&here).map_or_else(|_| file.to_owned(), Path::to_owned)
}

/// A row of the list.
struct ListedEvent {
    room: usize,
    index: usize,
    sign: &'static str,
    what: String,
}

/// Returns everything that was refused, asked and approved, and the decisions of gates and judges.
fn events(rooms: &[RoomJournal]) -> Vec<ListedEvent> {
    let mut events = Vec::new();
    for (room, journal) in rooms.iter().enumerate() {
        let mut requests = words::ApprovalRequests::new();
        for (index, record) in journal.retold.iter().enumerate() {
            for notice in &record.notices {
                if let Notice::ApprovalAsked { call, request } = notice {
                    requests.insert(*call, request.clone());
                }
                let listed = words::in_list(notice, &requests)
                    .filter(|_| !words::repeats_refusal(record, notice));
                events.extend(listed.map(|(sign, what)| ListedEvent { room, index, sign, what }));
            }
        }
    }
    events
}

/// Lists these events with their addresses. Explains a single event at once.
fn list(
    rooms: &[RoomJournal],
    is_newest: bool,
    config: &CurrentConfig,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let events = events(rooms);
    if let ([only], false) = (&events[..], output.json) {
        let journal = &rooms[only.room];
        return event(journal, journal.retold[only.index].record.seq, config, output);
    }
    let began =
        rooms.iter().filter_map(|room| room.retold.first()).map(|first| first.record.at).min();
    let address = |event: &ListedEvent| {
        let journal = &rooms[event.room];
        let record = &journal.retold[event.index].record;
        (format!("{}:{}", journal.id, record.seq), record.at)
    };
    let row = |event: &ListedEvent| {
        let (address, at) = address(event);
        let since = began.map_or(0, |began| at.0.saturating_sub(began.0));
        let style = if BAD_SIGNS.contains(&event.sign) { BAD } else { GOOD };
        #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
        let seconds = since as f64 / 1000.0;
        let sign = paint(style, format_args!("{:<18}", event.sign));
        let what = one_line(&event.what, LONGEST);
        stdout::hung(BEFORE_WHAT, format!("{address:<14} {seconds:>7.2}  {sign} {what}"))
    };
    let item = |event: &ListedEvent| {
        let (address, at) = address(event);
        json!({ "type": "event", "event": address, "at": at, "kind": event.sign, "message": event.what })
    };
    // All calls of a client are listed as one run.
    let run = rooms.first().map_or_else(String::new, |room| room.id.to_string());
    let is_one = rooms.iter().all(|room| room.id.as_str().starts_with(run.as_str()));
    let run = if is_one { run.as_str() } else { run.split('.').next().unwrap_or_default() };
    let start = "a start that was refused stores no run; conclave check explains it";
    let start = if is_newest { format!("\n{start}") } else { String::new() };
    let count = plural(events.len() as u64, "event", "events");
    Listing {
        rows: events.iter().map(row),
        json: events.iter().map(item),
        empty: format!("run {run}: no denials, approvals or decisions of gates and judges{start}"),
        notes: vec![format!("run {run}: {count}; conclave why EVENT explains one")],
    }
    .print(output)
}

/// Explains one record: its kind, its caller, and each layer's decision on everything that it
/// caused.
fn event(
    journal: &RoomJournal,
    seq: u64,
    config: &CurrentConfig,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let index = usize::try_from(seq).ok().filter(|index| *index < journal.retold.len());
    let Some(index) = index else {
        let last = journal.retold.len().saturating_sub(1);
        return Err(CliError::usage(format!(
            "{} has no record {seq}; its last is {last}",
            journal.id
        )));
    };
    let calls = CallIndex::of(&journal.retold[..=index]);
    let record = &journal.retold[index];
    let explained = explanations(record, &calls);
    let address = format!("{}:{seq}", journal.id);
    if output.json {
        let explained = explained.iter().map(|(asker, explanation)| {
            let mut value = as_json(explanation, &lines_of(record, config, explanation));
            value["requested_by"] = json!(asker);
            value
        });
        let explained: Vec<Value> = explained.collect();
        let on_behalf = &record.record.principal;
        stdout::json(json!({
            "type": "why",
            "event": address,
            "principal": on_behalf,
            "record": without_setup(record),
            "notices": record.notices,
            "explanations": explained,
        }))?;
        return Ok(exit::OK);
    }
    let at = format!("on behalf of {}", record.record.principal.0);
    let head = one_line(&words::head(record, &calls), LONGEST);
    stdout::styled(format!(
        "{} {head}  {}",
        paint(NAME, &address),
        paint(FAINT, one_line(&at, 80))
    ))?;
    for line in words::lines(record) {
        stdout::styled(format!("  {}", one_line(&line, LONGEST)))?;
    }
    for (asker, explanation) in &explained {
        let head = match explanation.verdict {
            LayerVerdict::No => paint(BAD, "DENIED"),
            LayerVerdict::Ask => paint(ODD, "needs approval"),
            LayerVerdict::Yes | LayerVerdict::NotReached => paint(GOOD, "allowed"),
        };
        let about = format!(
            "\n{head} {}: {}  {}",
            explanation.capability,
            one_line(&explanation.target, 200),
            paint(FAINT, asker)
        );
        print(&lines(explanation, &about, &lines_of(record, config, explanation)))?;
    }
    Ok(exit::OK)
}

fn lines_of<'a>(
    record: &ReplayedRecord,
    config: &'a CurrentConfig,
    explanation: &Explanation,
) -> ConfigLines<'a> {
    match &record.setup {
        Some(setup) => config.lines(setup, explanation.plugin.as_str()),
        None => ConfigLines { config: None, file: &config.file },
    }
}

/// The layers of each denial and of each allowed request.
fn explanations(replayed: &ReplayedRecord, calls: &CallIndex) -> Vec<(String, Explanation)> {
    let Some(setup) = &replayed.setup else { return Vec::new() };
    // An action has no layers but its executor's.
    let of_request = |request: &ApprovalRequest| {
        let led_by = (&request.delegators[..], &request.led_by[..]);
        let caller = (&request.task, &request.caller);
        explain_call(setup, caller, led_by, &request.tool, &request.arguments)
            .filter(|_| request.executor.is_none())
    };
    let explain_one = |notice: &Notice| -> Option<(Asker, Explanation)> {
        match notice {
            Notice::Denied { call, plugin, record } => {
                let asker = calls.asker(*call, plugin, &replayed.record.event);
                let explanation = explain_denial(setup, plugin, record, asker.task.as_ref());
                Some((asker, explanation))
            }
            Notice::ToolCalled { task, caller, name, arguments, led_by, .. } => {
                let tool = admitted(setup, task, name);
                explain_call(setup, (task, caller), (&[], &led_by[..]), &tool, arguments)
            }
            Notice::ApprovalAsked { request, .. } => of_request(request),
            Notice::ApprovalGiven {
                call,
                approval: Approval::Refused { .. } | Approval::Invalid { .. },
                ..
            } => of_request(calls.request(*call)?),
            Notice::ModelCalled { task, plugin, model, .. } => {
                let asker = Asker { plugin: plugin.clone(), task: task.clone(), tool: None };
                let question = AccessQuestion {
                    task: task.clone(),
                    ..AccessQuestion::new(plugin.as_str(), Capability::Model).of(model.as_str())
                };
                Some((asker, explain(setup, &question).ok()?))
            }
            Notice::SideEffectStarted { call, plugin, side_effect, .. } => {
                let asker = calls.asker(Some(*call), plugin, &replayed.record.event);
                let question = AccessQuestion {
                    task: asker.task.clone(),
                    ..words::question(plugin, side_effect)
                };
                Some((asker, explain(setup, &question).ok()?))
            }
            _ => None,
        }
    };
    replayed
        .notices
        .iter()
        .filter_map(explain_one)
        .map(|(asker, explanation)| (asker.to_string(), explanation))
        .collect()
}

/// The caller of a tool, and each layer's decision on the call.
fn explain_call(
    setup: &Setup,
    (task, caller): (&TaskName, &PluginName),
    (delegators, led_by): (&[Delegator], &[PluginName]),
    tool: &str,
    arguments: &Value,
) -> Option<(Asker, Explanation)> {
    let asker = Asker { plugin: caller.clone(), task: Some(task.clone()), tool: None };
    let question = AccessQuestion {
        arguments: arguments.clone(),
        task: Some(task.clone()),
        delegators: delegators.to_vec(),
        led_by: led_by.to_vec(),
        ..AccessQuestion::new(caller.as_str(), Capability::Tools).of(tool)
    };
    Some((asker, explain(setup, &question).ok()?))
}

/// `plugin.tool` for the name that the agent sees.
fn admitted(setup: &Setup, task: &TaskName, name: &str) -> String {
    let tool = setup.tasks.get(task).and_then(|task| task.toolbox.get(name));
    tool.and_then(|tool| tool.target.admitted_name()).unwrap_or_else(|| name.to_owned())
}

/// The record as JSON without the setup, which is in the journal.
fn without_setup(record: &ReplayedRecord) -> Value {
    let mut record = json!(record.record);
    if let Some(fields) = record.as_object_mut() {
        fields.remove("setup");
    }
    record
}
