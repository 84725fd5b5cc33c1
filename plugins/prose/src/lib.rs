//! What the stock plugins know about text: words, light English stems, and the sentences of a file
//! with their lines. Pure; it knows neither files nor the contract, so that the stock plugins share
//! it and its tests need no host.

mod passages;
mod phrases;
mod scraps;
mod words;

pub use passages::{Format, LARGEST_TEXT, Passage, passages};
pub use phrases::{files, one_line};
pub use scraps::is_scrap;
pub use words::{is_common, overlap, spellings, stem, terms, words};
