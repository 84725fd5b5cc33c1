//! Rows that notices and answers begin and end: models, tools, side effects, approvals, background
//! tasks and running plugins.

use super::super::row::{Given, RowSubject};
use super::super::short;
use super::words::{effected, fault_text, json, verb_of};
use super::{Now, OpenRowKey};
use crate::protocol::notice::Notice;
use crate::types::approval::Approval;
use crate::types::fault::{CallReport, Fault};
use crate::types::ids::{CallId, TaskName};

impl Now<'_> {
    pub(super) fn model(&mut self, notice: Notice) {
        match notice {
            Notice::ModelCalled { call, ordinal, task, plugin, model, .. } => {
                self.drafts.totals.model_calls += 1;
                let parent = self.of_call(call);
                let what = RowSubject::Model {
                    task,
                    plugin,
                    model,
                    answered_by: None,
                    usage: Default::default(),
                    error: None,
                };
                self.open(OpenRowKey::Model(call, ordinal), parent, what);
            }
            Notice::ModelAnswered {
                call,
                ordinal,
                usage: used,
                model,
                error: failed,
                trouble,
                fallback,
                ..
            } => {
                let totals = &mut self.drafts.totals;
                totals.input_tokens = totals.input_tokens.saturating_add(used.input_tokens);
                totals.cached_input_tokens =
                    totals.cached_input_tokens.saturating_add(used.cached_input_tokens);
                totals.output_tokens = totals.output_tokens.saturating_add(used.output_tokens);
                totals.cost_micro_usd =
                    totals.cost_micro_usd.saturating_add(used.cost_micro_usd.unwrap_or_default());
                totals.unpriced += u64::from(failed.is_none() && used.cost_micro_usd.is_none());
                // The operator's text has more details than the one for the plugin.
                let failed = trouble.map(|trouble| trouble.text).or(failed);
                let failed = failed.map(|text| match fallback {
                    Some(next) => format!("{next} is asked instead: {text}"),
                    None => text,
                });
                self.end(&OpenRowKey::Model(call, ordinal), |what| {
                    if let RowSubject::Model { answered_by, usage, error, .. } = what {
                        (*answered_by, *usage, *error) =
                            (model, used, failed.as_deref().map(short));
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn tool(&mut self, notice: Notice) {
        match notice {
            Notice::ToolCalled { call, task, caller, name, arguments, within, .. } => {
                self.drafts.totals.tool_calls += 1;
                let what = RowSubject::Tool {
                    task,
                    caller: Some(caller),
                    name,
                    arguments: json(&arguments),
                    answer: String::new(),
                    is_error: false,
                    fault: None,
                    sandbox: None,
                };
                let parent = within.map_or_else(|| self.here(), |within| self.of_call(within));
                self.open(OpenRowKey::Call(call), parent, what);
            }
            // The host answered or refused the call: no sandbox ran, but the call still has a row.
            Notice::ToolAnswered {
                call: None, task, name, arguments, content, is_error, ..
            } => {
                self.drafts.totals.tool_calls += 1;
                let arguments = arguments.as_deref().map(json).unwrap_or_default();
                let answer = short(&content);
                let what = RowSubject::Tool {
                    task,
                    caller: None,
                    name,
                    arguments,
                    answer,
                    is_error,
                    fault: None,
                    sandbox: None,
                };
                self.moment(self.here(), what);
            }
            Notice::ToolAnswered {
                call: Some(call),
                content,
                is_error: failed,
                fault: broke,
                report,
                ..
            } => {
                self.drafts.totals.faults += u64::from(broke.is_some());
                let used = self.used(&report);
                if let Some(row) = self.of.open.get(&OpenRowKey::Call(call)).copied() {
                    self.close_at(row, self.end_of(row, &report), false);
                }
                self.end(&OpenRowKey::Call(call), |what| {
                    if let RowSubject::Tool { answer, is_error, fault, sandbox, .. } = what {
                        (*answer, *is_error, *sandbox) = (short(&content), failed, used);
                        *fault = broke.map(fault_text);
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn side_effect(&mut self, notice: Notice) {
        match notice {
            Notice::SideEffectStarted { call, ordinal, plugin, side_effect, overlay } => {
                self.drafts.totals.side_effects += 1;
                let (verb, bytes) = verb_of(&side_effect, overlay);
                let what = RowSubject::SideEffect {
                    plugin,
                    verb,
                    target: short(&side_effect.target()),
                    bytes,
                    came: None,
                };
                let parent = self.of_call(call);
                self.open(OpenRowKey::SideEffect(call, ordinal), parent, what);
            }
            Notice::SideEffectEnded { call, ordinal, answer, .. } => {
                let went = effected(answer);
                self.end(&OpenRowKey::SideEffect(call, ordinal), |what| {
                    if let RowSubject::SideEffect { came, .. } = what {
                        *came = Some(went);
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn approval(&mut self, notice: Notice) {
        match notice {
            Notice::ApprovalAsked { call, .. } if self.is_asked(call) => {}
            Notice::ApprovalAsked { call, request } => {
                self.drafts.totals.approvals += 1;
                let what = RowSubject::Approval {
                    task: request.task,
                    caller: request.caller,
                    tool: request.tool,
                    arguments: json(&request.arguments),
                    source: request.source,
                    given: None,
                    author: None,
                };
                self.open(OpenRowKey::Call(call), self.here(), what);
            }
            Notice::ApprovalGiven { call, approval, author } => {
                let answer = match approval {
                    Approval::Approved => Given::Approved,
                    Approval::Edited { arguments } => Given::Edited { arguments: json(&arguments) },
                    Approval::Refused { reason } => Given::Refused { reason: short(&reason) },
                    Approval::Invalid { message } => Given::Refused { reason: short(&message) },
                };
                self.end(&OpenRowKey::Call(call), |what| {
                    if let RowSubject::Approval { given, author: by, .. } = what {
                        (*given, *by) = (Some(answer), Some(author.to_string()));
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn background(&mut self, notice: Notice) {
        match notice {
            Notice::BackgroundStarted { id, task, room, .. } => {
                self.drafts.totals.background += 1;
                let what = RowSubject::Background {
                    id: id.clone(),
                    task,
                    child: room.clone(),
                    status: None,
                    came: String::new(),
                };
                let row = self.open(OpenRowKey::Background(id), self.here(), what);
                self.drafts.lanes.insert(room, row);
            }
            Notice::BackgroundEnded { ended } => {
                let word = ended.status.as_str().to_owned();
                let text =
                    ended.output.or(ended.error).map(|text| short(&text)).unwrap_or_default();
                self.end(&OpenRowKey::Background(ended.id), |what| {
                    if let RowSubject::Background { status, came, .. } = what {
                        (*status, *came) = (Some(word), text);
                    }
                });
            }
            _ => {}
        }
    }

    /// Ends the row of a call of an agent, a delivery strategy or another plugin.
    pub(super) fn end_call(
        &mut self,
        call: CallId,
        answer: Result<String, &Fault>,
        report: &CallReport,
    ) {
        let is_open = self.of.open.contains_key(&OpenRowKey::Call(call));
        let used = if is_open { self.used(report) } else { None };
        self.drafts.totals.faults += u64::from(is_open && answer.is_err());
        self.end(&OpenRowKey::Call(call), |row| {
            let (RowSubject::Step { says: words, fault, sandbox, .. }
            | RowSubject::Strategy { decided: words, fault, sandbox, .. }
            | RowSubject::PluginQuery { says: words, fault, sandbox, .. }) = row
            else {
                return;
            };
            *sandbox = used;
            match answer {
                Ok(answer) => *words = answer,
                Err(failed) => *fault = Some(fault_text(failed.clone())),
            }
        });
    }

    pub(super) fn end_task(
        &mut self,
        task: &TaskName,
        ended: crate::types::outcome::Status,
        why: &str,
    ) {
        let is_it = |row: &usize| matches!(&self.drafts.rows[*row].what, RowSubject::Task { task: of, .. } if of == task);
        let Some(place) = self.of.tasks.iter().rposition(is_it) else { return };
        for row in self.of.tasks.split_off(place) {
            if let RowSubject::Task { task: of, status, reason, .. } =
                &mut self.drafts.rows[row].what
                && of == task
            {
                (*status, *reason) = (Some(ended), short(why));
            }
            self.close(row, false);
        }
    }
}
