//! A pseudoterminal with the program in it, whose screen is emulated.

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
/// The number of looks at the screen between two keys that the program may ignore. Far more than
/// the time in which a question ignores keys.
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
        // The program must not keep its own terminal open.
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

    /// Reads until the screen satisfies the condition.
    pub(super) fn until(&mut self, what: &str, mut is_so: impl FnMut(&[String]) -> bool) {
        while !is_so(&self.rows()) {
            assert!(self.read(), "it ended before {what}:\n{}", self.screen.screen().contents());
        }
    }

    /// Reads until one of the program's own rows ends with this prompt, which appears once keys are
    /// read.
    pub(super) fn until_prompt(&mut self, end: &str) {
        let is_prompt = |row: &String| row.ends_with(end) && !row.contains(MARK);
        self.until(&format!("{end:?}"), |rows| rows.iter().any(is_prompt));
    }

    /// Reads until the last row of the screen ends with `end`, and one of the program's own rows
    /// contains `own`.
    pub(super) fn until_prompt_below(&mut self, own: &str, end: &str) {
        let is_own = |row: &String| row.contains(own) && !row.contains(MARK);
        self.until(&format!("{own:?} and {end:?}"), |rows| {
            let last = rows.iter().rfind(|row| !row.is_empty());
            last.is_some_and(|row| row.ends_with(end)) && rows.iter().any(is_own)
        });
    }

    /// Types blanks at a prompt until two are accepted. An unexpected question ignores keys at
    /// first, and each early key extends that time. One blank on the screen proves nothing: between
    /// two reads of the program the terminal itself echoes a key, which the program then ignores. A
    /// Ctrl-C between two reads would be a signal, which only a controlling terminal sends.
    pub(super) fn until_heard(&mut self) {
        let (mut looks, mut before) = (LOOKS, 0);
        until("a key that is heard", || {
            while self.has_more() {
                assert!(self.read(), "it ended:\n{}", self.screen.screen().contents());
            }
            let blanks = self.typed_blanks();
            // The next key follows once the last one has appeared, or was ignored.
            if blanks < 2 && (looks >= LOOKS || blanks > before) {
                self.types(" ");
                (looks, before) = (0, blanks);
            }
            looks += 1;
            (blanks >= 2).then_some(())
        });
    }

    /// Returns the number of blanks between the prompt and the cursor.
    fn typed_blanks(&self) -> usize {
        let (row, column) = self.screen.screen().cursor_position();
        let rows = self.rows();
        let line = rows.get(usize::from(row)).filter(|row| row.ends_with(['>', '}']));
        // The prompt itself ends with a blank.
        let prompt = line.map(|line| line.chars().count() + usize::from(line.ends_with('>')));
        prompt.map_or(0, |prompt| usize::from(column).saturating_sub(prompt))
    }

    /// Returns whether input is available at once.
    fn has_more(&self) -> bool {
        let mut waiting = [PollFd::new(&self.master, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut waiting, Some(&now)).expect("a terminal can be asked") > 0
    }

    /// Reads a chunk and answers as a terminal does. Returns false if the program has exited.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        let Ok(length @ 1..) = self.master.read(&mut piece) else { return false };
        let piece = &piece[..length];
        self.screen.process(piece);
        // The escape sequence asks for the cursor position.
        for _ in piece.windows(4).filter(|bytes| bytes == b"\x1b[6n") {
            let (row, column) = self.screen.screen().cursor_position();
            self.types(&format!("\x1b[{};{}R", row + 1, column + 1));
        }
        true
    }

    pub(super) fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it can be typed to");
    }

    /// Answers the question of a run, once it accepts keys.
    pub(super) fn answers(&mut self, line: &str) {
        self.until_heard();
        self.types(&format!("{line}\r"));
    }

    /// Resizes the window. Rows that no longer fit are broken by the terminal, as in many real
    /// ones, without the knowledge of the program.
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
        // This is not the program's controlling terminal, so the kernel sends no SIGWINCH.
        let child = Pid::from_child(&self.child);
        kill_process(child, Signal::WINCH).expect("it is ours");
    }

    pub(super) fn ends(&mut self) -> (ExitStatus, Vec<String>) {
        while self.child.try_wait().expect("it is ours").is_none() {
            self.read();
        }
        // Read the last output of the program.
        while self.has_more() && self.read() {}
        (self.child.wait().expect("it ends"), self.rows())
    }

    /// Closes the terminal, like its window.
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
    /// A failing test must not leave a program at a closed terminal.
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
