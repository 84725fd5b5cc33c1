//! The `delivery-context.context` import: the room as a strategy sees it.

use conclave_core::types::delivery::DeliveryView;
use wasmtime::component::Resource;

use crate::imports::bindings::conclave::plugin::delivery_context as context;
use crate::imports::call::{CallInput, CallState};
use crate::imports::convert::{channel_out, ended_out};

/// The context of a call. There is one per call, so its handle carries no data.
#[expect(unreachable_pub, reason = "the bindings export it again")]
pub struct DeliveryContext;

impl CallState {
    fn delivery_view(&mut self) -> wasmtime::Result<&DeliveryView> {
        self.enter()?;
        match &self.lent {
            CallInput::Delivery(view) => Ok(view),
            CallInput::Nothing | CallInput::Agent(_) | CallInput::Tool(_) => {
                Err(wasmtime::Error::msg("this call was lent no context"))
            }
        }
    }
}

impl context::Host for CallState {}

impl context::HostContext for CallState {
    fn room_id(&mut self, _: Resource<DeliveryContext>) -> wasmtime::Result<String> {
        Ok(self.delivery_view()?.room.to_string())
    }

    fn now_ms(&mut self, _: Resource<DeliveryContext>) -> wasmtime::Result<u64> {
        Ok(self.delivery_view()?.now.0)
    }

    fn pending_results(
        &mut self,
        _: Resource<DeliveryContext>,
    ) -> wasmtime::Result<Vec<context::EndedTask>> {
        Ok(self.delivery_view()?.pending_results.iter().map(|ended| ended_out(ended)).collect())
    }

    fn channels(
        &mut self,
        _: Resource<DeliveryContext>,
    ) -> wasmtime::Result<Vec<context::Channel>> {
        Ok(self.delivery_view()?.channels.iter().map(channel_out).collect())
    }

    fn preferred_channel(
        &mut self,
        _: Resource<DeliveryContext>,
    ) -> wasmtime::Result<Option<String>> {
        Ok(self.delivery_view()?.preferred_channel().map(|channel| channel.id.to_string()))
    }

    fn notified_task(&mut self, _: Resource<DeliveryContext>) -> wasmtime::Result<Option<String>> {
        Ok(self.delivery_view()?.notified_task.as_ref().map(ToString::to_string))
    }

    /// Does nothing: the guest only borrows the context.
    fn drop(&mut self, _: Resource<DeliveryContext>) -> wasmtime::Result<()> {
        Ok(())
    }
}
