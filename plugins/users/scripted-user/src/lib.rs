//! A simulated user that says the lines of its settings, one after the other, and then its goodbye.
//! Its scratch data has the number of lines that it has said, per task, so it survives a condensed
//! history and a restart of the host.

use conclave_sdk::simulated_user::SimulatedUser;
use conclave_sdk::{Result, View, config, scratch};
use serde::Deserialize;

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default = "quit")]
    goodbye: String,
}

fn quit() -> String {
    "quit".to_owned()
}

struct ScriptedUser;

impl SimulatedUser for ScriptedUser {
    fn answer(_question: &str, _view: &View) -> Result<Option<String>> {
        let Settings { mut lines, goodbye } = config::get()?;
        let said: usize = scratch::get()?.unwrap_or_default();
        if said >= lines.len() {
            return Ok(Some(goodbye).filter(|text| !text.is_empty()));
        }
        scratch::set(&(said + 1))?;
        Ok(Some(lines.swap_remove(said)))
    }
}

conclave_sdk::export!(simulated_user: ScriptedUser);

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::{FakeHost, TaskSnapshot};
    use serde_json::{Value, json};

    use super::*;

    fn answers(settings: Value) -> Vec<Option<String>> {
        let task = TaskSnapshot::default();
        let mut host = FakeHost::new().config(settings);
        (0..3).map(|_| host.run(|| ScriptedUser::answer("?", &task.view())).unwrap()).collect()
    }

    #[test]
    fn the_lines_come_in_their_order_and_then_the_goodbye() {
        let say = |text: &str| Some(text.to_owned());
        let lines = json!(["A table for two.", "The first of June."]);
        let all = [say("A table for two."), say("The first of June."), say("quit")];
        assert_eq!(answers(json!({ "lines": lines })), all);
        let silent = answers(json!({ "lines": ["Yes."], "goodbye": "" }));
        assert_eq!(silent, [say("Yes."), None, None]);
        assert_eq!(answers(json!({}))[0], say("quit"));
    }
}
