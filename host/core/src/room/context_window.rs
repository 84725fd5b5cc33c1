//! Fits a prompt into its model (L-180). The answer gets less room first. Then the history of the
//! task's agent is shortened permanently, so that the next step finds it short. Sizes are in bytes;
//! images are not counted, because their cost is unknown here. `tool_calls::truncate` computes the
//! cut of each entry.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use serde_json::Value;

use super::histories::open_calls;
use super::{Dialogue, Histories, RoomContext};
use crate::protocol::notice::Notice;
use crate::tool_calls::truncate::{
    self, BYTES_PER_TOKEN, DoesNotFit, HistoryEntry, Limits, MAX_OUTPUT, MIN_OUTPUT, PromptRole,
    RetainedEntry,
};
use crate::types::completion::{DraftMessage, Prompt, PromptPiece, ToolFormat};
use crate::types::ids::{CallId, ModelName, TaskName};
use crate::types::message::{Message, Role, ToolCall};

/// Places that a history lost while a call was pending, in ascending order. The call's plugin
/// refers to places before the loss. One set for each loss, oldest first.
pub(super) type Lost = BTreeMap<CallId, Vec<Vec<usize>>>;

/// A text of an entry that can be cut: that of a message, or of one of its results.
#[derive(Clone, Copy, Debug)]
struct CutText {
    place: usize,
    result: Option<usize>,
}

impl Dialogue<'_> {
    /// Shortens the history as needed, and sets the limit of the answer.
    ///
    /// # Errors
    /// If it cannot be shortened enough. Nothing is changed then.
    pub(super) fn fit_prompt(
        &mut self,
        call: CallId,
        task: Option<&TaskName>,
        model: &ModelName,
        prompt: &mut Prompt,
    ) -> Result<(), DoesNotFit> {
        let Some(setup) = self.cx.setup.models.get(model) else { return Ok(()) };
        let requested_max = prompt.max_output();
        let most = requested_max.into_iter().chain(setup.max_output).min();
        let Some(context) = setup.context else {
            prompt.limit_output(most);
            return Ok(());
        };
        let task = task.and_then(|name| Some((name, self.cx.setup.tasks.get(name)?)));
        let bytes = task.map_or(BYTES_PER_TOKEN, |(_, setup)| setup.bytes_per_token);
        let limits = Limits::new(
            context,
            most.unwrap_or(MAX_OUTPUT),
            setup.min_output.unwrap_or(MIN_OUTPUT),
            bytes,
        );
        let fixed = fixed_tokens(prompt, bytes);
        // The history has a running total, so its entries are only read if it may be too long.
        let histories = prompt
            .pieces
            .iter()
            .filter(|piece| matches!(piece, PromptPiece::History { .. }))
            .count() as u64;
        let of_history = task
            .and_then(|(name, _)| self.histories.memories.get(name))
            .map_or(0, |memory| memory.tokens());
        // An upper bound: the whole history for each piece that uses it.
        let bound = of_history
            .saturating_mul(histories)
            .saturating_add(fixed)
            .saturating_add(limits.max_output);
        if bound <= context {
            prompt.limit_output(most);
            return Ok(());
        }
        let (entries, texts) = entries(prompt, fixed, bytes);
        let strategy = task.map(|(_, setup)| setup.overflow).unwrap_or_default();
        let name = task.map(|(name, _)| name.clone());
        let plan = truncate::fit(&entries, &limits, strategy)?;
        if let Some(name) = name {
            self.shorten(call, &name, &plan.keep, &texts, prompt, bytes);
        }
        // `limits` has a default length, which must not limit a request that sets none.
        prompt.limit_output(if plan.output < limits.max_output { Some(plan.output) } else { most });
        Ok(())
    }

    /// Applies a plan to the agent's history, and to the prompt that contains it.
    fn shorten(
        &mut self,
        call: CallId,
        task: &TaskName,
        keep: &[RetainedEntry],
        texts: &[CutText],
        prompt: &mut Prompt,
        bytes: u32,
    ) {
        // The first entry stands for everything except the history.
        let text_of =
            |index: usize| index.checked_sub(1).and_then(|index| texts.get(index)).copied();
        let mut retained_places = BTreeSet::new();
        let mut cuts = BTreeMap::new();
        for keep in keep {
            let (RetainedEntry::Whole(index) | RetainedEntry::Cut { index, .. }) = *keep;
            let Some(text) = text_of(index) else { continue };
            retained_places.insert(text.place);
            if let RetainedEntry::Cut { tokens, .. } = *keep {
                cuts.entry(text.place).or_insert_with(Vec::new).push((text.result, tokens));
            }
        }
        let removal: BTreeSet<usize> = texts
            .iter()
            .map(|text| text.place)
            .filter(|place| !retained_places.contains(place))
            .collect();
        if cuts.is_empty() && removal.is_empty() {
            return;
        }
        let memory = self.histories.memory(self.cx, task);
        // Cuts refer to the old places, so they precede the removal.
        for (place, texts) in &cuts {
            if let Some(message) = memory.history().get(*place) {
                let shorter = shortened(message, texts, bytes);
                memory.set(*place, Arc::new(shorter));
            }
        }
        self.remove_entries(task, &removal);
        let removal: Vec<usize> = removal.into_iter().collect();
        // The prompt was made before the cut, with the places of then.
        for piece in &mut prompt.pieces {
            if let PromptPiece::History { messages, start, end } = piece {
                *messages = self.histories.history(task);
                (*start, *end) = (moved(*start, &removal), moved(*end, &removal));
            }
        }
        self.cx.notify(Notice::HistoryCut {
            task: task.clone(),
            cut: cuts.len() as u64,
            dropped: removal.len() as u64,
        });
        if !removal.is_empty() {
            self.histories.removals.entry(call).or_default().push(removal);
        }
    }

    /// Removes entries from a history; later ones move up.
    pub(super) fn remove_entries(&mut self, task: &TaskName, removal: &BTreeSet<usize>) {
        let Some(first) = removal.first().copied() else { return };
        let memory = self.histories.memory(self.cx, task);
        // Only entries behind the first removed one move, so only those are written again.
        let tail = memory.split_off(first);
        let mut new_places = Vec::with_capacity(tail.len());
        for (place, message) in (first..).zip(&tail) {
            new_places
                .push((message.seq, (!removal.contains(&place)).then(|| memory.push(message))));
        }
        memory.open_calls = open_calls(memory.history());
        for (seq, place) in new_places {
            if let Some(link) = self
                .histories
                .links
                .get_mut(&seq)
                .filter(|link| link.place.as_ref().is_some_and(|(of, _)| of == task))
            {
                link.place = place.map(|place| (task.clone(), place));
            }
        }
        // An activation begins earlier by the entries that were removed before its first.
        for frame in self.frames.values_mut().filter(|frame| frame.task == *task) {
            let removed = removal.range(..frame.history_start).count();
            frame.lower_history_start(removed);
        }
    }
}

