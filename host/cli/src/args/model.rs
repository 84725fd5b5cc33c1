//! `--model URL#NAME`: a model for one start, without a change to the config. No environment
//! variable ever selects a model.

use std::collections::BTreeMap;

use clap::Args;
use conclave_core::config::{ConfigPath, KeyRef, ModelConfig};
use conclave_core::types::ids::ModelName;

use crate::program::error::CliError;

/// The model in the place of the config's `default`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelChoice {
    /// Use this server's model as the model `default` of the config, such as
    /// `http://127.0.0.1:11434/v1#qwen3:8b`
    #[arg(long, value_name = "URL#NAME")]
    model: Option<String>,
    /// The source of the server's key: `env:VARIABLE`, `file:PATH` or `command:PROGRAM`
    #[arg(long, value_name = "SOURCE", requires = "model")]
    model_key: Option<String>,
}

impl ModelChoice {
    /// Returns the models that replace the config's. Empty if none was chosen.
    ///
    /// # Errors
    /// If the address, the name or the key's source is invalid.
    pub(crate) fn models(&self) -> Result<BTreeMap<ModelName, ModelConfig>, CliError> {
        let Some(choice) = &self.model else { return Ok(BTreeMap::new()) };
        let key = self.model_key.as_deref().map(key).transpose()?;
        let (url, name) = choice
            .split_once('#')
            .ok_or_else(|| wrong(choice, "does not name a model: `#` and the name are missing"))?;
        let model =
            ModelConfig::of_server(url, name, key).map_err(|problem| wrong(choice, &problem))?;
        Ok(BTreeMap::from([(ModelName::from("default"), model)]))
    }
}

fn wrong(choice: &str, problem: &str) -> CliError {
    // An address with a password is not repeated.
    let option =
        if choice.contains('@') { "--model".to_owned() } else { format!("--model {choice}") };
    CliError::usage(format!("{option} {problem}"))
        .hint("write it as `--model http://127.0.0.1:11434/v1#qwen3:8b`")
}

fn key(source: &str) -> Result<KeyRef, CliError> {
    let path = |path: &str| ConfigPath { display_path: path.to_owned(), path: path.to_owned() };
    match source.split_once(':') {
        Some(("env", name)) if !name.is_empty() => Ok(KeyRef::Env(name.to_owned())),
        Some(("file", name)) if !name.is_empty() => Ok(KeyRef::File(path(name))),
        Some(("command", words)) if !words.trim().is_empty() => {
            Ok(KeyRef::Command(words.split_whitespace().map(str::to_owned).collect()))
        }
        // The value may be the key itself, so it is not repeated.
        _ => Err(CliError::usage("--model-key takes the source of the key, not the key itself")
            .hint("write `--model-key env:MY_KEY`, `file:PATH` or `command:PROGRAM`")),
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::config::ModelKind;

    use super::*;

    fn choice(
        model: &str,
        key: Option<&str>,
    ) -> Result<BTreeMap<ModelName, ModelConfig>, CliError> {
        ModelChoice { model: Some(model.to_owned()), model_key: key.map(str::to_owned) }.models()
    }

    #[test]
    fn a_server_and_a_name_make_the_default_model() {
        assert!(ModelChoice::default().models().expect("nothing was chosen").is_empty());
        let models = choice("http://127.0.0.1:8080/v1#a#b:1", Some("env:KEY")).expect("a model");
        let ModelKind::Server(server) = &models["default"].kind else { panic!("a server") };
        assert_eq!(
            (server.url.as_str(), server.model.as_str()),
            ("http://127.0.0.1:8080/v1", "a#b:1")
        );
        assert_eq!(server.key, Some(KeyRef::Env("KEY".to_owned())));
        assert_eq!(models["default"].prices.reached_at.as_deref(), Some("127.0.0.1:8080"));
    }

    #[test]
    fn a_possible_secret_is_not_repeated_in_errors() {
        for (model, key) in
            [("http://127.0.0.1#m", Some("sk-secret")), ("http://me:sk-secret@127.0.0.1#m", None)]
        {
            let error = choice(model, key).expect_err("it is refused").to_string();
            assert!(!error.contains("sk-secret"), "{error}");
        }
        for model in
            ["127.0.0.1:80", "127.0.0.1#m", "http://127.0.0.1/v1#", "http://127.0.0.1/v1?x=1#m"]
        {
            assert!(choice(model, None).is_err(), "{model}");
        }
    }
}
