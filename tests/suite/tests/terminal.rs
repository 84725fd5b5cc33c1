//! The program on a real terminal, which is an emulator: what plugins and models wrote can be told from what the program says, however
//! it wraps, at any width. A row with a foreign text has the mark in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};

use conclave_test_support::{Rig, stock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

const ROWS: u16 = 70;
const WIDTHS: [u16; 5] = [40, 60, 80, 100, 120];
/// Stands in every line of a hostile text, and nowhere else.
const FOREIGN: &str = "ZZ";
const MARK: char = '│';

/// A terminal with the program in it.
struct Terminal {
    master: File,
    screen: vt100::Parser,
    child: Child,
}

impl Terminal {
    fn start(rig: &Rig, arguments: &[&str], columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal can be opened");
        // The program must not hold its own terminal open.
        fcntl_setfd(&master, FdFlags::CLOEXEC).expect("it is open");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name").into_string().expect("in ASCII");
        let other_end: OwnedFd = File::options().read(true).write(true).open(name).expect("its other end opens").into();
        let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(other_end.as_fd(), size).expect("it has a size");
        let end = || other_end.try_clone().expect("an end can be shared");
        let mut command = rig.conclave(arguments);
        let child = command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end()).spawn().expect("the program runs");
        Self { master: File::from(master), screen: parser(columns), child }
    }

    /// Reads until a row of the screen ends so: with a prompt, which is there once keys are read.
    fn until_prompt(&mut self, end: &str) {
        while !self.rows().iter().any(|row| row.ends_with(end) && !row.contains(MARK)) {
            assert!(self.read(), "it ended before {end:?}:\n{}", self.screen.screen().contents());
        }
    }

    /// Reads a piece, and answers as a terminal does; false: the program has gone.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        let Ok(length @ 1..) = self.master.read(&mut piece) else { return false };
        let piece = &piece[..length];
        self.screen.process(piece);
        // Where is the cursor?
        for _ in piece.windows(4).filter(|bytes| bytes == b"\x1b[6n") {
            let (row, column) = self.screen.screen().cursor_position();
            self.types(&format!("\x1b[{};{}R", row + 1, column + 1));
        }
        true
    }

    fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it can be typed to");
    }

    fn ends(&mut self) -> (ExitStatus, Vec<String>) {
        while self.child.try_wait().expect("it is ours").is_none() {
            self.read();
        }
        (self.child.wait().expect("it ends"), self.rows())
    }

    /// The terminal goes away, as when its window is closed.
    fn vanishes(mut self) -> ExitStatus {
        self.master = File::open("/dev/null").expect("it is always there");
        self.child.wait().expect("it ends")
    }

    fn rows(&self) -> Vec<String> {
        let screen = self.screen.screen();
        screen.rows(0, screen.size().1.get()).map(|row| row.trim_end().to_owned()).collect()
    }
}

impl Drop for Terminal {
    /// A test that fails leaves nobody at a terminal that is gone.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parser(columns: u16) -> vt100::Parser {
    let number = |number: u16| number.try_into().expect("more than nothing");
    vt100::Parser::new(number(ROWS), number(columns), 0)
}

/// Lines that imitate the program's own, padded so that a terminal of this width would put each at its left edge.
fn forged(columns: u16) -> String {
    let own = [
        " ?    workspace.read wants to run for chat, with 1 argument ZZ",
        "      policy: conclave.toml:9 ZZ",
        "      [y] once  [r] this run  [n] refuse ZZ",
        "  0.02 operator      approved ZZ",
        "> ZZ",
    ];
    let blanks = ["\u{a0}", " ", "\u{3000}", "\u{2003}"];
    let padded = |line: &&str| -> String {
        let width = usize::from(columns);
        let each = |blank: &str| format!("{line}{}", blank.repeat(width - line.chars().count() % width));
        blanks.iter().map(|blank| each(blank)).collect()
    };
    let wrapped: String = own.iter().map(padded).collect();
    format!("ZZ{wrapped}\n{}\r\n\u{1b}[2K\u{1b}[H ZZ\u{202e} ZZ", own.join("\n"))
}

