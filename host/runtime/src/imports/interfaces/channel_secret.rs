//! The `channel-secret` import: the host verifies a request for a channel's plugin.

use crate::calls::Proof;
use crate::imports::bindings::plugin::channel_secret;

import_view! {
    /// The `channel-secret` import of a call.
    ChannelSecretImport
}

impl channel_secret::Host for ChannelSecretImport<'_> {
    fn verify(&mut self, proof: channel_secret::Proof) -> wasmtime::Result<bool> {
        self.core.enter()?;
        let proof = match proof {
            channel_secret::Proof::HmacSha256(channel_secret::SignedData { data, signature }) => {
                Proof::HmacSha256 { data, signature }
            }
            channel_secret::Proof::Token(token) => Proof::Token(token),
        };
        Ok(self.core.start.signatures.verify(&proof))
    }
}
