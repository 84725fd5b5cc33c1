//! The terminal's own echo: off while an agent talks, so that what is typed meanwhile does not end
//! up in the middle of its text. What is typed then is not lost; the next prompt shows it. Knows
//! nothing of lines.

#[cfg(unix)]
mod terminal {
    use std::io::stdin;
    use std::sync::{Mutex, PoisonError};

    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// The terminal as it was; none while it is.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    pub(in crate::ui::person) fn turn_off() {
        let mut kept = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = tcgetattr(stdin()) else { return };
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        // What is kept already is older, and without a change of ours.
        if tcsetattr(stdin(), OptionalActions::Now, &quiet).is_ok() && kept.is_none() {
            *kept = Some(before);
        }
    }

    pub(in crate::ui::person) fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }
}

#[cfg(not(unix))]
mod terminal {
    pub(in crate::ui::person) fn turn_off() {}

    pub(in crate::ui::person) fn restore() {}
}

pub(super) use terminal::{restore, turn_off};
