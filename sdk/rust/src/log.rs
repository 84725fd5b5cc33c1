//! Log lines, written like `println!`. They go to the plugin's log, beside the record. In a native
//! unit test they go to stderr.
//!
//! ```
//! use conclave_sdk::log;
//!
//! let files = 41;
//! log::info!("indexed {files} files");
//! ```

use crate::bindings::imports::conclave::plugin::log as import;

pub use crate::{
    __debug as debug, __error as error, __info as info, __trace as trace, __warn as warn,
};
pub use import::Level;

/// Writes one line. Lines above the plugin's volume limit are dropped.
pub fn log(level: Level, message: &str) {
    if cfg!(target_family = "wasm") {
        import::log(level, message);
    } else {
        eprintln!("{level:?}: {message}");
    }
}

/// Writes one line of level `trace`; arguments as for `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __trace {
    ($($argument:tt)+) => {
        $crate::log::log($crate::log::Level::Trace, &::std::format!($($argument)+))
    };
}

/// Writes one line of level `debug`; arguments as for `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug {
    ($($argument:tt)+) => {
        $crate::log::log($crate::log::Level::Debug, &::std::format!($($argument)+))
    };
}

/// Writes one line of level `info`; arguments as for `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __info {
    ($($argument:tt)+) => {
        $crate::log::log($crate::log::Level::Info, &::std::format!($($argument)+))
    };
}

/// Writes one line of level `warn`; arguments as for `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __warn {
    ($($argument:tt)+) => {
        $crate::log::log($crate::log::Level::Warn, &::std::format!($($argument)+))
    };
}

/// Writes one line of level `error`; arguments as for `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __error {
    ($($argument:tt)+) => {
        $crate::log::log($crate::log::Level::Error, &::std::format!($($argument)+))
    };
}
