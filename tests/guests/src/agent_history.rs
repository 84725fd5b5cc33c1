//! An agent that reads its whole history, from both ends, and finishes with the counts.

use conclave_sdk::{Agent, Result, Turn, View, finish};

struct Reader;

impl Agent for Reader {
    fn step(view: &View) -> Result<Turn> {
        let forward: Vec<u64> = view.history().map(|message| message.seq).collect();
        let mut backward: Vec<u64> = view.history().rev().map(|message| message.seq).collect();
        backward.reverse();
        let same = if forward == backward { "the same" } else { "DIFFERENT" };
        Ok(finish(format!(
            "{} of {} messages, backwards {same}",
            forward.len(),
            view.history_length()
        )))
    }
}

conclave_sdk::export!(agent: Reader, asks: []);
