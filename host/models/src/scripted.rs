//! A model that answers from a script, for tests, demos and agents without a key.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conclave_core::types::completion::{Completion, Prompt, StopReason, TokenUsage};
use conclave_core::types::message::ToolCall;
use serde::Deserialize;
use serde_json::Value;

use crate::{BoxFuture, ModelClient, ModelFailure, TextSink};

/// Returns replies from a script. The first rule whose `when` occurs in the newest part of the
/// prompt answers. Otherwise it is the next of `replies`; the last one repeats. Each session has
/// its own position in the script.
#[derive(Debug)]
pub struct Scripted {
    script: Arc<Script>,
    next: Mutex<usize>,
}

/// Why a script is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The text is not JSON, or not an object with `replies` or `rules`.
    #[error(
        "the script is not JSON as expected: {0}. It holds an object with `replies` (a list) or `rules` (a list of {{\"when\", \"reply\"}})."
    )]
    Malformed(#[from] serde_json::Error),
    /// An entry is not a valid reply.
    #[error(
        "entry {entry} of `{list}` is no reply: {why}. A reply is a text, or {{\"text\": \"…\", \"calls\": [{{\"name\": \"plugin.tool\", \
         \"args\": {{…}}}}]}} with one of the two or both."
    )]
    Reply {
        /// `replies` or `rules`.
        list: &'static str,
        /// The position in the list, from 1.
        entry: usize,
        /// The reason, for display.
        why: String,
    },
    /// The script has no replies and no rules.
    #[error("the script has neither `replies` nor `rules`: there is nothing to answer with")]
    Empty,
}

#[derive(Debug)]
struct Script {
    rules: Vec<(String, ScriptedReply)>,
    replies: Vec<ScriptedReply>,
    usage: ScriptUsage,
    delay: Duration,
}