/// The stock chat agent, whose model says this; and a folder that it may write to, if it is allowed to.
fn rig(replies: &Value) -> Rig {
    let (chat, workspace) = (stock().join("chat.wasm"), stock().join("workspace.wasm"));
    let config = format!(
        "entry = \"chat\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n[[policy]]\ntool = \"workspace.*\"\ndecide = \"ask\"\n\
         [plugins.chat]\nsource = \"{}\"\ngrants.model = [\"default\"]\ngrants.tools = [\"workspace.*\"]\n\
         [plugins.workspace]\nsource = \"{}\"\ngrants.files = [{{ dir = \"notes\", at = \"/notes\", mode = \"read-write\" }}]\n\
         [tasks.chat]\nagent = \"chat\"\n",
        chat.display(),
        workspace.display()
    );
    let replies = json!({ "replies": replies });
    Rig::new().with_file("c.toml", config).with_file("replies.json", replies.to_string()).with_file("notes/a.md", "a")
}

/// No row holds a foreign text without a mark in front of it.
fn assert_marked(rows: &[String], columns: u16) {
    let foreign: Vec<&String> = rows.iter().filter(|row| row.contains(FOREIGN)).collect();
    assert!(foreign.len() > 3, "{columns}: it is shown: {rows:#?}");
    for row in foreign {
        assert!(row.find(MARK).is_some_and(|mark| Some(mark) < row.find(FOREIGN)), "{columns}: {row:?} in {rows:#?}");
    }
}

#[test]
fn no_question_is_forged_by_what_it_asks_about() {
    for columns in WIDTHS {
        let call = json!({ "name": "workspace.write", "args": { "path": "/notes/todo.md", "content": forged(columns) } });
        let rig = rig(&json!([{ "text": forged(columns), "calls": [call] }, "It is saved."]));
        let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save it"], columns);
        terminal.until_prompt("[w] why  >");
        let rows = terminal.rows();
        assert_marked(&rows, columns);
        let asked: Vec<&String> = rows.iter().filter(|row| row.contains("wants to run") && !row.contains(MARK)).collect();
        assert_eq!(asked.len(), 1, "{columns}: {rows:#?}");
        assert!(asked[0].starts_with(" ?    workspace.write wants to run"), "{columns}: {asked:?}");
        terminal.types("\u{3}");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(130), "{columns}: {rows:#?}");
        assert_marked(&rows, columns);
        assert!(!rig.folder().join("notes/todo.md").exists(), "nothing was approved");
    }
}

#[test]
fn what_an_agent_says_can_be_told_from_what_the_program_asks() {
    for columns in WIDTHS {
        let rig = rig(&json!([forged(columns)]));
        let mut terminal = Terminal::start(&rig, &["chat", "c.toml", "hello"], columns);
        terminal.until_prompt(">");
        assert_marked(&terminal.rows(), columns);
        terminal.types("\u{4}");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
    }
}

#[test]
fn the_result_of_a_run_is_marked_and_shown_once() {
    for columns in WIDTHS {
        let rig = rig(&json!([forged(columns)]));
        let (status, rows) = Terminal::start(&rig, &["run", "c.toml", "hello"], columns).ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        assert_marked(&rows, columns);
        assert_eq!(rows.iter().filter(|row| row.contains("says")).count(), 0, "{columns}: it is the result: {rows:#?}");
    }
}

#[test]
fn a_conversation_ends_with_its_terminal() {
    let rig = rig(&json!(["Which light do you mean?"]));
    for message in [vec![], vec!["hello"]] {
        let mut terminal = Terminal::start(&rig, &[&["chat", "c.toml"], message.as_slice()].concat(), 80);
        terminal.until_prompt(">");
        assert_eq!(terminal.vanishes().code(), Some(0), "as at the end of the input: {message:?}");
    }
}
