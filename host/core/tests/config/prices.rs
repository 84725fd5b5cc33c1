//! The file of prices.

use conclave_core::config::ProblemCode::{
    InvalidName, InvalidValue, MissingKey, NoEffect, Syntax, UnknownKey,
};
use conclave_core::config::{Config, Price, Prices};
use conclave_core::types::ids::ModelName;

const FILE: &str = "[\"large-*\"]\ninput = 3\noutput = 15.00\ncached_input = 0.30\n[\"large-2-mini\"]\ninput = 0.1\noutput = 0.4\n[\"*\"]\ninput = 0\noutput = 0\n";

#[test]
fn a_name_counts_before_a_pattern_and_a_long_pattern_before_a_short_one() {
    let prices = Prices::parse("prices.toml", FILE).unwrap_or_else(|problems| panic!("{problems}"));
    let large = Price { input: 3_000_000, output: 15_000_000, cached_input: Some(300_000) };
    assert_eq!(prices.of("large-2"), Some(large));
    assert_eq!(prices.of("large-2-mini").map(|price| price.input), Some(100_000));
    assert_eq!(prices.of("other").map(|price| price.output), Some(0));
    assert_eq!(Prices::parse("p", "[a]\ninput = 1\noutput = 1").unwrap().of("b"), None);
}

#[test]
fn all_mistakes_are_said_at_once_where_they_stand() {
    let wrong =
        "[a]\ninput = \"2\"\n[b]\ninput = 1\noutptu = 2\n[\"c*d\"]\ninput = 1\noutput = -1\n";
    let problems = Prices::parse("prices.toml", wrong).unwrap_err();
    let found: Vec<_> =
        problems.0.iter().map(|found| (found.line, found.column, found.code)).collect();
    let expected = [
        (1, 2, MissingKey),
        (2, 9, InvalidValue),
        (3, 2, MissingKey),
        (5, 1, UnknownKey),
        (6, 2, InvalidName),
        (8, 10, InvalidValue),
    ];
    assert_eq!(found, expected, "{problems}");
    insta::assert_snapshot!(problems.to_string());
    let broken = Prices::parse("p", "[a\n= {{").unwrap_err();
    assert!(broken.codes().contains(&Syntax), "{broken}");
}

#[test]
fn what_a_models_own_table_says_holds_before_the_file() {
    let config = "entry = \"t\"\nprices = \"prices.toml\"\n[limits.run]\ncost_usd = 1\n[models.default]\nkind = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\n\
        model = \"large-2\"\n[models.own]\nkind = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"large-2\"\ninput_price = 1\noutput_price = 2\n\
        [models.free]\nkind = \"scripted\"\nreplies = \"r.json\"\n[plugins.p]\nsource = \"stock:chat\"\ngrants.model = [\"default\", \"own\", \"free\"]\n[tasks.t]\nagent = \"p\"\n";
    let config =
        Config::parse("c.toml", "here", config).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(config.warnings.is_empty(), "the file may have them: {}", config.warnings);
    assert_eq!(config.prices.as_ref().map(|file| file.path.as_str()), Some("here/prices.toml"));
    let (priced, warnings) = config
        .priced("[\"large-*\"]\ninput = 3\noutput = 15\n")
        .unwrap_or_else(|problems| panic!("{problems}"));
    let input = |name: &str| priced.models[&ModelName::from(name)].prices.input_price;
    assert_eq!(
        (input("default"), input("own"), input("free")),
        (Some(3_000_000), Some(1_000_000), None)
    );
    assert_eq!(warnings.codes(), [NoEffect], "{warnings}");
}
