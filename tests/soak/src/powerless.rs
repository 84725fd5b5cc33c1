//! The platforms without FUSE, on which no power can be cut.

use std::path::Path;

use crate::random::Random;

const WHY: &str = "power cuts need Linux with /dev/fuse; this is another system";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Strict,
    Journalled,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Survival;

impl Survival {
    pub(crate) fn drawn(_: &mut Random) -> Self {
        Self
    }
}

/// An empty type: no value exists.
pub(crate) enum Power {}

impl Power {
    pub(crate) fn on(_: &Path, _: Order, _: &str) -> Result<Self, String> {
        Err(WHY.to_owned())
    }

    pub(crate) fn cut_at(&self, _: u64, _: impl FnOnce() + Send + 'static) {
        match *self {}
    }

    pub(crate) fn is_out(&self) -> bool {
        match *self {}
    }

    pub(crate) fn copy_to(&self, _: &Path) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn release(&self) {
        match *self {}
    }

    pub(crate) fn cut(&mut self, _: Survival, _: &mut Random) -> Result<(), String> {
        match *self {}
    }
}

/// Returns the reason why power cannot be cut here, in one line.
///
/// # Errors
/// Always.
pub fn can_cut_power() -> Result<(), String> {
    Err(WHY.to_owned())
}
