//! `state.view`: the task as a step may see it, read lazily from a snapshot. A step pays for what it reads, not for what has happened.

use conclave_core::view::AgentView;
use wasmtime::component::Resource;

use crate::bindings::conclave::plugin::{actions, state, types};
use crate::convert::{message_out, past_out, remaining_out, summary_out};
use crate::sandbox::{CallState, Lent};

/// The view that the host lends; there is one per call, so its handle carries nothing.
pub struct View;

/// Messages that one call of `history` gives at most.
const MESSAGES: usize = 512;
/// Bytes of text after which `history` gives no further message: the guest's memory is bounded, and so is what it costs to fill it.
const BYTES: usize = 1 << 20;

impl CallState {
    fn agent_view(&mut self) -> wasmtime::Result<&AgentView> {
        self.enter()?;
        match &self.lent {
            Lent::Agent(view) => Ok(view),
            Lent::Nothing | Lent::Tool(_) | Lent::Delivery(_) => Err(wasmtime::Error::msg("this call was lent no view")),
        }
    }
}

impl actions::Host for CallState {}
impl state::Host for CallState {}

impl state::HostView for CallState {
    fn task_name(&mut self, _: Resource<View>) -> wasmtime::Result<String> {
        Ok(self.agent_view()?.task.to_string())
    }

    fn inputs(&mut self, _: Resource<View>) -> wasmtime::Result<String> {
        let inputs = &self.agent_view()?.inputs;
        Ok(if inputs.is_null() { "{}".to_owned() } else { inputs.to_string() })
    }

    fn pending(&mut self, _: Resource<View>) -> wasmtime::Result<Option<types::Message>> {
        Ok(self.agent_view()?.pending.as_deref().map(message_out))
    }

    fn history_length(&mut self, _: Resource<View>) -> wasmtime::Result<u64> {
        Ok(self.agent_view()?.history.len() as u64)
    }

    fn history(&mut self, _: Resource<View>, start: u64, count: u32) -> wasmtime::Result<Vec<types::Message>> {
        let history = &self.agent_view()?.history;
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(MESSAGES).min(history.len().saturating_sub(start));
        let mut messages = Vec::with_capacity(count);
        let mut bytes = 0;
        for message in (start..).take(count).map_while(|index| history.get(index)) {
            messages.push(message_out(message));
            bytes += message.text().len();
            if bytes > BYTES {
                break;
            }
        }
        Ok(messages)
    }

    fn since_last_step(&mut self, _: Resource<View>) -> wasmtime::Result<Vec<state::Past>> {
        Ok(self.agent_view()?.since.iter().map(past_out).collect())
    }

    fn intent(&mut self, _: Resource<View>) -> wasmtime::Result<Option<String>> {
        Ok(self.agent_view()?.intent.as_ref().map(|message| message.text().to_owned()))
    }

    fn plan(&mut self, _: Resource<View>) -> wasmtime::Result<String> {
        Ok(self.agent_view()?.plan.to_string())
    }

    fn tools(&mut self, _: Resource<View>) -> wasmtime::Result<Vec<state::ToolSummary>> {
        Ok(self.agent_view()?.tools.iter().map(summary_out).collect())
    }

    fn agents(&mut self, _: Resource<View>) -> wasmtime::Result<Vec<state::Peer>> {
        let peers = &self.agent_view()?.peers;
        Ok(peers.iter().map(|peer| state::Peer { name: peer.name.to_string(), description: peer.description.clone() }).collect())
    }

    fn remaining(&mut self, _: Resource<View>) -> wasmtime::Result<state::Remaining> {
        Ok(remaining_out(self.agent_view()?.remaining))
    }

    fn iteration(&mut self, _: Resource<View>) -> wasmtime::Result<u32> {
        Ok(self.agent_view()?.iteration)
    }

    /// It was lent, not given: no guest can drop it.
    fn drop(&mut self, _: Resource<View>) -> wasmtime::Result<()> {
        Ok(())
    }
}