impl Histories {
    /// The estimated tokens of a prompt, its history included.
    pub(super) fn prompt_tokens(
        &self,
        cx: &RoomContext,
        task: Option<&TaskName>,
        prompt: &Prompt,
    ) -> u64 {
        let bytes = task
            .and_then(|name| cx.setup.tasks.get(name))
            .map_or(BYTES_PER_TOKEN, |setup| setup.bytes_per_token);
        let memory = task.and_then(|name| self.memories.get(name));
        let of_piece = |piece: &PromptPiece| match piece {
            // The whole history has a running total.
            PromptPiece::History { messages, start: 0, end }
                if *end == messages.len() && memory.is_some() =>
            {
                memory.map_or(0, |memory| memory.tokens())
            }
            PromptPiece::History { messages, start, end } => {
                let counted = (*start..*end)
                    .filter_map(|place| messages.get(place))
                    .map(|message| tokens_of(message, bytes));
                counted.fold(0, u64::saturating_add)
            }
            _ => 0,
        };
        prompt.pieces.iter().map(of_piece).fold(fixed_tokens(prompt, bytes), u64::saturating_add)
    }

    /// The current place of a history entry that the plugin of this call knows by an older one.
    pub(super) fn place_now(&self, call: CallId, place: usize) -> usize {
        self.removals
            .get(&call)
            .into_iter()
            .flatten()
            .fold(place, |place, removal| moved(place, removal))
    }
}

/// A place after a loss. A lost place becomes that of the next entry.
fn moved(place: usize, removal: &[usize]) -> usize {
    place - removal.partition_point(|index| *index < place)
}

