//! The sentences of a text, each with its first line. Markdown's blocks end sentences, and its
//! markers are removed. Source code has no sentences, so a few of its lines form a passage.

/// The way in which a file is split into passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Sentences, which may span lines. Markdown, plain text and the like.
    Prose,
    /// Blocks of lines between empty ones.
    Source,
}

impl Format {
    /// The format for the file's extension; prose without one.
    pub fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        match extension.to_ascii_lowercase().as_str() {
            "" | "md" | "markdown" | "txt" | "text" | "rst" | "adoc" | "org" | "tex" => Self::Prose,
            _ => Self::Source,
        }
    }
}

/// A sentence, a heading, or a few lines of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Its first line, from 1.
    pub line: u32,
    /// The text, with single spaces between words.
    pub text: String,
    pub is_heading: bool,
}

/// Bytes of a text file. A larger file is usually data, and would fill a plugin's memory.
pub const LARGEST_TEXT: u64 = 1024 * 1024;
/// Lines of source code in one passage.
const SOURCE_LINES: usize = 6;
/// Abbreviations, after which a full stop does not end a sentence.
const ABBREVIATIONS: [&str; 22] = [
    "al", "approx", "ca", "cf", "co", "dr", "e.g", "etc", "fig", "i.e", "inc", "jr", "lt", "mr",
    "mrs", "ms", "no", "p", "prof", "sr", "st", "vs",
];

/// All passages of a text, in order.
pub fn passages(text: &str, format: Format) -> Vec<Passage> {
    let mut reader = Reader::default();
    for (line, number) in text.lines().zip(1..) {
        match format {
            Format::Prose => reader.prose(line, number),
            Format::Source => reader.source(line, number),
        }
    }
    reader.end_block();
    reader.passages
}

#[derive(Default)]
struct Reader {
    passages: Vec<Passage>,
    /// The words of the present sentence, and the line of the first one.
    sentence: String,
    line: u32,
    lines: usize,
    in_code: bool,
}

impl Reader {
    fn prose(&mut self, line: &str, number: u32) {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            self.end_block();
            self.in_code = !self.in_code;
            return;
        }
        if self.in_code {
            return self.source(line, number);
        }
        if line.is_empty() || is_rule(line) {
            return self.end_block();
        }
        if let Some(heading) = heading(line) {
            self.end_block();
            let text = joined(heading);
            self.passages.push(Passage { line: number, text, is_heading: true });
            return;
        }
        let body = without_marker(line);
        if body.starts_with('|') {
            return self.row(body, number);
        }
        if body.len() < line.len() {
            self.end_block();
        }
        self.sentences(body, number);
    }

    /// A row of a table stays whole, since half of it would lose its subject.
    fn row(&mut self, line: &str, number: u32) {
        self.end_block();
        line.split_whitespace().for_each(|word| self.add_unmarked(word, number));
        self.end_block();
    }

    fn source(&mut self, line: &str, number: u32) {
        if line.trim().is_empty() || self.lines == SOURCE_LINES {
            self.end_block();
        }
        self.lines += 1;
        line.split_whitespace().for_each(|word| self.add(word, number));
    }

    fn sentences(&mut self, line: &str, number: u32) {
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            self.add_unmarked(word, number);
            // The next line is not known here. A full stop at the end of a line nearly always ends
            // the sentence.
            if ends_sentence(word, words.peek().copied()) {
                self.end_block();
            }
        }
    }

    /// Appends a word without the markers of strong text. Most words have none, and are not copied
    /// for speed.
    fn add_unmarked(&mut self, word: &str, number: u32) {
        if word.contains("**") || word.contains("__") {
            self.add(&word.replace("**", "").replace("__", ""), number);
        } else {
            self.add(word, number);
        }
    }

    fn add(&mut self, word: &str, number: u32) {
        if self.sentence.is_empty() {
            self.line = number;
        } else {
            self.sentence.push(' ');
        }
        self.sentence.push_str(word);
    }

    fn end_block(&mut self) {
        self.lines = 0;
        let text = std::mem::take(&mut self.sentence);
        if text.contains(char::is_alphanumeric) {
            self.passages.push(Passage { line: self.line, text, is_heading: false });
        }
    }
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn heading(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    ((1..=6).contains(&level) && rest.starts_with(' '))
        .then(|| rest.trim().trim_end_matches('#').trim_end())
}

fn is_rule(line: &str) -> bool {
    line.len() >= 3
        && line.bytes().all(|byte| matches!(byte, b'-' | b'=' | b'*' | b'_' | b'|' | b':' | b' '))
}

/// The line without the marker of a list item or a quotation.
fn without_marker(line: &str) -> &str {
    let line = line.trim_start_matches(['>', ' ']);
    for marker in ["- [ ] ", "- [x] ", "- ", "* ", "+ "] {
        if let Some(rest) = line.strip_prefix(marker) {
            return rest.trim_start();
        }
    }
    let rest = line.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let digits = line.len() - rest.len();
    let numbered = rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "));
    // Two digits at most: a line may begin with a year that belongs to the sentence before.
    numbered.filter(|_| (1..=2).contains(&digits)).map_or(line, str::trim_start)
}

