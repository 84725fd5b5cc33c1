//! How tools are called in text: finding calls in what a model wrote, checking them against their schemas, telling a model how to write
//! them. Pure functions over text and values; what a call does is decided in `room`.

pub mod arguments;
pub mod fit;
pub mod instructions;
pub mod json;
pub mod reading;
pub mod routing;
pub mod sequence;
pub mod xml;