/// A script file. Replies are parsed one by one, so that an error can name the entry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default)]
    rules: Vec<ScriptRule>,
    #[serde(default)]
    replies: Vec<Value>,
    /// The usage that every answer reports, for trying budgets without a model.
    #[serde(default)]
    usage: ScriptUsage,
    /// The time that each answer takes, for trying what happens meanwhile.
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptRule {
    when: String,
    reply: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedReply {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    calls: Vec<ScriptedCall>,
}

impl ScriptedReply {
    fn read(written: Value) -> Result<Self, String> {
        match written {
            Value::String(text) => Ok(Self { text: Some(text), calls: Vec::new() }),
            Value::Object(_) => {
                let reply: Self =
                    serde_json::from_value(written).map_err(|error| error.to_string())?;
                let is_empty = reply.text.is_none() && reply.calls.is_empty();
                if is_empty {
                    Err("it has neither `text` nor `calls`".to_owned())
                } else {
                    Ok(reply)
                }
            }
            _ => Err("it is neither a text nor an object".to_owned()),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default = "empty_object", alias = "arguments")]
    args: Value,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

impl Scripted {
    /// Parses a script.
    ///
    /// # Errors
    /// `Malformed` if it is not JSON of the expected form, `Reply` if an entry is invalid, `Empty`
    /// if it has no replies.
    pub fn parse(json: &str) -> Result<Self, ScriptError> {
        let ScriptFile { rules, replies, usage, delay_ms } = serde_json::from_str(json)?;
        if rules.is_empty() && replies.is_empty() {
            return Err(ScriptError::Empty);
        }
        let read = |list, index: usize, reply| {
            ScriptedReply::read(reply).map_err(|why| ScriptError::Reply {
                list,
                entry: index + 1,
                why,
            })
        };
        let rules = rules
            .into_iter()
            .enumerate()
            .map(|(index, rule)| Ok((rule.when, read("rules", index, rule.reply)?)));
        let rules = rules.collect::<Result<_, ScriptError>>()?;
        let replies =
            replies.into_iter().enumerate().map(|(index, reply)| read("replies", index, reply));
        let replies = replies.collect::<Result<_, _>>()?;
        let delay = Duration::from_millis(delay_ms);
        Ok(Self { script: Arc::new(Script { rules, replies, usage, delay }), next: Mutex::new(0) })
    }

    fn answer(&self, prompt: &Prompt) -> Completion {
        let text = prompt.last_text();
        let ruled =
            self.script.rules.iter().find(|(when, _)| text.contains(when)).map(|(_, reply)| reply);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let index = *next;
        *next += 1;
        let last = self.script.replies.len().saturating_sub(1);
        let reply = ruled.or_else(|| self.script.replies.get(index.min(last)));
        let (content, calls) =
            reply.map(|reply| (reply.text.clone(), reply.calls.as_slice())).unwrap_or_default();
        let tool_calls: Vec<ToolCall> = calls
            .iter()
            .map(|call| ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: Arc::new(call.args.clone()),
                untrusted: false,
                led_by: Vec::new(),
            })
            .collect();
        let ScriptUsage { input_tokens, output_tokens } = self.script.usage;
        Completion {
            id: format!("scripted-{index}"),
            content,
            reasoning: None,
            stop: if tool_calls.is_empty() { StopReason::End } else { StopReason::ToolCalls },
            tool_calls,
            usage: TokenUsage {
                input_tokens,
                cached_input_tokens: 0,
                output_tokens,
                cost_micro_usd: None,
            },
            model: "scripted".to_owned(),
        }
    }
}

impl ModelClient for Scripted {
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let (completion, delay) = (self.answer(&prompt), self.script.delay);
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if prompt.stream {
                // One word at a time, like a model.
                completion
                    .content
                    .iter()
                    .flat_map(|text| text.split_inclusive(char::is_whitespace))
                    .for_each(|word| sink.text(word));
            }
            Ok(completion)
        })
    }

    fn for_session(&self) -> Option<Arc<dyn ModelClient>> {
        Some(Arc::new(Self { script: Arc::clone(&self.script), next: Mutex::new(0) }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use conclave_core::types::completion::{
        Completion, Prompt, PromptPiece, StopReason, ToolChoice, ToolFormat,
    };

    use super::{ScriptError, Scripted};
    use crate::{ModelClient, TextSink};

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl TextSink for Heard {
        fn text(&self, piece: &str) {
            self.0.lock().unwrap().push(piece.to_owned());
        }
    }

    async fn ask(model: &Scripted, text: &str, stream: bool) -> (Completion, Vec<String>) {
        let sink = Arc::new(Heard::default());
        let prompt = Prompt {
            pieces: vec![PromptPiece::System { text: text.into() }],
            tools: Vec::new(),
            tool_format: ToolFormat::Off,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            stream,
            options: Vec::new(),
        };
        let completion = model.complete(prompt, Arc::<Heard>::clone(&sink)).await.unwrap();
        let pieces = sink.0.lock().unwrap().clone();
        (completion, pieces)
    }

    #[tokio::test]
    async fn replies_come_in_order_and_the_last_stays() {
        let model =
            Scripted::parse(r#"{"replies": ["one", {"calls": [{"name": "a.b"}]}]}"#).unwrap();
        assert_eq!(ask(&model, "", false).await.0.content.as_deref(), Some("one"));
        for _ in 0..2 {
            let (completion, _) = ask(&model, "", false).await;
            assert_eq!((completion.content, completion.stop), (None, StopReason::ToolCalls));
            assert_eq!(completion.tool_calls[0].name, "a.b");
        }
    }

    #[tokio::test]
    async fn a_rule_answers_before_the_replies() {
        let model =
            Scripted::parse(r#"{"rules": [{"when": "sky", "reply": "blue"}], "replies": ["one"]}"#)
                .unwrap();
        assert_eq!(ask(&model, "the sky?", false).await.0.content.as_deref(), Some("blue"));
    }

    #[tokio::test]
    async fn streamed_text_comes_in_words_and_only_when_asked_for() {
        let model = Scripted::parse(r#"{"replies": ["one two\nthree"]}"#).unwrap();
        assert_eq!(ask(&model, "", true).await.1, ["one ", "two\n", "three"]);
        assert!(ask(&model, "", false).await.1.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_takes_the_time_of_the_script() {
        let model = Scripted::parse(r#"{"replies": ["one"], "delay_ms": 3000}"#).unwrap();
        let began = tokio::time::Instant::now();
        ask(&model, "", false).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn arguments_go_by_two_names() {
        for name in ["args", "arguments"] {
            let model = Scripted::parse(&format!(
                r#"{{"replies": [{{"calls": [{{"name": "a.b", "{name}": {{"x": 1}}}}]}}]}}"#
            ))
            .unwrap();
            assert_eq!(ask(&model, "", false).await.0.tool_calls[0].arguments["x"], 1, "{name}");
        }
    }

    #[test]
    fn a_reply_that_is_none_is_named_with_what_may_stand_there() {
        let cases = [
            (r#"{"replies": ["a", 5]}"#, "entry 2 of `replies` is no reply: it is neither"),
            (r#"{"replies": [{}]}"#, "entry 1 of `replies` is no reply: it has neither"),
            (r#"{"replies": [{"content": "x"}]}"#, "unknown field `content`"),
            (r#"{"replies": [{"calls": [{"tool": "a.b"}]}]}"#, "unknown field `tool`"),
            (r#"{"rules": [{"when": "x", "reply": null}]}"#, "entry 1 of `rules`"),
        ];
        for (script, part) in cases {
            let why = Scripted::parse(script).unwrap_err().to_string();
            assert!(
                why.contains(part)
                    && why.contains(
                        r#"{"text": "…", "calls": [{"name": "plugin.tool", "args": {…}}]}"#
                    ),
                "{why}"
            );
        }
    }

    #[test]
    fn a_script_without_answers_is_refused() {
        assert!(matches!(Scripted::parse("{}"), Err(ScriptError::Empty)));
        assert!(matches!(Scripted::parse("1"), Err(ScriptError::Malformed(_))));
    }
}