fn ends_sentence(word: &str, next: Option<&str>) -> bool {
    let bare = word.trim_end_matches(['"', '\'', ')', ']', '”', '’', '*', '_', '»']);
    let Some(body) = bare.strip_suffix(['.', '!', '?', '…']) else { return false };
    if bare.ends_with('.') && is_abbreviation(body) {
        return false;
    }
    next.is_none_or(|next| {
        !next.chars().find(|c| c.is_alphanumeric()).is_some_and(char::is_lowercase)
    })
}

fn is_abbreviation(body: &str) -> bool {
    let body = body.trim_start_matches(['(', '[', '"', '“', '*', '_']);
    let initial = body.chars().count() == 1 && body.chars().all(char::is_uppercase);
    initial || ABBREVIATIONS.contains(&body.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::{Format, passages};

    fn found(text: &str, format: Format) -> Vec<(u32, String)> {
        passages(text, format).into_iter().map(|passage| (passage.line, passage.text)).collect()
    }

    fn prose(text: &str) -> Vec<(u32, String)> {
        found(text, Format::Prose)
    }

    fn expected(passages: &[(u32, &str)]) -> Vec<(u32, String)> {
        passages.iter().map(|(line, text)| (*line, (*text).to_owned())).collect()
    }

    #[test]
    fn a_sentence_has_the_line_it_begins_in() {
        let text = "Skerryvore was first\nlit in 1844. It stands\non a reef.\n\nAnother.";
        let sentences = [
            (1, "Skerryvore was first lit in 1844."),
            (2, "It stands on a reef."),
            (5, "Another."),
        ];
        assert_eq!(prose(text), expected(&sentences));
    }

    #[test]
    fn markdown_markers_end_sentences_and_are_left_out() {
        let text = "# The **light** #\ntext without a stop\n- one\n- two\n  goes on\n> said\n1. first\n\n---\n| a | b |\n|---|---|\n| c | d |";
        let blocks = passages(text, Format::Prose);
        let texts: Vec<_> = blocks.iter().map(|passage| passage.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "The **light**",
                "text without a stop",
                "one",
                "two goes on",
                "said",
                "first",
                "| a | b |",
                "| c | d |"
            ]
        );
        assert!(blocks[0].is_heading && !blocks[1].is_heading);
    }

    #[test]
    fn a_row_of_a_table_stays_whole() {
        let text = "Before\n| `wall` | It stops. Then it ends. | 30 s |\nAfter";
        assert_eq!(
            prose(text),
            expected(&[
                (1, "Before"),
                (2, "| `wall` | It stops. Then it ends. | 30 s |"),
                (3, "After")
            ])
        );
    }

    #[test]
    fn abbreviations_and_initials_end_no_sentence() {
        let text =
            "Mr. A. Stevenson, e.g. Alan, built No. 3 at 4.5 m. He left! \"Why?\" Nobody knows";
        let sentences = [
            "Mr. A. Stevenson, e.g. Alan, built No. 3 at 4.5 m.",
            "He left!",
            "\"Why?\"",
            "Nobody knows",
        ];
        assert_eq!(prose(text).into_iter().map(|(_, text)| text).collect::<Vec<_>>(), sentences);
    }

    #[test]
    fn a_year_at_the_start_of_a_line_is_no_list_item() {
        assert_eq!(
            prose("It was lit in\n1844. It burns."),
            expected(&[(1, "It was lit in 1844."), (2, "It burns.")])
        );
    }

    #[test]
    fn code_keeps_a_few_lines_together() {
        let text = "fn a() {\n    b();\n}\n\nfn c() {}\n";
        assert_eq!(
            found(text, Format::Source),
            expected(&[(1, "fn a() { b(); }"), (5, "fn c() {}")])
        );
        assert_eq!(
            found(&"x\n".repeat(13), Format::Source)
                .iter()
                .map(|(line, _)| *line)
                .collect::<Vec<_>>(),
            [1, 7, 13]
        );
        assert_eq!(
            prose("See. Here:\n```sh\nrun this\n```\nDone."),
            expected(&[(1, "See."), (1, "Here:"), (3, "run this"), (5, "Done.")])
        );
    }

    #[test]
    fn the_extension_says_how_to_cut() {
        let formats = ["/f/a.md", "/f/README", "/f/a.b/notes", "/f/main.rs"].map(Format::of);
        assert_eq!(formats, [Format::Prose, Format::Prose, Format::Prose, Format::Source]);
    }

    #[test]
    fn nothing_readable_gives_nothing() {
        assert_eq!(prose("\n\n***\n. . .\n"), []);
    }
}
