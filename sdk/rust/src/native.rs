//! Replacements for the host's stores in a native test: the scratch and the settings of this
//! thread. The harness of strategies sets and reads them. A component contains none of this.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static CONFIG: RefCell<Option<String>> = const { RefCell::new(None) };
}

pub(crate) fn scratch() -> Vec<u8> {
    SCRATCH.with_borrow(Clone::clone)
}

pub(crate) fn set_scratch(value: Vec<u8>) {
    SCRATCH.set(value);
}

/// Returns the plugin's settings as JSON; an empty object if none were set.
pub(crate) fn config() -> String {
    CONFIG.with_borrow(|config| config.clone().unwrap_or_else(|| "{}".to_owned()))
}

/// Sets them, and returns the previous ones.
pub(crate) fn set_config(config: Option<String>) -> Option<String> {
    CONFIG.replace(config)
}
