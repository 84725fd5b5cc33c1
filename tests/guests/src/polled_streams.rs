//! Writes files as a polling language runtime does: through several non-blocking streams of
//! `wasi:io` at once. A tool, and an agent that asks a model in between. The answer contains all
//! results.

use conclave_sdk::bindings::imports::conclave::plugin::types::Draft;
use conclave_sdk::model::{Part, Request};
use conclave_sdk::{Agent, Error, Json, Result, Role, Turn, View, finish, model, tool};
use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::{OutputStream, StreamError};

type Told = std::result::Result<String, String>;

/// Opens a file of `/box`, created if it is absent.
fn open(name: &str) -> std::result::Result<Descriptor, String> {
    let (folder, _) =
        get_directories().into_iter().find(|(_, at)| at == "/box").ok_or("no /box")?;
    let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
    folder
        .open_at(PathFlags::empty(), name, OpenFlags::CREATE, flags)
        .map_err(|error| format!("{name}: {error:?}"))
}

fn stream(name: &str) -> std::result::Result<OutputStream, String> {
    open(name)?.write_via_stream(0).map_err(|error| format!("{name}: {error:?}"))
}

fn word<T>(done: std::result::Result<T, StreamError>) -> std::result::Result<T, String> {
    done.map_err(|error| match error {
        StreamError::Closed => "closed".to_owned(),
        StreamError::LastOperationFailed(_) => "failed".to_owned(),
    })
}

/// Polls whether the stream is ready, and never waits.
fn asked(name: &str) -> Told {
    let stream = stream(name)?;
    let pollable = stream.subscribe();
    let mut asked = 0_u32;
    let mut until_ready = || -> std::result::Result<(), String> {
        while word(stream.check_write())? == 0 {
            pollable.ready();
            asked += 1;
        }
        // One poll more than needed.
        pollable.ready();
        Ok(())
    };
    for piece in ["one ", "two ", "three"] {
        until_ready()?;
        word(stream.write(piece.as_bytes()))?;
        word(stream.flush())?;
        pollable.ready();
    }
    until_ready()?;
    Ok(format!("asked {asked} times"))
}

/// Waits for one stream.
fn blocked(name: &str) -> Told {
    let stream = stream(name)?;
    let pollable = stream.subscribe();
    for piece in ["one ", "two ", "three"] {
        pollable.block();
        word(stream.check_write())?;
        word(stream.write(piece.as_bytes()))?;
        word(stream.flush())?;
    }
    pollable.block();
    Ok(format!("may write {}", word(stream.check_write())?))
}

/// Writes to each of these streams when it is ready, one of them at the end of a file, beside a
/// timer. Reports which were ready.
fn several(names: &[String; 3]) -> Told {
    let [one, other, end] = names;
    let appends = open(end)?.append_via_stream().map_err(|error| format!("{end}: {error:?}"))?;
    let streams = [stream(one)?, stream(other)?, appends];
    let pollables: Vec<Pollable> = streams.iter().map(OutputStream::subscribe).collect();
    let timer = subscribe_duration(3_600_000_000_000);
    let lengths: [&[usize]; 3] = [&[10, 60_000, 3], &[5_000, 1], &[7, 70, 700, 7_000]];
    let mut written = [0; 3];
    let mut told = Vec::new();
    while written.iter().zip(lengths).any(|(written, lengths)| *written < lengths.len()) {
        let open: Vec<usize> =
            (0..3).filter(|index| written[*index] < lengths[*index].len()).collect();
        let waits: Vec<&Pollable> =
            open.iter().map(|index| &pollables[*index]).chain([&timer]).collect();
        let ready = poll(&waits);
        told.push(format!("{ready:?}"));
        for index in ready.into_iter().filter_map(|ready| open.get(ready as usize).copied()) {
            let length = lengths[index][written[index]];
            if word(streams[index].check_write())? < length as u64 {
                continue;
            }
            let byte = b'a' + u8::try_from(index * 8 + written[index]).unwrap_or_default();
            word(streams[index].write(&vec![byte; length]))?;
            word(streams[index].flush())?;
            written[index] += 1;
        }
    }
    for (pollable, stream) in pollables.iter().zip(&streams) {
        pollable.block();
        word(stream.check_write())?;
    }
    Ok(told.join(" "))
}

