//! Arranges messages in the order that providers require: every call has its results directly after
//! it, and every result has a call. A truncated history, or one that a plugin drafted, may violate
//! that. Calls get new ids here, so that ids need not be trusted.

use std::borrow::Cow;
use std::collections::HashMap;

use conclave_core::types::completion::{Prompt, PromptPiece};
use conclave_core::types::message::{Blob, Role, ToolCall, ToolResult};

/// Replaces a result that the prompt lacks.
pub(crate) const NO_RESULT: &str = "There is no result of this call.";

/// The user's message of a prompt that has a system text only, for APIs in which that text stands
/// beside the messages.
pub(crate) const BEGIN: &str = "Begin.";

/// A message in its wire form, borrowed from the prompt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutgoingMessage<'a> {
    Said {
        role: &'static str,
        text: Option<Cow<'a, str>>,
        attachments: &'a [Blob],
        /// Whether the attachments come from elsewhere than the user.
        is_data: bool,
    },
    Called {
        text: Option<Cow<'a, str>>,
        /// The calls with their numbers in the request.
        calls: Vec<(usize, &'a ToolCall)>,
    },
    /// The result of the call with this number; `None` if it is missing.
    Answered { number: usize, result: Option<&'a ToolResult> },
    /// A result without its call in the prompt.
    Orphaned { result: &'a ToolResult },
}

/// A piece of the prompt, or one of its messages.
#[derive(Clone, Debug)]
struct PromptTurn<'a> {
    role: Role,
    text: Option<Cow<'a, str>>,
    calls: &'a [ToolCall],
    results: &'a [ToolResult],
    attachments: &'a [Blob],
    /// Whether the attachments come from elsewhere than the user.
    is_data: bool,
}

/// The position of a call: its turn, and its index in the turn.
type Place = (usize, usize);

/// The whole prompt in an order that every provider accepts.
pub(crate) fn arrange(prompt: &Prompt) -> Vec<OutgoingMessage<'_>> {
    let turns = turns(prompt);
    let (answers, orphans) = pair(&turns);
    let mut orphans = orphans.into_iter().peekable();
    let mut outgoing = Vec::with_capacity(turns.len());
    let mut number = 0;
    for (index, turn) in turns.iter().enumerate() {
        // Results without a call stay at their position in the history.
        while let Some((_, result)) = orphans.next_if(|(at, _)| *at == index) {
            outgoing.push(OutgoingMessage::Orphaned { result });
        }
        if turn.calls.is_empty() {
            outgoing.extend(outgoing_message(turn));
            continue;
        }
        let first = number;
        number += turn.calls.len();
        outgoing.push(OutgoingMessage::Called {
            text: turn.text.clone(),
            calls: (first..).zip(turn.calls).collect(),
        });
        outgoing.extend((0..turn.calls.len()).map(|call| {
            let result = answers.get(&(index, call)).copied();
            OutgoingMessage::Answered { number: first + call, result }
        }));
        outgoing.extend(attached(turn));
    }
    outgoing
}

fn turns(prompt: &Prompt) -> Vec<PromptTurn<'_>> {
    let mut turns = Vec::new();
    for piece in &prompt.pieces {
        match piece {
            PromptPiece::System { text } => {
                turns.push(PromptTurn {
                    role: Role::System,
                    text: Some(Cow::Borrowed(text)),
                    calls: &[],
                    results: &[],
                    attachments: &[],
                    is_data: false,
                });
            }
            PromptPiece::History { messages, start, end } => {
                turns.extend(
                    (*start..(*end).min(messages.len()))
                        .filter_map(|index| messages.get(index))
                        .map(|message| PromptTurn {
                            role: message.sender,
                            // The host's message about results repeats them in its text.
                            text: Some(message.in_prompt())
                                .filter(|_| message.tool_results.is_empty()),
                            calls: &message.tool_calls,
                            results: &message.tool_results,
                            attachments: &message.attachments,
                            is_data: message.sender != Role::User || message.is_data(),
                        }),
                );
            }
            PromptPiece::Draft { draft } => turns.push(PromptTurn {
                role: draft.role,
                text: Some(Cow::Borrowed(&draft.content)),
                calls: &draft.tool_calls,
                results: &draft.tool_results,
                attachments: &[],
                is_data: false,
            }),
        }
    }
    for turn in &mut turns {
        turn.text = turn.text.take().filter(|text| !text.is_empty());
    }
    turns
}

