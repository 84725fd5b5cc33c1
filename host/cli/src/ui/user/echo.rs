//! The terminal's echo, which is off while an agent's text streams, so that input does not mix with
//! it. Input from that time is kept, and the next prompt shows it. This module knows nothing of
//! lines.

#[cfg(unix)]
mod terminal {
    use std::io::stdin;
    use std::sync::{Mutex, PoisonError};

    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// The terminal's attributes before the change; `None` while they are unchanged.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    pub(in crate::ui::user) fn turn_off() {
        let mut saved = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = tcgetattr(stdin()) else { return };
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        // Attributes that are stored already are older, and without this program's change.
        if tcsetattr(stdin(), OptionalActions::Now, &quiet).is_ok() && saved.is_none() {
            *saved = Some(before);
        }
    }

    pub(in crate::ui::user) fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }
}

#[cfg(not(unix))]
mod terminal {
    pub(in crate::ui::user) fn turn_off() {}

    pub(in crate::ui::user) fn restore() {}
}

pub(super) use terminal::{restore, turn_off};
