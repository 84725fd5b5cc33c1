//! Shared text processing of the stock plugins: words, light English stems, and the sentences of a
//! file with their lines. Pure: without files or the contract, so that its tests need no host.

mod passages;
mod phrases;
mod scraps;
mod words;

pub use passages::{Format, LARGEST_TEXT, Passage, passages};
pub use phrases::{files, one_line};
pub use scraps::is_scrap;
pub use words::{is_common, overlap, spellings, stem, terms, words};
