//! Knows the opening hours by heart; its model answers everything else.

use conclave_sdk::{Agent, Responder, Result, Turn, View, finish, model, say};

pub struct Desk;

impl Agent for Desk {
    fn step(_view: &View) -> Result<Turn> {
        Ok(finish(model::answer()?.content))
    }
}

impl Responder for Desk {
    fn respond(view: &View) -> Result<Option<Turn>> {
        let question = view.pending().map(|message| message.content).unwrap_or_default();
        Ok(question.contains("open").then(|| say("From nine to five.")))
    }
}

conclave_sdk::export!(agent: Desk, responder: Desk, asks: [model]);

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::{FakeHost, TaskSnapshot};

    use super::*;

    #[test]
    fn the_hours_need_no_model_and_the_rest_does() {
        let (hours, rest) =
            (TaskSnapshot::asked("When are you open?"), TaskSnapshot::asked("Why?"));
        assert_eq!(Desk::respond(&hours.view()), Ok(Some(say("From nine to five."))));
        assert_eq!(Desk::respond(&rest.view()), Ok(None));
        // A host that grants no model denies it; the answer above needed none.
        assert!(FakeHost::new().run(|| Desk::step(&rest.view())).is_err());
        let answered = FakeHost::new().reply("Because.").run(|| Desk::step(&rest.view()));
        assert_eq!(answered, Ok(finish("Because.")));
    }
}
