//! A program without the feature `otlp` exports nothing.

use std::sync::Arc;

use conclave_runtime::subscribe::Subscriber;

use crate::args::OutputArgs;
use crate::program::error::CliError;

pub(crate) fn begin(_: OutputArgs) -> Result<(), CliError> {
    Ok(())
}

pub(crate) fn add(_: &mut Vec<Arc<dyn Subscriber>>) {}

pub(crate) fn end() {}
