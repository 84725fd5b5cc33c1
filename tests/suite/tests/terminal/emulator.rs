//! A terminal with the program in it: a pseudoterminal whose screen is an emulator's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};

use conclave_test_support::{Rig, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::MARK;

const ROWS: u16 = 70;
/// Looks at the screen between two keys that may not be heard: by far more than the moment in
/// which a question hears none.
const LOOKS: u32 = 50;

/// A terminal with the program in it.
pub(super) struct Terminal {
    master: File,
    screen: vt100::Parser,
    child: Child,
}

impl Terminal {
    pub(super) fn start(rig: &Rig, arguments: &[&str], columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal opens");
        // The program must not hold its own terminal open.
        fcntl_setfd(&master, FdFlags::CLOEXEC).expect("it is open");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let name = name.into_string().expect("in ASCII");
        let other_end = File::options().read(true).write(true).open(name);
        let other_end: OwnedFd = other_end.expect("its other end opens").into();
        let master = File::from(master);
        set_size(&master, columns);
        let end = || other_end.try_clone().expect("an end can be shared");
        let mut command = rig.conclave(arguments);
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("the program runs");
        Self { master, screen: parser(columns), child }
    }

    /// Reads until the screen is so.
    pub(super) fn until(&mut self, what: &str, mut is_so: impl FnMut(&[String]) -> bool) {
        while !is_so(&self.rows()) {
            assert!(self.read(), "it ended before {what}:\n{}", self.screen.screen().contents());
        }
    }

    /// Reads until a row of the program's own on the screen ends so: with a prompt, which is there
    /// once keys are read.
    pub(super) fn until_prompt(&mut self, end: &str) {
        let is_prompt = |row: &String| row.ends_with(end) && !row.contains(MARK);
        self.until(&format!("{end:?}"), |rows| rows.iter().any(is_prompt));
    }

    /// Reads until the last row of the screen ends so, and one of the program's own has this.
    pub(super) fn until_prompt_below(&mut self, own: &str, end: &str) {
        let is_own = |row: &String| row.contains(own) && !row.contains(MARK);
        self.until(&format!("{own:?} and {end:?}"), |rows| {
            let last = rows.iter().rfind(|row| !row.is_empty());
            last.is_some_and(|row| row.ends_with(end)) && rows.iter().any(is_own)
        });
    }

    /// Types blanks at a prompt until one is heard. A question that comes unasked hears no key in
    /// its first moment, and each that comes then makes the moment longer; and a Ctrl-C between two
    /// looks of the program at its keys would be a signal, which only a controlling terminal sends.
    pub(super) fn until_heard(&mut self) {
        let mut looks = 0;
        until("a key that is heard", || {
            if looks % LOOKS == 0 {
                self.types(" ");
            }
            looks += 1;
            while self.has_more() {
                assert!(self.read(), "it ended:\n{}", self.screen.screen().contents());
            }
            let (row, column) = self.screen.screen().cursor_position();
            let rows = self.rows();
            let line = rows.get(usize::from(row)).filter(|row| row.ends_with(['>', '}']))?;
            // A prompt has a blank of its own.
            let own = usize::from(line.ends_with('>'));
            (usize::from(column) > line.chars().count() + own).then_some(())
        });
    }

    /// Something can be read at once.
    fn has_more(&self) -> bool {
        let mut waiting = [PollFd::new(&self.master, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut waiting, Some(&now)).expect("a terminal can be asked") > 0
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

    pub(super) fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it can be typed to");
    }

    /// Answers the question of a run, once it hears its keys.
    pub(super) fn answers(&mut self, line: &str) {
        self.until_heard();
        self.types(&format!("{line}\r"));
    }

    /// The window is made narrower or wider. Rows that no longer fit go on in the next one, as many
    /// terminals have it: the program has not written where they break.
    pub(super) fn resizes(&mut self, columns: u16) {
        let mut rows = self.rows();
        let (_, column) = self.screen.screen().cursor_position();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        // The cursor stays behind the blank of its prompt.
        if let Some(last) = rows.last_mut() {
            let blanks = usize::from(column).saturating_sub(last.chars().count());
            last.push_str(&" ".repeat(blanks));
        }
        self.screen = parser(columns);
        self.screen.process(rows.join("\r\n").as_bytes());
        set_size(&self.master, columns);
        // It is not the program's controlling terminal, so nobody else says so.
        let child = Pid::from_child(&self.child);
        kill_process(child, Signal::WINCH).expect("it is ours");
    }

    pub(super) fn ends(&mut self) -> (ExitStatus, Vec<String>) {
        while self.child.try_wait().expect("it is ours").is_none() {
            self.read();
        }
        // What it wrote last.
        while self.has_more() && self.read() {}
        (self.child.wait().expect("it ends"), self.rows())
    }

    /// The terminal goes away, as when its window is closed.
    pub(super) fn vanishes(mut self) -> ExitStatus {
        self.master = File::open("/dev/null").expect("it is always there");
        self.child.wait().expect("it ends")
    }

    pub(super) fn rows(&self) -> Vec<String> {
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

fn set_size(terminal: &File, columns: u16) {
    let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal.as_fd(), size).expect("it has a size");
}

fn parser(columns: u16) -> vt100::Parser {
    let number = |number: u16| number.try_into().expect("more than nothing");
    vt100::Parser::new(number(ROWS), number(columns), 0)
}