/// The entries of a prompt: one for everything except the history, then those of its histories,
/// with the place of each.
fn entries(prompt: &Prompt, fixed: u64, bytes: u32) -> (Vec<HistoryEntry>, Vec<CutText>) {
    let (mut entries, mut texts) =
        (vec![HistoryEntry { role: PromptRole::System, text: 0, rest: fixed }], Vec::new());
    for piece in &prompt.pieces {
        let PromptPiece::History { messages, start, end } = piece else { continue };
        for (place, message) in
            (*start..*end).filter_map(|place| Some((place, messages.get(place)?)))
        {
            let several = !message.tool_results.is_empty();
            for (index, entry) in entries_of(message, bytes).into_iter().enumerate() {
                entries.push(entry);
                texts.push(CutText { place, result: several.then_some(index) });
            }
        }
    }
    (entries, texts)
}

/// The tokens of a message for a model.
pub(super) fn tokens_of(message: &Message, bytes: u32) -> u64 {
    if message.tool_results.is_empty() {
        return entry_of_text(message, bytes).tokens();
    }
    entries_of(message, bytes)
        .into_iter()
        .fold(0_u64, |sum, entry| sum.saturating_add(entry.tokens()))
}

/// A message as a model reads it: its results if it has any, or else its text and calls.
fn entries_of(message: &Message, bytes: u32) -> Vec<HistoryEntry> {
    if message.tool_results.is_empty() {
        return vec![entry_of_text(message, bytes)];
    }
    let of_result = |result: &crate::types::message::ToolResult| {
        let value = result
            .value
            .as_ref()
            .filter(|_| result.content.is_empty())
            .map(ToString::to_string)
            .unwrap_or_default();
        HistoryEntry {
            role: PromptRole::Tool,
            text: truncate::tokens_of(&result.content, bytes),
            rest: truncate::tokens_of(&value, bytes),
        }
    };
    message.tool_results.iter().map(of_result).collect()
}

/// A message without results as a model reads it.
fn entry_of_text(message: &Message, bytes: u32) -> HistoryEntry {
    let role = match message.sender {
        Role::Llm => PromptRole::Assistant,
        Role::System => PromptRole::System,
        Role::User | Role::Agent => PromptRole::User,
    };
    let text = truncate::tokens_of(&message.as_read(), bytes);
    // The fence is not cut with its text.
    let fence = truncate::tokens_of(&message.in_prompt(), bytes).saturating_sub(text);
    let rest = calls_tokens(&message.tool_calls, bytes).saturating_add(fence);
    HistoryEntry { role, text, rest }
}

fn calls_tokens(calls: &[ToolCall], bytes: u32) -> u64 {
    let of_call = |call: &ToolCall| {
        truncate::tokens_of(&call.name, bytes)
            .saturating_add(truncate::tokens_of_len(json_len(&call.arguments), bytes))
    };
    calls.iter().map(of_call).fold(0, u64::saturating_add)
}

/// The bytes of a value's JSON.
fn json_len(value: &Value) -> u64 {
    // The bytes are counted as they are written, so the text is never built.
    struct Length(u64);

    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut length = Length(0);
    // A value of JSON has a text, and the writer takes all of it.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

/// The tokens of everything except the history: the system text, the plugin's own drafts, and
/// natively offered tools.
fn fixed_tokens(prompt: &Prompt, bytes: u32) -> u64 {
    let of_draft = |draft: &DraftMessage| {
        let results = draft
            .tool_results
            .iter()
            .map(|result| truncate::tokens_of(&result.content, bytes))
            .fold(0, u64::saturating_add);
        truncate::tokens_of(&draft.content, bytes)
            .saturating_add(calls_tokens(&draft.tool_calls, bytes))
            .saturating_add(results)
    };
    let pieces = prompt.pieces.iter().map(|piece| match piece {
        PromptPiece::System { text } => truncate::tokens_of(text, bytes),
        PromptPiece::History { .. } => 0,
        PromptPiece::Draft { draft } => of_draft(draft),
    });
    let offered = prompt.tools.iter().filter(|_| prompt.tool_format == ToolFormat::Native);
    let tools = offered.map(|tool| {
        let length = tool.name.len() + tool.description.len() + tool.input_schema.to_string().len();
        (length as u64).div_ceil(u64::from(bytes.max(1)))
    });
    pieces.chain(tools).fold(0, u64::saturating_add)
}

/// A message with some of its texts cut.
fn shortened(message: &Message, texts: &[(Option<usize>, u64)], bytes: u32) -> Message {
    let mut message = message.clone();
    for (result, tokens) in texts {
        let text = match result {
            None => message.content.as_mut(),
            Some(index) => message.tool_results.get_mut(*index).map(|result| &mut result.content),
        };
        if let Some(text) = text {
            *text = truncate::cut(text, *tokens, bytes);
        }
    }
    message
}
