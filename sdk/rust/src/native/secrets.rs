//! Names of secrets that a test has granted.

use super::{denied, fake};
use crate::Denial;

pub(crate) fn placeholder(name: &str) -> Result<String, Denial> {
    let is_granted = fake(|fake| fake.secrets.iter().any(|secret| secret == name));
    if is_granted { Ok(format!("<secret {name}>")) } else { Err(denied("secrets", name)) }
}
