//! Channels whose protocol a plugin speaks, here one of the program itself: attempts, outcomes that
//! nobody knows, and requests that count only when they were verified and their sender may speak.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use conclave_runtime::calls::Proof;
use conclave_runtime::config::Config;
use conclave_runtime::delivery::DeliveryState;
use conclave_runtime::endpoints::HookRefusal;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::native::{self, Deliver, Failure, Plugin, Receive};
use conclave_runtime::plugin_query::{
    ChannelDelivery, ChannelReception, ChannelRequest, ReceivedMessage,
};
use conclave_runtime::request::Announcement;
use conclave_runtime::secrets::{SecretSource, Sources};
use conclave_runtime::{Host, HostOptions, Prepared, RoomGuard, RoomHandle, RunInput, RunOptions};

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

type Script = Arc<Mutex<VecDeque<Result<ChannelDelivery, Failure>>>>;
/// The attempts so far: id, number, conversation.
type Attempts = Arc<Mutex<Vec<(String, u32, Option<String>)>>>;

/// A config with a channel whose plugin answers as scripted, and then accepts.
async fn prepared(
    script: Vec<Result<ChannelDelivery, Failure>>,
    lines: &str,
) -> (Prepared, Attempts) {
    let (script, attempts): (Script, Attempts) =
        (Arc::new(Mutex::new(script.into())), Arc::default());
    let seen = Arc::clone(&attempts);
    let pager = Plugin::channel("pager", move |ask: Deliver| {
        let message = ask.message;
        seen.lock().unwrap().push((message.id, message.attempt, message.conversation));
        let answer = script.lock().unwrap().pop_front();
        let accepted = Ok(ChannelDelivery::Delivered { remote_id: None });
        async move { answer.unwrap_or(accepted) }
    });
    // Each line of the body is a message: its sender stands before the text.
    let pager = pager.with_reception(|ask: Receive| async move {
        let token = ask.request.headers.iter().find(|(name, _)| name == "x-token");
        let is_known =
            token.is_some_and(|(_, token)| ask.host.verify(&Proof::Token(token.clone())));
        let text = String::from_utf8_lossy(&ask.request.body).into_owned();
        if !is_known && !text.contains("forged") {
            return Ok(ChannelReception::Refused { reason: "wrong token".to_owned() });
        }
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let messages = lines.enumerate().map(|(number, (sender, text))| ReceivedMessage {
            id: format!("m{number}"),
            sender: sender.to_owned(),
            conversation: "C1".to_owned(),
            text: text.to_owned(),
        });
        Ok(ChannelReception::Messages { messages: messages.collect() })
    });
    let desk = Plugin::agent("desk", |step: native::Step| async move {
        Ok(native::finish(format!("You said: {}", step.text())))
    });
    let secrets: Arc<dyn SecretSource> = Arc::new(Sources::new(|_| Some(SECRET.to_owned())));
    let options = HostOptions { native: vec![desk, pager], secrets, ..HostOptions::default() };
    let text = format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[plugins.pager]\n\
         source = \"native:pager\"\n[tasks.desk]\nagent = \"desk\"\n[channels.duty]\n\
         kind = \"plugin\"\nplugin = \"pager\"\nsenders = [\"ada\"]\n\
         secret = {{ env = \"PAGER\" }}\n{lines}\n"
    );
    let config = Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
    (Host::new(options).unwrap().load(&config).await.unwrap(), attempts)
}

fn open(prepared: &Prepared, options: RunOptions) -> (RoomHandle, RoomGuard) {
    prepared.session(options).unwrap().open_room(RunInput::default())
}

fn hello() -> Announcement {
    Announcement {
        content: "Hello.".to_owned(),
        channel: Some("duty".into()),
        key: Some("hello".to_owned()),
        ..Announcement::default()
    }
}

fn later(after_ms: u64) -> Result<ChannelDelivery, Failure> {
    Ok(ChannelDelivery::Retry { after_ms: Some(after_ms), reason: "busy".to_owned() })
}

fn unknown() -> Result<ChannelDelivery, Failure> {
    Ok(ChannelDelivery::Unknown { reason: "it broke off".to_owned() })
}

