//! Conversions of messages and requests between channels and their plugins. Sizes and forms of what
//! a plugin brings are checked here: its names become keys and senders of the host.

use conclave_core::setup::plugin_query::{
    ChannelDelivery, ChannelMessage, ChannelReception, ChannelRequest, ReceivedMessage,
};
use conclave_core::types::fault::{Fault, FaultKind};

use super::queries::fits;
use super::text_in;
use crate::imports::bindings::exports::conclave::plugin::channel;

/// Maximum bytes of an id that a service gave a message.
const REMOTE_ID: usize = 256;

pub(crate) fn channel_message_out(message: &ChannelMessage) -> channel::Message {
    channel::Message {
        id: message.id.clone(),
        attempt: message.attempt,
        conversation: message.conversation.clone(),
        room: message.room.to_string(),
        text: message.text.clone(),
    }
}

pub(crate) fn channel_request_out(request: &ChannelRequest) -> channel::Request {
    channel::Request {
        headers: request.headers.clone(),
        query: request.query.clone(),
        body: request.body.clone(),
        time: request.time,
    }
}

/// Converts what is known of a message.
///
/// # Errors
/// `BadAnswer` if the id of the service is too long. The message was delivered all the same, which
/// the caller cannot know then.
pub(crate) fn channel_delivery_in(delivery: channel::Delivery) -> Result<ChannelDelivery, Fault> {
    Ok(match delivery {
        channel::Delivery::Delivered(remote_id) => {
            let length = remote_id.as_ref().map_or(0, String::len);
            fits("the id of the service", length, "bytes", REMOTE_ID)?;
            ChannelDelivery::Delivered { remote_id: remote_id.as_deref().map(text_in) }
        }
        channel::Delivery::Retry(channel::RetryHint { after_ms, reason }) => {
            ChannelDelivery::Retry { after_ms, reason: text_in(&reason) }
        }
        channel::Delivery::Refused(reason) => ChannelDelivery::Refused { reason: text_in(&reason) },
        channel::Delivery::Unknown(reason) => ChannelDelivery::Unknown { reason: text_in(&reason) },
    })
}

/// Converts what a request is.
///
/// # Errors
/// `BadAnswer` if a part has another form, or exceeds its limit.
pub(crate) fn channel_reception_in(
    reception: channel::Reception,
) -> Result<ChannelReception, Fault> {
    Ok(match reception {
        channel::Reception::Messages(messages) => {
            fits("the request", messages.len(), "messages", ChannelReception::MESSAGES_MAX)?;
            let messages = messages.into_iter().map(received_in).collect::<Result<_, _>>()?;
            ChannelReception::Messages { messages }
        }
        channel::Reception::Answer(channel::HttpAnswer { body_type, body }) => {
            fits("the `body` of its answer", body.len(), "bytes", ChannelReception::ANSWER_MAX)?;
            let is_json = body_type == channel::AnswerType::Json;
            ChannelReception::Answer { is_json, body }
        }
        channel::Reception::Refused(reason) => {
            ChannelReception::Refused { reason: text_in(&reason) }
        }
    })
}

fn received_in(message: channel::ReceivedMessage) -> Result<ReceivedMessage, Fault> {
    let channel::ReceivedMessage { id, sender, conversation, text } = message;
    for (part, name) in [("id", &id), ("sender", &sender), ("conversation", &conversation)] {
        if !ReceivedMessage::is_name(name) {
            let most = ReceivedMessage::NAME_MAX;
            let message =
                format!("the `{part}` of a message must be 1 to {most} printable ASCII characters");
            return Err(Fault::new(FaultKind::BadAnswer, message));
        }
    }
    fits("the `text` of a message", text.len(), "bytes", ReceivedMessage::TEXT_MAX)?;
    Ok(ReceivedMessage { id, sender, conversation, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl FnOnce(&mut channel::ReceivedMessage)) -> channel::Reception {
        let mut message = channel::ReceivedMessage {
            id: "Ev1".to_owned(),
            sender: "U1".to_owned(),
            conversation: "C1:17.2".to_owned(),
            text: "hello\nworld".to_owned(),
        };
        change(&mut message);
        channel::Reception::Messages(vec![message])
    }

    #[test]
    fn what_would_break_keys_and_names_of_the_host_is_a_bad_answer() {
        assert!(channel_reception_in(message(|_| {})).is_ok());
        let answer = |body: String| {
            let body_type = channel::AnswerType::Text;
            channel::Reception::Answer(channel::HttpAnswer { body_type, body })
        };
        let one = || match message(|_| {}) {
            channel::Reception::Messages(mut messages) => messages.remove(0),
            reception => panic!("{reception:?}"),
        };
        let many = (0..=ChannelReception::MESSAGES_MAX).map(|_| one()).collect();
        for reception in [
            message(|it| it.id.clear()),
            message(|it| it.id = "x".repeat(101)),
            message(|it| it.sender = "user\nada".to_owned()),
            message(|it| it.sender = "ad\u{430}".to_owned()),
            message(|it| it.conversation = "a b".to_owned()),
            message(|it| it.text = "x".repeat(ReceivedMessage::TEXT_MAX + 1)),
            answer("x".repeat(ChannelReception::ANSWER_MAX + 1)),
            channel::Reception::Messages(many),
        ] {
            let fault = channel_reception_in(reception).expect_err("it is refused");
            assert_eq!(fault.kind, FaultKind::BadAnswer, "{fault:?}");
        }
    }
}