/// The message of a turn without calls; `None` if it is empty.
fn outgoing_message<'a>(turn: &PromptTurn<'a>) -> Option<OutgoingMessage<'a>> {
    let role = match turn.role {
        Role::Llm => "assistant",
        Role::System => "system",
        Role::User | Role::Agent => "user",
    };
    // Only a user's message can have attachments.
    match (turn.text.clone(), role) {
        (None, _) => attached(turn),
        (text, "user") => Some(OutgoingMessage::Said {
            role,
            text,
            attachments: turn.attachments,
            is_data: turn.is_data,
        }),
        (text, _) => Some(OutgoingMessage::Said { role, text, attachments: &[], is_data: false }),
    }
}

fn attached<'a>(turn: &PromptTurn<'a>) -> Option<OutgoingMessage<'a>> {
    (!turn.attachments.is_empty()).then_some(OutgoingMessage::Said {
        role: "user",
        text: None,
        attachments: turn.attachments,
        is_data: turn.is_data,
    })
}

/// The call of every result. Ids may repeat, so a result belongs to the newest open call with its
/// id and name.
fn pair<'a>(
    turns: &[PromptTurn<'a>],
) -> (HashMap<Place, &'a ToolResult>, Vec<(usize, &'a ToolResult)>) {
    let mut open = OpenCalls::default();
    let (mut answers, mut orphans) = (HashMap::new(), Vec::new());
    for (index, turn) in turns.iter().enumerate() {
        for result in turn.results {
            match open.take(result, |place| answers.contains_key(place)) {
                Some(place) => drop(answers.insert(place, result)),
                None => orphans.push((index, result)),
            }
        }
        // In reverse, so that the first call of a message is the newest.
        turn.calls
            .iter()
            .enumerate()
            .rev()
            .for_each(|(position, call)| open.add(call, (index, position)));
    }
    (answers, orphans)
}

/// The calls so far, in three indexes. A call that was found through one is skipped in the others,
/// so the cost of a search does not grow with the history.
#[derive(Default)]
struct OpenCalls<'a> {
    exact: HashMap<(&'a str, &'a str), Vec<Place>>,
    by_id: HashMap<&'a str, Vec<Place>>,
    by_name: HashMap<&'a str, Vec<Place>>,
}

impl<'a> OpenCalls<'a> {
    fn add(&mut self, call: &'a ToolCall, place: Place) {
        self.exact.entry((&call.id, &call.name)).or_default().push(place);
        self.by_id.entry(&call.id).or_default().push(place);
        self.by_name.entry(&call.name).or_default().push(place);
    }

