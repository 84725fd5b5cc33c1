//! The Responses API: the form of its requests and replies. The whole input goes with every
//! request, so that nothing depends on what the server has stored. Does no I/O.

mod items;
mod request;
mod wire;

pub(crate) use self::request::ResponsesBody;
pub(crate) use self::wire::ResponseReader;
