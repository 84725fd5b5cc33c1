//! Model requests of a call: each is sent and answered once, even if the call is replayed.

use conclave_core::protocol::call_log::{AskedModel, Before};
use conclave_core::types::completion::{ModelError, ModelRequest};

use super::{Answer, CallReplay, ReplayMismatch};
use crate::support::suspension::Parked;

impl CallReplay {
    /// Sends a request, unless it was sent before.
    ///
    /// # Errors
    /// If it differs from the recorded one.
    pub(crate) fn ask_model(
        &self,
        ordinal: u32,
        request: ModelRequest,
    ) -> Result<(), ReplayMismatch> {
        self.check()?;
        let mut known = self.known();
        let known = &mut *known;
        match known.trace.model(ordinal, &request) {
            Before::Answered(_) => {}
            Before::Open
                // Still in progress in this process, or cancelled by the guest.
                if known.asked.contains_key(&ordinal) || known.given_up.contains(&ordinal) => {}
            Before::Open => {
                // The room has journalled the request and only waits for its answer.
                drop(known.asked.insert(ordinal, self.models.ask(self.call, ordinal, request)))
            }
            Before::Otherwise => {
                self.lose(&format!("it asked for something else than before the host stopped: model request {ordinal}"));
                return Err(ReplayMismatch);
            }
            Before::New => {
                // Reads come first, because the request may depend on them.
                self.keep_reads(known);
                known
                    .trace
                    .models
                    .insert(ordinal, AskedModel { request: request.clone(), answer: None });
                known.asked.insert(ordinal, self.models.ask(self.call, ordinal, request));
            }
        }
        Ok(())
    }

    /// Waits for an answer, until the instance is `due` to be released.
    ///
    /// # Errors
    /// If it was due first; [`parked_answer`](Self::parked_answer) then waits for the answer.
    pub(crate) async fn answer(
        &self,
        ordinal: u32,
        due: impl Future<Output = ()>,
    ) -> Result<Answer, Parked> {
        let asked = {
            let mut known = self.known();
            if let Some(answer) =
                known.trace.models.get(&ordinal).and_then(|asked| asked.answer.clone())
            {
                return Ok(answer);
            }
            known.asked.remove(&ordinal)
        };
        let Some(mut asked) = asked else {
            return Ok(Err(ModelError::Other { message: "the request was given up".to_owned() }));
        };
        tokio::select! {
            biased;
            answer = &mut asked => {
                self.answered(ordinal, &answer);
                Ok(answer)
            }
            () = due => {
                let mut known = self.known();
                // The future stays alive, so that the request is not sent twice.
                known.asked.insert(ordinal, asked);
                known.waits_for = Some(ordinal);
                Err(Parked)
            }
        }
    }

    /// Waits for the answer that a suspended call needs.
    pub(crate) async fn parked_answer(&self) {
        let asked = {
            let mut known = self.known();
            known
                .waits_for
                .take()
                .and_then(|ordinal| Some((ordinal, known.asked.remove(&ordinal)?)))
        };
        if let Some((ordinal, asked)) = asked {
            let answer = asked.await;
            self.answered(ordinal, &answer);
        }
    }

    fn answered(&self, ordinal: u32, answer: &Answer) {
        if let Some(asked) = self.known().trace.models.get_mut(&ordinal) {
            asked.answer = Some(answer.clone());
        }
    }

    /// Cancels a request that the guest dropped.
    pub(crate) fn give_up_model(&self, ordinal: u32) {
        let mut known = self.known();
        if let Some(asked) = known.asked.remove(&ordinal) {
            known.given_up.insert(ordinal);
            drop(asked);
        }
    }
}
