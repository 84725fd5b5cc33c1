//! The items of an answer while their events arrive. An event names its item by id and index, and
//! servers get both wrong: ids that change with every event, one index for all items, neither. What
//! an event adds is returned; what repeats earlier events is not.

use crate::http::chat_completions::{CallPiece, FunctionPiece};

/// Maximum items of texts that are told apart. Later ones continue the last.
const TEXTS_MAX: usize = 256;

/// Separates the parts of the reasoning, which are paragraphs or summaries with titles.
pub(super) const GAP: &str = "\n\n";

/// What an item's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Content,
    Refusal,
    Summary,
    Reasoning,
}

/// The names of an event's item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ItemRef<'a> {
    pub id: &'a str,
    pub index: Option<i64>,
}

#[derive(Debug)]
struct TextItem {
    kind: TextKind,
    id: String,
    index: Option<i64>,
    is_complete: bool,
    /// What was returned of it.
    text: String,
    /// The current part, and where it begins in the text.
    part: Option<i64>,
    part_start: usize,
}

#[derive(Debug)]
struct CallItem {
    id: String,
    index: Option<i64>,
    call_id: String,
    name: String,
    is_complete: bool,
    /// What was returned of the arguments.
    arguments: String,
    /// Whether the arguments came with the announcement; deltas may repeat them.
    is_announced: bool,
    /// Whether the item is in the final list.
    is_listed: bool,
}

/// A call as an event has it; any field may be empty.
#[derive(Debug, Default)]
pub(super) struct CallState {
    pub id: String,
    pub call_id: String,
    pub name: String,
    pub arguments: String,
}

#[derive(Debug, Default)]
pub(super) struct AnswerItems {
    texts: Vec<TextItem>,
    calls: Vec<CallItem>,
}

impl AnswerItems {
    /// Adds a piece of a text, and returns what it adds to the answer.
    pub(super) fn handle_text(
        &mut self,
        kind: TextKind,
        item: ItemRef<'_>,
        part: Option<i64>,
        piece: &str,
    ) -> String {
        let slot = self.text_slot(kind, item);
        let gap = self.begin_part(slot, part, piece);
        self.texts[slot].text.push_str(piece);
        gap + piece
    }

    /// Handles the whole text of a part, and returns the rest of it.
    pub(super) fn handle_part(
        &mut self,
        kind: TextKind,
        item: ItemRef<'_>,
        part: Option<i64>,
        full_text: &str,
    ) -> String {
        let slot = self.text_slot(kind, item);
        let gap = self.begin_part(slot, part, full_text);
        let text = &mut self.texts[slot];
        let rest = rest(&text.text[text.part_start..], full_text);
        text.text.push_str(rest);
        gap + rest
    }

    /// Handles the whole text of an item, and returns the rest of it.
    pub(super) fn complete_text(
        &mut self,
        kind: TextKind,
        item: ItemRef<'_>,
        full_text: &str,
    ) -> String {
        // Without ids an item that comes twice is known by its text.
        let is_repeated = |text: &TextItem| {
            let is_nameless = item.id.is_empty() || text.id.is_empty();
            is_nameless && text.is_complete && text.is_at(item.index) && text.text == full_text
        };
        let mut of_kind = self.texts.iter().filter(|text| text.kind == kind).peekable();
        if (full_text.is_empty() && of_kind.peek().is_none()) || of_kind.any(is_repeated) {
            return String::new();
        }
        let slot = self.text_slot(kind, item);
        let is_first = self.texts[slot].text.is_empty();
        let gap = if is_first { self.begin_part(slot, None, full_text) } else { String::new() };
        let text = &mut self.texts[slot];
        let rest = rest(&text.text, full_text);
        text.text.push_str(rest);
        text.is_complete = true;
        gap + rest
    }

    /// Returns the item of a text, a new one if there is none.
    fn text_slot(&mut self, kind: TextKind, item: ItemRef<'_>) -> usize {
        let has_id = |text: &TextItem| !item.id.is_empty() && text.id == item.id;
        let is_open = |text: &TextItem| !text.is_complete && text.is_at(item.index);
        let tests: [&dyn Fn(&TextItem) -> bool; 3] =
            [&|text| has_id(text) && text.is_at(item.index), &has_id, &is_open];
        let latest = |test: &dyn Fn(&TextItem) -> bool| {
            self.texts.iter().rposition(|text| text.kind == kind && test(text))
        };
        let known = tests.into_iter().find_map(latest);
        let last = || self.texts.iter().rposition(|text| text.kind == kind);
        let is_full = self.texts.len() >= TEXTS_MAX;
        if let Some(slot) = known.or_else(|| last().filter(|_| is_full)) {
            return slot;
        }
        self.texts.push(TextItem {
            kind,
            id: item.id.to_owned(),
            index: item.index,
            is_complete: false,
            text: String::new(),
            part: None,
            part_start: 0,
        });
        self.texts.len() - 1
    }