/// Writes and drops the stream, without a flush and without a wait.
fn dropped(name: &str) -> Told {
    let stream = stream(name)?;
    word(stream.check_write())?;
    word(stream.write(b"let go"))?;
    drop(stream);
    Ok("let go".to_owned())
}

/// Writes zeroes and bytes of another file, without a wait.
fn moved(zeroes: &str, spliced: &str) -> Told {
    let stream_of_zeroes = stream(zeroes)?;
    word(stream_of_zeroes.check_write())?;
    word(stream_of_zeroes.write_zeroes(100))?;
    let from = open("in.txt")?.read_via_stream(0).map_err(|error| format!("{error:?}"))?;
    let to = stream(spliced)?;
    let mut moved = word(to.splice(&from, 5))?;
    while word(to.check_write())? == 0 {
        to.subscribe().block();
    }
    moved += word(to.splice(&from, 64))?;
    Ok(format!("moved {moved}"))
}

/// Everything, into files that begin with this.
fn work(name: &str) -> Vec<String> {
    let of = |file: &str| format!("{name}-{file}");
    let names = ["left", "right", "end"].map(of);
    let done = [
        asked(&of("asked")),
        blocked(&of("blocked")),
        several(&names),
        dropped(&of("dropped")),
        moved(&of("zeroes"), &of("spliced")),
    ];
    let files = ["asked", "blocked", "left", "right", "end", "dropped", "zeroes", "spliced"];
    let lengths = files.map(|file| {
        let length = std::fs::read(format!("/box/{}", of(file))).map(|bytes| bytes.len());
        format!("{file} {length:?}")
    });
    done.into_iter()
        .map(|told| told.unwrap_or_else(|error| format!("ERROR {error}")))
        .chain(lengths)
        .collect()
}

/// Does it all.
#[tool]
fn run() -> Json<Vec<String>> {
    Json(work("tool"))
}

/// Writes past the folder's quota; each entry is what a look at the stream came to afterwards.
#[tool]
fn fails() -> Json<Vec<String>> {
    let told = |what: &str, done: std::result::Result<u64, String>| format!("{what}: {done:?}");
    let tried = || -> std::result::Result<Vec<String>, String> {
        let stream = stream("full")?;
        let pollable = stream.subscribe();
        let mut lines = vec![told("first", word(stream.write(&[b'x'; 8_000])).map(|()| 0))];
        pollable.block();
        lines.push(told("check", word(stream.check_write())));
        lines.push(told("second", word(stream.write(&[b'x'; 8_000])).map(|()| 0)));
        pollable.block();
        lines.push(told("check", word(stream.check_write())));
        lines.push(told("check", word(stream.check_write())));
        lines.push(told("flush", word(stream.flush()).map(|()| 0)));
        lines.push(told("third", word(stream.write(b"x")).map(|()| 0)));
        Ok(lines)
    };
    Json(tried().unwrap_or_else(|error| vec![format!("ERROR {error}")]))
}

struct Polls;

impl Agent for Polls {
    fn step(_: &View) -> Result<Turn> {
        let mut told = work("first");
        let draft = Draft {
            role: Role::User,
            content: "between".to_owned(),
            tool_calls: vec![],
            tool_results: vec![],
            attachments: vec![],
        };
        let request =
            Request { prompt: vec![Part::Draft(draft)], stream: false, ..Request::default() };
        told.push(model::complete(&request).map_err(Error::from)?.content.unwrap_or_default());
        told.extend(work("second"));
        Ok(finish(told.join("\n")))
    }
}

conclave_sdk::export!(tools: [run, fails], agent: Polls, manifest: "manifests/polled_streams.toml");
