//! The `delivery-context` import: the room as a strategy sees it.

use conclave_core::types::delivery::DeliveryView;
use wasmtime::Result;

use crate::imports::bindings::plugin::delivery_context as context;
use crate::imports::call::CallInput;
use crate::imports::convert::{channel_out, ended_out};

import_view! {
    /// The `delivery-context` import of a call.
    DeliveryImport
}

impl DeliveryImport<'_> {
    fn delivery_view(&mut self) -> Result<&DeliveryView> {
        self.core.enter()?;
        let CallInput::Delivery(view) = &self.core.input else {
            let problem = "`delivery-context` was read in a call that decides no delivery";
            return Err(wasmtime::Error::msg(problem));
        };
        Ok(view)
    }
}

impl context::Host for DeliveryImport<'_> {
    fn room_id(&mut self) -> Result<String> {
        Ok(self.delivery_view()?.room.to_string())
    }

    fn now_ms(&mut self) -> Result<u64> {
        Ok(self.delivery_view()?.now.0)
    }

    fn pending_results(&mut self) -> Result<Vec<context::EndedTask>> {
        Ok(self.delivery_view()?.pending_results.iter().map(|ended| ended_out(ended)).collect())
    }

    fn channels(&mut self) -> Result<Vec<context::Channel>> {
        Ok(self.delivery_view()?.channels.iter().map(channel_out).collect())
    }

    fn preferred_channel(&mut self) -> Result<Option<String>> {
        Ok(self.delivery_view()?.preferred_channel().map(|channel| channel.id.to_string()))
    }

    fn notified_task(&mut self) -> Result<Option<String>> {
        Ok(self.delivery_view()?.notified_task.as_ref().map(ToString::to_string))
    }
}