#[tokio::test]
async fn attempts_have_one_id_and_end_as_the_plugin_knows() {
    let refused = Ok(ChannelDelivery::Refused { reason: "no such chat".to_owned() });
    let failed = Err(Failure::new("oops"));
    for (script, lines, attempts, says) in [
        (vec![], "", 1, ""),
        (vec![later(1)], "", 2, ""),
        (vec![later(1), later(1)], "attempts = 2", 2, "busy"),
        // The pause that it asks for is longer than all attempts may take.
        (vec![later(60_000)], "timeout = \"5 s\"", 1, "busy"),
        (vec![refused], "", 1, "no such chat"),
        (vec![unknown()], "", 1, "unknown: it broke off"),
        (vec![unknown()], "deduplicates = true", 2, ""),
        // Nobody sees what a plugin of the program did before it failed.
        (vec![failed], "", 1, "unknown: the plugin failed"),
    ] {
        let (prepared, seen) = prepared(script, lines).await;
        let (room, _guard) = open(&prepared, RunOptions::default());
        match room.announce(hello()).await {
            Ok(announced) => {
                assert!(says.is_empty() && announced.delivery.state == DeliveryState::Delivered);
            }
            Err(refusal) => {
                assert!(!says.is_empty() && refusal.message.contains(says), "{refusal:?}");
            }
        }
        let seen = seen.lock().unwrap().clone();
        let numbers: Vec<u32> = seen.iter().map(|(_, number, _)| *number).collect();
        assert_eq!(numbers, (1..=attempts).collect::<Vec<_>>(), "{says}");
        assert!(seen.iter().all(|(id, ..)| *id == seen[0].0 && id.starts_with("msg_")));
    }
}

#[tokio::test]
async fn a_conversation_has_the_address_of_its_principal_on_this_channel_alone() {
    for (principal, address) in [
        ("channel:duty/C1:17", Some("C1:17")),
        ("channel:duty", None),
        ("channel:dutys/C1", None),
        ("channel:other/C1", None),
        ("operator", None),
    ] {
        let (prepared, seen) = prepared(Vec::new(), "").await;
        let principal = conclave_runtime::event::Principal(principal.into());
        let (room, _guard) = open(&prepared, RunOptions { principal, ..RunOptions::default() });
        room.announce(hello()).await.unwrap();
        assert_eq!(seen.lock().unwrap()[0].2.as_deref(), address);
    }
}

async fn receive(prepared: &Prepared, token: &str, body: &str) -> Result<Vec<String>, HookRefusal> {
    let request = ChannelRequest {
        headers: vec![("x-token".to_owned(), token.to_owned())],
        query: String::new(),
        body: body.as_bytes().to_vec(),
        time: 1,
    };
    let calls = &**prepared.calls();
    match prepared.endpoints().receive(calls, &"duty".into(), request).await? {
        ChannelReception::Messages { messages } => {
            Ok(messages.into_iter().map(|message| message.text).collect())
        }
        reception => panic!("{reception:?}"),
    }
}

#[tokio::test]
async fn a_request_counts_if_it_was_verified_and_its_senders_may_speak() {
    let (prepared, _) = prepared(Vec::new(), "").await;
    let texts = receive(&prepared, SECRET, "ada hello\neve let me in\nada again").await;
    assert_eq!(texts, Ok(vec!["hello".to_owned(), "again".to_owned()]));
    let wrong = receive(&prepared, "a guess", "ada hello").await;
    assert_eq!(wrong, Err(HookRefusal::Refused("wrong token".to_owned())));
    // The plugin brings messages all the same.
    let forged = receive(&prepared, "a guess", "ada forged").await;
    assert!(matches!(forged, Err(HookRefusal::Refused(_))), "{forged:?}");
    // Nothing comes in without a secret.
    let (silent, _) = self::prepared(Vec::new(), "").await;
    let request =
        ChannelRequest { headers: Vec::new(), query: String::new(), body: Vec::new(), time: 1 };
    let missing = silent.endpoints().receive(&**silent.calls(), &"nobody".into(), request).await;
    assert_eq!(missing, Err(HookRefusal::Unsigned));
}

#[tokio::test]
async fn a_message_that_was_under_way_at_a_crash_is_not_repeated() {
    let (prepared, seen) = prepared(Vec::new(), "").await;
    let journals = MemoryJournals::default();
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let (room, guard) = open(&prepared, options);
    let id = room.room().clone();
    room.announce(hello()).await.unwrap();
    drop(guard);
    // The record of the end of the attempt was not written.
    let stored = MemoryJournals::default();
    let is_end = |event: &conclave_runtime::event::Event| {
        matches!(event, conclave_runtime::event::Event::Sent { .. })
    };
    let records = journals.records(&id).into_iter().take_while(|record| !is_end(&record.event));
    crate::rooms::put(&stored, &id, records);
    let options = RunOptions { journals: Arc::new(stored), ..RunOptions::default() };
    let session = prepared.reopen(&id, options).await.unwrap();
    assert!(session.is_cut_off());
    let (room, _guard) = session.resume_room();
    room.say("terminal", "And now?").await.unwrap();
    let ids = || seen.lock().unwrap().iter().map(|(id, ..)| id.clone()).collect::<Vec<_>>();
    let hello = ids()[0].clone();
    // The answer to a later message goes out behind a repetition.
    while ids().iter().all(|id| *id == hello) {
        tokio::task::yield_now().await;
    }
    assert_eq!(ids().iter().filter(|id| **id == hello).count(), 1);
}