    /// Begins another part if the number has changed. Returns the gap before it.
    fn begin_part(&mut self, slot: usize, part: Option<i64>, text: &str) -> String {
        let is_reasoning =
            |kind| matches!(kind, TextKind::Summary | TextKind::Reasoning) && !text.is_empty();
        let has_others =
            self.texts.iter().enumerate().any(|(other, text)| {
                other != slot && is_reasoning(text.kind) && !text.text.is_empty()
            });
        let item = &mut self.texts[slot];
        let is_other = part.is_some() && item.part.is_some() && part != item.part;
        item.part = part.or(item.part);
        if is_other {
            if is_reasoning(item.kind) && !item.text.is_empty() {
                item.text.push_str(GAP);
                item.part_start = item.text.len();
                return GAP.to_owned();
            }
            item.part_start = item.text.len();
        }
        match item.text.is_empty() && has_others && is_reasoning(item.kind) {
            true => GAP.to_owned(),
            false => String::new(),
        }
    }

    /// Handles the announcement of a call, which may come more than once.
    pub(super) fn announce_call(&mut self, call: &CallState, index: Option<i64>) -> CallPiece {
        let id = |known: &CallItem| !call.id.is_empty() && known.id == call.id;
        let is_nameless = call.id.is_empty() && call.call_id.is_empty();
        let slot = self.latest_call(&[
            &|known| id(known) && known.is_at(index) && !known.is_other(call),
            &|known| known.has_call_id(call) && known.is_at(index) && !known.is_other(call),
            &|known| is_nameless && !known.is_complete && known.is_at(index) && known.is_as(call),
        ]);
        let is_new = slot.is_none();
        let slot = slot.unwrap_or_else(|| self.open_call(&call.id, index));
        let mut piece = self.name_call(slot, call);
        let arguments = arguments_of(call);
        if is_new && !arguments.is_empty() {
            self.calls[slot].is_announced = true;
            self.set_arguments(slot, arguments, &mut piece);
        }
        piece
    }

    /// Adds a piece of a call's arguments.
    pub(super) fn handle_arguments(&mut self, item: ItemRef<'_>, piece: &str) -> CallPiece {
        let slot = self.streamed_call(item);
        let mut call = self.piece(slot);
        if self.calls[slot].is_complete {
            return call;
        }
        if std::mem::take(&mut self.calls[slot].is_announced) {
            self.set_arguments(slot, piece, &mut call);
        } else {
            self.calls[slot].arguments.push_str(piece);
            call.function =
                Some(FunctionPiece { arguments: piece.to_owned(), ..Default::default() });
        }
        call
    }

    /// Handles the whole arguments of a call.
    pub(super) fn finish_arguments(&mut self, item: ItemRef<'_>, state: &CallState) -> CallPiece {
        let slot = self.streamed_call(item);
        self.finish_call(slot, state)
    }

    /// Handles a call that is complete.
    pub(super) fn complete_call(&mut self, call: &CallState, index: Option<i64>) -> CallPiece {
        let id = |known: &CallItem| !call.id.is_empty() && known.id == call.id;
        let is_repeated =
            |known: &CallItem| known.arguments == arguments_of(call) && known.is_as(call);
        let slot = self.latest_call(&[
            &|known| id(known) && known.is_at(index) && !known.is_other(call),
            &|known| id(known) && !known.is_complete && !known.is_other(call),
            &|known| known.has_call_id(call) && known.is_at(index) && !known.is_other(call),
            &|known| known.has_call_id(call) && !known.is_complete && !known.is_other(call),
            &|known| !known.is_complete && known.is_at(index) && !known.is_other(call),
            &|known| known.is_at(index) && !known.is_other(call) && is_repeated(known),
        ]);
        let slot = slot.unwrap_or_else(|| self.open_call(&call.id, index));
        let piece = self.finish_call(slot, call);
        self.calls[slot].is_complete = true;
        piece
    }

    /// Handles a call of the final list, in which ids and positions may differ from the events.
    pub(super) fn list_call(&mut self, call: &CallState) -> CallPiece {
        let id = |known: &CallItem| !call.id.is_empty() && known.id == call.id;
        let by_name = self
            .latest_call(&[
                &|known| !known.is_listed && id(known) && !known.is_other(call),
                &|known| !known.is_listed && known.has_call_id(call) && !known.is_other(call),
            ])
            .or_else(|| self.calls.iter().position(|known| !known.is_listed && known.is_as(call)));
        let slot = by_name.unwrap_or_else(|| self.open_call(&call.id, None));
        self.calls[slot].is_listed = true;
        self.finish_call(slot, call)
    }

