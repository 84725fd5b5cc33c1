//! `channels`: messages of a delivery strategy to channels.

use serde::{Deserialize, Serialize};

use super::texts::{in_brackets, joined, run_limits};
use super::{AccessRequest, Capability, Destination, Grant, GrantTexts, Layer, Refused, Rights};
use crate::permissions::overlap::{common, smaller};
use crate::types::ids::ChannelId;
use crate::types::wording::count;

/// The grant of channels that a delivery strategy may send to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelsGrant {
    pub channels: Vec<ChannelId>,
    /// The limit of messages in the whole run.
    pub messages: Option<u64>,
}

impl<'a> Rights<'a> {
    /// Returns the channel to send to. A line of config is suggested only for an existing channel.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_send(
        &self,
        name: &str,
        is_channel: impl Fn(&str) -> bool,
    ) -> Result<&'a ChannelId, Refused> {
        let granted = self.grants.channels.as_ref().map_or(&[][..], |grant| &grant.channels);
        let smallest =
            || is_channel(name).then(|| self.line_with(Capability::Channels, granted, name));
        self.require_entry(Capability::Channels, name, smallest, || {
            granted.iter().find(|channel| channel.as_str() == name)
        })
    }
}

impl Grant for ChannelsGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_send(request.target, request.is_channel).map(drop)
    }

    fn question() -> Option<(&'static str, &'static str)> {
        Some(("May it speak on your terminal?", "[\"terminal\"]"))
    }

    fn why_no_line(_target: Option<&str>, layer: Layer) -> Option<String> {
        (layer == Layer::Config).then(|| "the config has nothing of that name".to_owned())
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let both = Self {
            channels: common(&self.channels, &today.channels),
            messages: smaller(self.messages, today.messages),
        };
        Some(both).filter(|grant| !grant.channels.is_empty())
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn acts(&self) -> bool {
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let bounds = in_brackets([self.messages.map(|messages| count(messages, "message"))]);
        let effect = format!("speak on {}", joined(&self.channels));
        GrantTexts {
            summary: vec![format!("{effect}{bounds}")],
            effect,
            bounds: run_limits([(self.messages, "messages")]),
            ..GrantTexts::of_names(&self.channels, |name| name == request.target)
        }
    }
}
