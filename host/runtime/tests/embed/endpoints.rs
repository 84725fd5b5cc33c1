//! Channels that the host serves itself, against a receiver on loopback: signatures, attempts,
//! redirects, addresses, and outcomes that nobody knows.

use std::io;
use std::sync::{Arc, Mutex};

use conclave_runtime::config::{Config, KeyRef};
use conclave_runtime::delivery::DeliveryState;
use conclave_runtime::event::Event;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::native::{self, Plugin};
use conclave_runtime::request::Announcement;
use conclave_runtime::secrets::{SecretSource, Sources};
use conclave_runtime::webhook::{SignedHeaders, WebhookSecret};
use conclave_runtime::{Host, HostOptions, Prepared, RoomGuard, RoomHandle, RunInput, RunOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::rooms::put;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What the receiver does with a request.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Answer(&'static str),
    /// Reads it, and breaks the connection off.
    BreakOff,
    /// Reads it, and never answers.
    Never,
}

/// A receiver with its requests so far.
#[derive(Clone)]
struct Receiver {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    arrived: Arc<Notify>,
}

impl Receiver {
    /// Reacts to the first requests as told, and accepts the others.
    async fn start(reactions: Vec<Reaction>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let receiver = Self { port, requests: Arc::default(), arrived: Arc::default() };
        let serving = receiver.clone();
        tokio::spawn(async move {
            let mut reactions = reactions.into_iter();
            let mut silent = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await.unwrap();
                serving.requests.lock().unwrap().push(request);
                serving.arrived.notify_one();
                match reactions.next().unwrap_or(Reaction::Answer("204 No Content")) {
                    Reaction::Answer(status) => {
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    Reaction::BreakOff => drop(stream),
                    Reaction::Never => silent.push(stream),
                }
            }
        });
        receiver
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads a request with its body.
async fn read(stream: &mut TcpStream) -> io::Result<String> {
    let mut text = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await?;
        text.extend_from_slice(&part[..count]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        let length = header(&so_far, "content-length").and_then(|length| length.parse().ok());
        let body = so_far.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if count == 0 || body.is_some_and(|body| body >= length.unwrap_or(0)) {
            return Ok(so_far);
        }
    }
}

fn header(request: &str, name: &str) -> Option<String> {
    let mut lines = request.split("\r\n").filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

async fn prepared(receiver: &Receiver, lines: &str) -> Prepared {
    let desk = Plugin::agent("desk", |step: native::Step| async move {
        Ok(native::finish(format!("You said: {}", step.text())))
    });
    let secrets: Arc<dyn SecretSource> = Arc::new(Sources::new(|_| Some(SECRET.to_owned())));
    let host = Host::new(HostOptions { native: vec![desk], secrets, ..HostOptions::default() });
    let text = format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[tasks.desk]\n\
         agent = \"desk\"\n[channels.hook]\nkind = \"webhook\"\naccess = \"read-only\"\n\
         url = \"http://127.0.0.1:{}/in?a=b\"\nsecret = {{ env = \"HOOK\" }}\n{lines}\n",
        receiver.port
    );
    let config = Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
    host.unwrap().load(&config).await.unwrap()
}

const LOCAL: &str = "private = [\"127.0.0.1\"]";

fn open(prepared: &Prepared, journals: &MemoryJournals) -> (RoomHandle, RoomGuard) {
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    prepared.session(options).unwrap().open_room(RunInput::default())
}

fn hello() -> Announcement {
    Announcement {
        content: "Hello.".to_owned(),
        channel: Some("hook".into()),
        key: Some("hello".to_owned()),
        ..Announcement::default()
    }
}

#[tokio::test]
async fn a_message_is_signed_so_that_its_receiver_can_verify_it() {
    let receiver = Receiver::start(Vec::new()).await;
    let prepared = prepared(&receiver, LOCAL).await;
    let (room, _guard) = open(&prepared, &MemoryJournals::default());
    room.announce(hello()).await.expect("it is accepted");
    room.say("terminal", "Good morning.").await.unwrap();
    receiver.arrived.notified().await;
    while receiver.requests().len() < 3 {
        receiver.arrived.notified().await;
    }
    let requests = receiver.requests();
    let texts = ["Hello.", ": Good morning.", "You said: Good morning."];
    for text in texts {
        let request = requests.iter().find(|request| request.contains(text)).expect(text);
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /in?a=b HTTP/1.1\r\n"), "{head}");
        let of = |name| header(head, name).unwrap_or_default();
        let (id, time, signatures) =
            (of("webhook-id"), of("webhook-timestamp"), of("webhook-signature"));
        let headers = SignedHeaders { id: &id, time: &time, signatures: &signatures };
        let secret = WebhookSecret::parse(SECRET).unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(secret.verify(&headers, body.as_bytes(), time.parse().unwrap()), Ok(()));
        assert_eq!(of("idempotency-key"), id);
        assert!(!request.contains("MfKQ9r8G"), "the secret stays here");
    }
}

#[tokio::test]
async fn an_attempt_is_repeated_under_its_id_and_no_more_often_than_allowed() {
    let busy = Reaction::Answer("503 Service Unavailable");
    for (busy_times, attempts, accepted) in [(1, 5, true), (9, 2, false)] {
        let receiver = Receiver::start(vec![busy; busy_times]).await;
        let prepared = prepared(&receiver, &format!("{LOCAL}\nattempts = {attempts}")).await;
        let (room, _guard) = open(&prepared, &MemoryJournals::default());
        let announced = room.announce(hello()).await;
        assert_eq!(announced.is_ok(), accepted, "{announced:?}");
        let ids: Vec<_> =
            receiver.requests().iter().map(|request| header(request, "webhook-id")).collect();
        assert_eq!(ids.len(), 2);
        assert!(ids[0].is_some() && ids[0] == ids[1], "{ids:?}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed_and_no_private_address_reached_without_leave() {
    let redirect = "302 Found\r\nlocation: http://127.0.0.1/elsewhere";
    let refusal = Reaction::Answer("410 Gone");
    for (lines, reactions, says, requests) in [
        (LOCAL, vec![Reaction::Answer(redirect)], "redirect", 1),
        (LOCAL, vec![refusal], "410", 1),
        ("", Vec::new(), "loopback", 0),
        ("private = [\"10.0.0.0/8\"]", Vec::new(), "loopback", 0),
    ] {
        let receiver = Receiver::start(reactions).await;
        let prepared = prepared(&receiver, lines).await;
        let (room, _guard) = open(&prepared, &MemoryJournals::default());
        let refusal = room.announce(hello()).await.expect_err("it is refused");
        assert!(refusal.message.contains(says), "{refusal:?}");
        assert_eq!(receiver.requests().len(), requests);
    }
}

#[tokio::test]
async fn what_may_have_arrived_is_sent_again_only_to_a_receiver_that_drops_it() {
    for (deduplicates, requests) in [(false, 1), (true, 2)] {
        let receiver = Receiver::start(vec![Reaction::BreakOff]).await;
        let lines = format!("{LOCAL}\ndeduplicates = {deduplicates}");
        let prepared = prepared(&receiver, &lines).await;
        let (room, _guard) = open(&prepared, &MemoryJournals::default());
        match room.announce(hello()).await {
            Ok(announced) => {
                assert!(deduplicates && announced.delivery.state == DeliveryState::Delivered);
            }
            Err(refusal) => assert!(refusal.message.contains("unknown"), "{refusal:?}"),
        }
        assert_eq!(receiver.requests().len(), requests, "deduplicates = {deduplicates}");
    }
}

#[tokio::test]
async fn after_a_crash_the_outcome_is_unknown_and_nothing_is_repeated_silently() {
    for (deduplicates, requests) in [(false, 1), (true, 2)] {
        let receiver = Receiver::start(vec![Reaction::Never]).await;
        let lines = format!("{LOCAL}\ndeduplicates = {deduplicates}");
        let prepared = prepared(&receiver, &lines).await;
        let journals = MemoryJournals::default();
        let (room, guard) = open(&prepared, &journals);
        let id = room.room().clone();
        let announcing = tokio::spawn(async move { room.announce(hello()).await });
        receiver.arrived.notified().await;
        // The host stops between the attempt and its answer.
        drop(guard);
        let _ = announcing.await;
        let stored = MemoryJournals::default();
        let is_stop = |event: &Event| matches!(event, Event::Cancelled { .. });
        let records = journals.records(&id).into_iter();
        put(&stored, &id, records.take_while(|record| !is_stop(&record.event)));
        let options = RunOptions { journals: Arc::new(stored), ..RunOptions::default() };
        let session = prepared.reopen(&id, options).await.unwrap();
        assert!(session.is_cut_off());
        let (room, _guard) = session.resume_room();
        room.say("terminal", "And now?").await.unwrap();
        let ids = || {
            let hello: Vec<_> = receiver.requests();
            let hello = hello.into_iter().filter(|request| request.contains("Hello."));
            hello.map(|request| header(&request, "webhook-id")).collect::<Vec<_>>()
        };
        let is_answered =
            || receiver.requests().iter().any(|request| request.contains("You said: And now?"));
        while !is_answered() || ids().len() < requests {
            receiver.arrived.notified().await;
        }
        let ids = ids();
        assert_eq!(ids.len(), requests);
        assert!(ids.iter().all(|other| *other == ids[0]), "{ids:?}");
    }
}

#[tokio::test]
async fn a_missing_secret_is_a_problem_of_the_config() {
    let receiver = Receiver::start(Vec::new()).await;
    let secrets = Sources::new(|_| None);
    assert!(secrets.check(&KeyRef::Env("HOOK".to_owned())).is_err());
    let desk = Plugin::agent("desk", |_| async move { Ok(native::finish("done")) });
    let options =
        HostOptions { native: vec![desk], secrets: Arc::new(secrets), ..HostOptions::default() };
    let text = format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[tasks.desk]\n\
         agent = \"desk\"\n[channels.hook]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{}/\"\n\
         secret = {{ env = \"HOOK\" }}\n",
        receiver.port
    );
    let config = Config::parse("c.toml", "", &text).unwrap();
    let problems = Host::new(options).unwrap().load(&config).await.err().expect("it is refused");
    assert!(problems.to_string().contains("the secret of the channel `hook`"), "{problems}");
}