    /// The call that the first test finds, the newest first.
    fn latest_call(&self, tests: &[&dyn Fn(&CallItem) -> bool]) -> Option<usize> {
        tests.iter().find_map(|test| self.calls.iter().rposition(test))
    }

    /// Returns the call of an event that has only its id and index.
    fn streamed_call(&mut self, item: ItemRef<'_>) -> usize {
        let id = |known: &CallItem| !item.id.is_empty() && known.id == item.id;
        let slot =
            self.latest_call(&[&|known| id(known) && known.is_at(item.index), &id, &|known| {
                !known.is_complete && known.is_at(item.index)
            }]);
        slot.unwrap_or_else(|| self.open_call(item.id, item.index))
    }

    fn open_call(&mut self, id: &str, index: Option<i64>) -> usize {
        self.calls.push(CallItem {
            id: id.to_owned(),
            index,
            call_id: String::new(),
            name: String::new(),
            is_complete: false,
            arguments: String::new(),
            is_announced: false,
            is_listed: false,
        });
        self.calls.len() - 1
    }

    /// An empty piece of a call.
    fn piece(&self, slot: usize) -> CallPiece {
        CallPiece { index: i64::try_from(slot).ok(), ..CallPiece::default() }
    }

    /// Returns a piece with the names of the call that were not known.
    fn name_call(&mut self, slot: usize, call: &CallState) -> CallPiece {
        let mut piece = self.piece(slot);
        let known = &mut self.calls[slot];
        let call_id = if call.call_id.is_empty() { &call.id } else { &call.call_id };
        if known.call_id.is_empty() && !call_id.is_empty() {
            known.call_id.clone_from(call_id);
            piece.id.clone_from(call_id);
        }
        if known.name.is_empty() && !call.name.is_empty() {
            known.name.clone_from(&call.name);
            piece.function =
                Some(FunctionPiece { name: call.name.clone(), ..FunctionPiece::default() });
        }
        piece
    }

    fn finish_call(&mut self, slot: usize, call: &CallState) -> CallPiece {
        let mut piece = self.name_call(slot, call);
        let (known, full_text) = (&self.calls[slot].arguments, arguments_of(call));
        if !full_text.is_empty() && known != full_text {
            self.set_arguments(slot, full_text, &mut piece);
        }
        self.calls[slot].is_announced = false;
        piece
    }

    /// Makes these the arguments of the call: nothing has run yet, so other ones are replaced.
    fn set_arguments(&mut self, slot: usize, full_text: &str, piece: &mut CallPiece) {
        let known = &mut self.calls[slot].arguments;
        let rest = full_text.strip_prefix(known.as_str());
        piece.is_whole = rest.is_none();
        let arguments = rest.unwrap_or(full_text).to_owned();
        full_text.clone_into(known);
        piece.function.get_or_insert_default().arguments = arguments;
    }
}

impl TextItem {
    fn is_at(&self, index: Option<i64>) -> bool {
        is_same_index(self.index, index)
    }
}

impl CallItem {
    fn is_at(&self, index: Option<i64>) -> bool {
        is_same_index(self.index, index)
    }

    fn has_call_id(&self, call: &CallState) -> bool {
        !call.call_id.is_empty() && self.call_id == call.call_id
    }

    /// Whether the name is the same, as far as it is known.
    fn is_as(&self, call: &CallState) -> bool {
        self.name.is_empty() || call.name.is_empty() || self.name == call.name
    }

    /// Whether the names of the call and of the tool exclude that it is this one.
    fn is_other(&self, call: &CallState) -> bool {
        let has_other_id = !self.call_id.is_empty() && !call.call_id.is_empty();
        !self.is_as(call) || (has_other_id && self.call_id != call.call_id)
    }
}

/// Whether two indexes may be of one item; some servers send none.
fn is_same_index(known: Option<i64>, index: Option<i64>) -> bool {
    known.is_none() || index.is_none() || known == index
}

/// The arguments, empty for an empty object: servers announce a call with one.
fn arguments_of(call: &CallState) -> &str {
    if call.arguments.trim() == "{}" { "" } else { &call.arguments }
}

/// Returns what a whole text adds to its beginning. Other words in place of those that were shown
/// cannot be taken back.
fn rest<'a>(known: &str, full_text: &'a str) -> &'a str {
    full_text.strip_prefix(known).unwrap_or_default()
}
