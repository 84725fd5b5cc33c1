//! Options of a request. The operator's are passed on, except for those that the host sets. A
//! plugin may only set those that change the model's output, not the destination or the contents.

use conclave_core::types::completion::{ModelApi, ModelError};
use serde_json::{Map, Value};

/// The options that a plugin may set, by their wire names.
const ALLOWED: [&str; 10] = [
    "temperature",
    "top_p",
    "seed",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "parallel_tool_calls",
];

/// The options among them that the Messages API lacks. They are hints, so a plugin that sets one
/// gets its answer without it.
const NOT_IN_MESSAGES: [&str; 4] =
    ["seed", "frequency_penalty", "presence_penalty", "reasoning_effort"];

/// The options among them that the Responses API lacks.
const NOT_IN_RESPONSES: [&str; 4] = ["seed", "stop", "frequency_penalty", "presence_penalty"];

/// Newer models of some providers require the second; everything else only knows the first.
const LENGTHS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// The length of the answer in tokens that a request with these options asks for.
pub(crate) fn max_output(options: &Map<String, Value>) -> Option<u64> {
    let names = LENGTHS.iter().chain(&["max_output_tokens"]);
    names.filter_map(|name| options.get(*name)?.as_u64()).find(|most| *most > 0)
}

/// Returns the plugin's options merged over the operator's. Names in `kebab-case` and `snake_case`
/// are equal; null removes an option. For the other APIs a plugin's options get their names.
///
/// # Errors
/// `other` if a plugin sets a forbidden option.
pub(crate) fn merged(
    api: ModelApi,
    operator: &Map<String, Value>,
    plugin: &[(String, Value)],
) -> Result<Map<String, Value>, ModelError> {
    let mut merged = operator.clone();
    for (name, value) in plugin {
        let name = name.replace('-', "_");
        let name = if name == "max_output_tokens" { LENGTHS[0] } else { &name };
        if !ALLOWED.contains(&name) {
            let message = format!(
                "the option {name:?} cannot be set by a plugin; these can: {}",
                ALLOWED.join(", ")
            );
            return Err(ModelError::Other { message });
        }
        match (api, name) {
            (ModelApi::Messages, name) if NOT_IN_MESSAGES.contains(&name) => {}
            (ModelApi::Messages, "stop") => {
                let stops =
                    if value.is_string() { vec![value.clone()].into() } else { value.clone() };
                merged.insert("stop_sequences".to_owned(), stops);
            }
            (ModelApi::Messages, name) if LENGTHS.contains(&name) => {
                merged.insert(LENGTHS[0].to_owned(), value.clone());
            }
            (ModelApi::Responses, name) if NOT_IN_RESPONSES.contains(&name) => {}
            (ModelApi::Responses, "reasoning_effort") => {
                // The operator's table has other fields too, such as that of a summary.
                let mut fields = match merged.remove("reasoning") {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                fields.insert("effort".to_owned(), value.clone());
                fields.retain(|_, value| !value.is_null());
                if !fields.is_empty() {
                    merged.insert("reasoning".to_owned(), fields.into());
                }
            }
            (ModelApi::Responses, name) if LENGTHS.contains(&name) => {
                merged.insert("max_output_tokens".to_owned(), value.clone());
            }
            (ModelApi::ChatCompletions, name) if LENGTHS.contains(&name) => {
                // Only one of them is sent, under the operator's name if set, since the operator
                // knows the model.
                let name =
                    LENGTHS.into_iter().find(|known| operator.contains_key(*known)).unwrap_or(name);
                LENGTHS.iter().for_each(|other| drop(merged.remove(*other)));
                merged.insert(name.to_owned(), value.clone());
            }
            (_, name) => {
                merged.insert(name.to_owned(), value.clone());
            }
        }
    }
    // The operator's `stream_options` counts even if null, because some servers fail on it.
    merged.retain(|name, value| !value.is_null() || name == "stream_options");
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use conclave_core::types::completion::{ModelApi, ModelError};
    use serde_json::{Value, json};

    use super::merged;

    fn merge(operator: &Value, plugin: &[(&str, Value)]) -> Result<Value, ModelError> {
        merge_for(ModelApi::ChatCompletions, operator, plugin)
    }

    fn merge_for(
        api: ModelApi,
        operator: &Value,
        plugin: &[(&str, Value)],
    ) -> Result<Value, ModelError> {
        let plugin: Vec<(String, Value)> =
            plugin.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        merged(api, operator.as_object().unwrap(), &plugin).map(Value::Object)
    }

    #[test]
    fn the_plugin_s_go_over_the_operator_s() {
        let operator = json!({"temperature": 1, "top_k": 40, "seed": 7});
        let merged = merge(
            &operator,
            &[("temperature", json!(0.5)), ("top-p", json!(0.9)), ("seed", Value::Null)],
        )
        .unwrap();
        assert_eq!(merged, json!({"temperature": 0.5, "top_k": 40, "top_p": 0.9}));
    }

    #[test]
    fn a_length_goes_out_once_under_the_operator_s_name() {
        let length = |operator, name| merge(&operator, &[(name, json!(5))]).unwrap();
        assert_eq!(length(json!({}), "max-output-tokens"), json!({"max_tokens": 5}));
        assert_eq!(length(json!({}), "max_completion_tokens"), json!({"max_completion_tokens": 5}));
        assert_eq!(
            length(json!({"max_completion_tokens": 9}), "max-tokens"),
            json!({"max_completion_tokens": 5})
        );
    }

    #[test]
    fn the_messages_api_gets_its_own_names_and_no_option_that_it_lacks() {
        let merge = |operator: Value, plugin: &[(&str, Value)]| {
            merge_for(ModelApi::Messages, &operator, plugin).unwrap()
        };
        let plugin = [
            ("max-output-tokens", json!(5)),
            ("stop", json!("END")),
            ("seed", json!(7)),
            ("reasoning-effort", json!("low")),
            ("temperature", json!(0.5)),
        ];
        assert_eq!(
            merge(json!({"max_tokens": 9, "stop_sequences": ["a"], "top_k": 4}), &plugin),
            json!({"max_tokens": 5, "stop_sequences": ["END"], "top_k": 4, "temperature": 0.5})
        );
        let lengths =
            merge(json!({}), &[("max_completion_tokens", json!(5)), ("stop", json!(["a"]))]);
        assert_eq!(lengths, json!({"max_tokens": 5, "stop_sequences": ["a"]}));
        assert_eq!(merge(json!({"max_tokens": 9}), &[("max_tokens", Value::Null)]), json!({}));
        assert!(merge_for(ModelApi::Messages, &json!({}), &[("thinking", json!({}))]).is_err());
    }

    #[test]
    fn the_responses_api_gets_its_own_names_and_no_option_that_it_lacks() {
        let merge = |operator: Value, plugin: &[(&str, Value)]| {
            merge_for(ModelApi::Responses, &operator, plugin).unwrap()
        };
        let plugin = [
            ("max_completion_tokens", json!(5)),
            ("stop", json!("END")),
            ("seed", json!(7)),
            ("reasoning-effort", json!("low")),
        ];
        assert_eq!(
            merge(json!({"top_p": 1, "reasoning": {"summary": "auto"}}), &plugin),
            json!({"top_p": 1, "max_output_tokens": 5,
                "reasoning": {"summary": "auto", "effort": "low"}})
        );
        let none = [("reasoning_effort", Value::Null)];
        let effort = |reasoning: Value| merge(json!({ "reasoning": reasoning }), &none);
        assert_eq!(effort(json!({"effort": "low"})), json!({}));
        assert_eq!(
            effort(json!({"effort": "low", "summary": "auto"}))["reasoning"],
            json!({"summary": "auto"})
        );
    }

    #[test]
    fn nothing_else_can_be_set_by_a_plugin() {
        for name in [
            "model",
            "messages",
            "system",
            "stream",
            "tools",
            "top_k",
            "user",
            "stream-options",
            "extra_body",
            "",
        ] {
            assert!(
                matches!(merge(&json!({}), &[(name, json!(1))]), Err(ModelError::Other { .. })),
                "{name}"
            );
        }
    }
}
