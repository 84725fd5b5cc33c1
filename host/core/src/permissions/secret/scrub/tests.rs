use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;

const VALUE: &str = "s3cr\"et/+ü value&";

fn scrubber(value: &str) -> Scrubber {
    Scrubber::new(vec![
        SecretValue::new(SecretName::from("met"), value.to_owned()).expect("it is long enough"),
    ])
}

fn percent(value: &str, is_upper: bool) -> String {
    value
        .bytes()
        .map(|byte| if is_upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") })
        .collect()
}

fn hex(value: &[u8], is_upper: bool) -> String {
    value
        .iter()
        .map(|byte| if is_upper { format!("{byte:02X}") } else { format!("{byte:02x}") })
        .collect()
}

fn units(value: &str) -> String {
    value.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

fn json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn form(value: &str) -> String {
    url::form_urlencoded::byte_serialize(value.as_bytes()).collect()
}

fn entities(value: &str) -> String {
    value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Returns every form in which a response can repeat a text; `before` and `after` share its base64
/// or hexadecimal.
fn echoes(value: &str, before: &str, after: &str) -> Vec<String> {
    let around = format!("{before}{value}{after}");
    let mut echoes = vec![
        value.to_owned(),
        json(value),
        units(value),
        form(value),
        percent(value, true),
        percent(value, false),
    ];
    echoes.extend([
        entities(value),
        value.chars().map(|c| format!("&#x{:x};", u32::from(c))).collect(),
    ]);
    echoes.extend(
        [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
            .iter()
            .map(|engine| engine.encode(&around)),
    );
    echoes.extend([hex(around.as_bytes(), true), hex(around.as_bytes(), false)]);
    echoes
}

/// Returns the forms encoded once more.
fn echoes_of_echoes(value: &str) -> Vec<String> {
    echoes(value, "", "").iter().flat_map(|echo| echoes(echo, "x", "")).collect()
}

#[test]
fn every_echo_is_found_and_named() {
    let scrubber = scrubber(VALUE);
    for echo in echoes(VALUE, "user:", "").into_iter().chain(echoes_of_echoes(VALUE)) {
        let text = format!("it said: {echo} .");
        assert_eq!(scrubber.find(text.as_bytes()).map(SecretName::as_str), Some("met"), "{echo}");
        let scrubbed = scrubber.scrub_text(&text);
        assert!(
            scrubbed.contains("[secret met]") && !scrubbed.contains(&echo),
            "{echo}: {scrubbed}"
        );
        assert!(
            scrubbed.starts_with("it said: ") && scrubbed.ends_with(" ."),
            "what stands around it stays: {scrubbed}"
        );
        assert_eq!(scrubber.find(scrubbed.as_bytes()), None, "{scrubbed}");
    }
}

#[test]
fn what_is_no_echo_stays() {
    let scrubber = scrubber("0123-token-4567");
    for text in [
        "",
        "a 0123-token-456",
        r#"{"a": "\u0041\n%41 &amp; +"}"#,
        "dXNlcjpwYXNzd29yZA==",
        "deadbeefdeadbeefdeadbeef",
    ] {
        assert_eq!(scrubber.scrub(text.as_bytes()), None, "{text}");
        assert_eq!(scrubber.scrub_text(text), text);
    }
    assert_eq!(Scrubber::default().scrub(b"anything"), None);
}

#[test]
fn secrets_that_overlap_and_repeat_are_all_taken_out() {
    let value = |name: &str, value: &str| {
        SecretValue::new(SecretName::from(name), value.to_owned()).expect("it is long enough")
    };
    let scrubber = Scrubber::new(vec![value("a", "abcdefgh1"), value("b", "efgh12345")]);
    assert_eq!(
        scrubber.scrub_text("<abcdefgh12345> abcdefgh1abcdefgh1 efgh12345"),
        "<[secret a]> [secret a][secret a] [secret b]"
    );
}

#[test]
fn a_value_across_the_border_of_two_windows_is_found() {
    let scrubber = scrubber("0123-token-4567");
    let echo = units("0123-token-4567");
    for before in (WINDOW - 700..WINDOW + 10).step_by(61) {
        let text = format!("{}{echo}{}", "x ".repeat(before / 2), " y".repeat(10));
        let scrubbed = scrubber.scrub_text(&text);
        assert!(scrubbed.contains("[secret met]") && !scrubbed.contains(&echo), "{before}");
    }
}

#[test]
fn values_that_cannot_be_protected_are_refused() {
    let new = |value: &str| SecretValue::new(SecretName::from("met"), value.to_owned()).map(drop);
    assert_eq!(new("1234567"), Err(ValueError::TooShort(SecretName::from("met"))));
    assert_eq!(new("[secret met]"), Err(ValueError::InMask(SecretName::from("met"))));
    let text = format!("{:?} {}", scrubber(VALUE), new("1234567").expect_err("too short"));
    assert!(!text.contains("s3cr") && !text.contains("1234567"), "{text}");
}

proptest! {
    #[test]
    fn no_echo_of_any_value_survives(
        value in "[!-~ äé文😀]{8,40}",
        before in "[a-z:é]{0,5}",
        after in "[a-z:]{0,5}",
        noise in "[ -~\n]{0,60}",
        which in any::<prop::sample::Index>(),
    ) {
        prop_assume!(value.len() >= 8 && !"[secret met]".contains(&value));
        let scrubber = scrubber(&value);
        let echoes = echoes(&value, &before, &after);
        let echo = which.get(&echoes);
        let text = format!("{noise} {echo} {noise}");
        let scrubbed = scrubber.scrub_text(&text);
        prop_assert!(!scrubbed.contains(echo.as_str()), "{} in {}", echo, scrubbed);
        prop_assert!(scrubbed.contains("[secret met]"), "{} in {}", echo, text);
    }

    #[test]
    fn any_bytes_are_scrubbed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let scrubber = scrubber("0123-token-4567");
        prop_assert_eq!(scrubber.scrub(&bytes), None);
    }

    #[test]
    fn text_of_encodings_is_scrubbed_without_a_panic(text in r#"([\\u%&#x;+=0-9a-fA-F"/]|\\u00|%5|&#x3|MDEyMy10b2tlbi00NTY3|0123-token-4567){0,60}"#) {
        let scrubber = scrubber("0123-token-4567");
        let scrubbed = scrubber.scrub_text(&text);
        prop_assert!(!scrubbed.contains("0123-token-4567"), "{}", scrubbed);
    }
}
