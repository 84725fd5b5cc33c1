//! The `delivery-context` import: the room as a strategy sees it.

use conclave_core::types::delivery::DeliveryView;

use crate::imports::bindings::conclave::plugin::delivery_context as context;
use crate::imports::call::{CallInput, CallState};
use crate::imports::convert::{channel_out, ended_out};

impl CallState {
    fn delivery_view(&mut self) -> wasmtime::Result<&DeliveryView> {
        self.enter()?;
        match &self.lent {
            CallInput::Delivery(view) => Ok(view),
            CallInput::Nothing | CallInput::Agent(_) | CallInput::Tool(_) => {
                Err(wasmtime::Error::msg(
                    "`delivery-context` was read in a call that decides no delivery",
                ))
            }
        }
    }
}

impl context::Host for CallState {
    fn room_id(&mut self) -> wasmtime::Result<String> {
        Ok(self.delivery_view()?.room.to_string())
    }

    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(self.delivery_view()?.now.0)
    }

    fn pending_results(&mut self) -> wasmtime::Result<Vec<context::EndedTask>> {
        Ok(self.delivery_view()?.pending_results.iter().map(|ended| ended_out(ended)).collect())
    }

    fn channels(&mut self) -> wasmtime::Result<Vec<context::Channel>> {
        Ok(self.delivery_view()?.channels.iter().map(channel_out).collect())
    }

    fn preferred_channel(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.delivery_view()?.preferred_channel().map(|channel| channel.id.to_string()))
    }

    fn notified_task(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.delivery_view()?.notified_task.as_ref().map(ToString::to_string))
    }
}