    fn take(
        &mut self,
        result: &'a ToolResult,
        is_answered: impl Fn(&Place) -> bool,
    ) -> Option<Place> {
        let newest = |calls: Option<&mut Vec<Place>>| {
            let calls = calls?;
            std::iter::from_fn(|| calls.pop()).find(|place| !is_answered(place))
        };
        let (id, name) = (result.call_id.as_str(), result.name.as_str());
        newest(self.exact.get_mut(&(id, name))).or_else(|| match id {
            // A result without an id answers the newest open call of its tool. One with an unknown
            // id answers no call.
            "" => newest(self.by_name.get_mut(name)),
            _ => newest(self.by_id.get_mut(id)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use conclave_core::types::action::Action;

    use conclave_core::types::completion::{
        DraftMessage, Prompt, PromptPiece, ToolChoice, ToolFormat,
    };
    use conclave_core::types::history::History;
    use conclave_core::types::message::{Message, Role, ToolCall, ToolResult};
    use proptest::prelude::*;
    use serde_json::json;

    use super::{OutgoingMessage, arrange};

    fn prompt(messages: &[Message], start: usize) -> Prompt {
        let mut history = History::default();
        messages.iter().enumerate().for_each(|(seq, message)| {
            history.push(&Arc::new(Message { seq: seq as u64, ..message.clone() }))
        });
        Prompt {
            pieces: vec![PromptPiece::History { messages: history, start, end: messages.len() }],
            tools: Vec::new(),
            tool_format: ToolFormat::Native,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            stream: false,
            options: Vec::new(),
        }
    }

    fn text(sender: Role, text: &str) -> Message {
        let mut message = Message::new(0, sender, "x");
        message.content = Some(text.to_owned());
        message
    }

    fn calls(calls: &[(&str, &str)]) -> Message {
        let mut message = Message::new(0, Role::Llm, "x");
        message.tool_calls = calls
            .iter()
            .map(|(id, name)| ToolCall { id: (*id).to_owned(), ..ToolCall::new(*name, json!({})) })
            .collect();
        message
    }

    fn results(results: &[(&str, &str, &str)]) -> Message {
        let mut message = text(Role::Agent, "what the results say");
        message.tool_results = results
            .iter()
            .map(|(id, name, content)| ToolResult {
                call_id: (*id).to_owned(),
                name: (*name).to_owned(),
                content: (*content).to_owned(),
                value: None,
                is_error: false,
            })
            .collect();
        message
    }

    /// One line per message, such as `call 0 a, 1 b` or `0 = text`.
    fn outgoing_lines(messages: &[Message], start: usize) -> Vec<String> {
        let prompt = prompt(messages, start);
        let line = |outgoing: &OutgoingMessage<'_>| match outgoing {
            OutgoingMessage::Said { role, text, .. } => {
                format!("{role}: {}", text.as_deref().unwrap_or_default())
            }
            OutgoingMessage::Called { calls, .. } => {
                let calls: Vec<String> =
                    calls.iter().map(|(number, call)| format!("{number} {}", call.name)).collect();
                format!("call {}", calls.join(", "))
            }
            OutgoingMessage::Answered { number, result } => {
                format!("{number} = {}", result.map_or("missing", |result| result.content.as_str()))
            }
            OutgoingMessage::Orphaned { result } => format!("orphan {}", result.content),
        };
        arrange(&prompt).iter().map(line).collect()
    }

    #[test]
    fn results_follow_their_calls_and_what_came_between_follows_them() {
        let history = [
            text(Role::System, "be good"),
            text(Role::User, "do"),
            calls(&[("1", "a"), ("2", "b")]),
            text(Role::User, "hurry"),
            results(&[("2", "b", "B")]),
            results(&[("1", "a", "A")]),
            text(Role::Llm, "done"),
        ];
        assert_eq!(
            outgoing_lines(&history, 0),
            [
                "system: be good",
                "user: do",
                "call 0 a, 1 b",
                "0 = A",
                "1 = B",
                "user: hurry",
                "assistant: done"
            ]
        );
    }

    #[test]
    fn a_history_cut_between_call_and_result_stays_valid() {
        let history = [calls(&[("1", "a")]), results(&[("1", "a", "A")]), calls(&[("2", "b")])];
        assert_eq!(outgoing_lines(&history, 1), ["orphan A", "call 0 b", "0 = missing"]);
    }

    #[test]
    fn an_id_used_twice_means_the_newest_open_call() {
        let history = [
            calls(&[("1", "a")]),
            results(&[("1", "a", "first")]),
            calls(&[("1", "a")]),
            calls(&[("1", "a")]),
            results(&[("1", "a", "third")]),
            results(&[("1", "a", "second")]),
            results(&[("1", "a", "fourth")]),
        ];
        let expected = [
            "call 0 a",
            "0 = first",
            "call 1 a",
            "1 = second",
            "call 2 a",
            "2 = third",
            "orphan fourth",
        ];
        assert_eq!(outgoing_lines(&history, 0), expected);
    }

    #[test]
    fn ids_that_are_missing_or_the_same_are_told_apart_by_name_then_by_order() {
        let history = [
            calls(&[("", "a"), ("", "b"), ("", "b")]),
            results(&[("", "b", "B1"), ("", "b", "B2"), ("", "a", "A")]),
        ];
        assert_eq!(
            outgoing_lines(&history, 0),
            ["call 0 a, 1 b, 2 b", "0 = A", "1 = B1", "2 = B2"]
        );
        let history =
            [calls(&[("x", "a"), ("y", "b")]), results(&[("", "b", "B"), ("z", "a", "foreign")])];
        assert_eq!(
            outgoing_lines(&history, 0),
            ["call 0 a, 1 b", "0 = missing", "1 = B", "orphan foreign"]
        );
    }

    #[test]
    fn what_an_agent_did_is_read_as_it_would_be_written() {
        let mut did = Message::new(0, Role::Llm, "x");
        did.action = Some(Action::Read { path: "/a".to_owned(), start: 0, end: -1 });
        let lines = outgoing_lines(&[did, text(Role::Agent, "what stands in it")], 0);
        assert!(
            lines[0].starts_with("assistant: {\"action\":\"read\",\"args\":{")
                && lines[0].contains("\"path\":\"/a\""),
            "{lines:?}"
        );
        assert_eq!(lines[1], "user: what stands in it");
    }

    #[test]
    fn empty_messages_are_left_out_and_drafts_keep_their_text() {
        let mut prompt = prompt(&[text(Role::User, ""), Message::new(0, Role::Llm, "x")], 0);
        let (calls, results) =
            (calls(&[("1", "a")]).tool_calls, results(&[("1", "a", "A")]).tool_results);
        let draft = |role, content: &str, tool_calls, tool_results| PromptPiece::Draft {
            draft: DraftMessage { role, content: content.to_owned(), tool_calls, tool_results },
        };
        prompt.pieces.push(draft(Role::Llm, "let me see", calls, Vec::new()));
        prompt.pieces.push(draft(Role::Agent, "and now?", Vec::new(), results));
        let outgoing = arrange(&prompt);
        assert!(matches!(
            &outgoing[0],
            OutgoingMessage::Called { text: Some(Cow::Borrowed("let me see")), .. }
        ));
        assert!(matches!(&outgoing[1], OutgoingMessage::Answered { result: Some(_), .. }));
        assert!(matches!(
            &outgoing[2],
            OutgoingMessage::Said { role: "user", text: Some(Cow::Borrowed("and now?")), .. }
        ));
        assert_eq!(outgoing.len(), 3);
    }

    proptest! {
        #[test]
        fn any_history_becomes_a_valid_sequence(
            seeds in prop::collection::vec((0..4u8, prop::collection::vec((0..3u8, 0..2u8), 0..4)), 0..12),
            start in 0..4usize,
        ) {
            let name = |seed: u8| ["", "1", "2"][usize::from(seed)];
            let history: Vec<Message> = seeds.iter().map(|(kind, items)| {
                let calls_of: Vec<(&str, &str)> = items.iter().map(|(id, tool)| (name(*id), name(*tool + 1))).collect();
                let results_of: Vec<(&str, &str, &str)> = calls_of.iter().map(|(id, tool)| (*id, *tool, "r")).collect();
                match kind {
                    0 => calls(&calls_of),
                    1 => results(&results_of),
                    2 => text(Role::User, "u"),
                    _ => text(Role::Llm, "l"),
                }
            }).collect();
            let prompt = prompt(&history, start);
            let window = &history[start.min(history.len())..];
            let outgoing = arrange(&prompt);
            let mut expected = 0;
            let mut due = 0..0;
            let mut results = 0;
            for message in &outgoing {
                if let OutgoingMessage::Answered { number, result } = message {
                    prop_assert_eq!(Some(*number), due.next());
                    results += usize::from(result.is_some());
                    continue;
                }
                prop_assert!(due.is_empty());
                match message {
                    OutgoingMessage::Called { calls, .. } => {
                        due = expected..expected + calls.len();
                        expected = due.end;
                        prop_assert!(!calls.is_empty());
                    }
                    OutgoingMessage::Orphaned { .. } => results += 1,
                    _ => {}
                }
            }
            prop_assert!(due.is_empty());
            prop_assert_eq!(results, window.iter().map(|message| message.tool_results.len()).sum::<usize>());
            prop_assert_eq!(expected, window.iter().map(|message| message.tool_calls.len()).sum::<usize>());
        }
    }
}
