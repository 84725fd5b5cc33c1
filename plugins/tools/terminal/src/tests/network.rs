//! `curl` and `wget` on granted addresses, and on others.

use conclave_sdk::testing::FakeHost;

use super::run;

const PAGE: &str = "https://docs.example.org/page";

fn host() -> FakeHost {
    let json = [("content-type", "application/json")];
    FakeHost::new()
        .writable("/work")
        .response_with(PAGE, 200, &json, "{\"a\": 1}\n")
        .response("https://docs.example.org/gone", 404, "not here\n")
        .response("https://docs.example.org/find?q=a%20b", 200, "found\n")
}

#[test]
fn a_granted_address_answers() {
    let mut host = host();
    assert_eq!(run(&mut host, &format!("curl -s {PAGE} | jq .a")).0, "1");
    assert_eq!(
        run(&mut host, &format!("curl -sSLo page.json {PAGE} && cat page.json")).0,
        "{\"a\": 1}"
    );
    assert_eq!(
        run(&mut host, &format!("curl -sO {PAGE}; wget -q {PAGE} -O - ; ls")).0,
        "{\"a\": 1}\npage\npage.json"
    );
    let code = "curl -s -o /dev/null -w '%{http_code} %{content_type}\\n'";
    assert_eq!(run(&mut host, &format!("{code} {PAGE}")).0, "200 application/json");
    assert_eq!(
        run(&mut host, &format!("curl -sI {PAGE} | head -1 | tr -d '\\r'")).0,
        "HTTP/1.1 200"
    );
    let query = "curl -sG https://docs.example.org/find --data-urlencode 'q=a b'";
    assert_eq!(run(&mut host, query).0, "found");
}

#[test]
fn a_request_carries_what_its_options_say() {
    let mut host = host();
    run(
        &mut host,
        &format!("echo '{{\"x\": 2}}' | curl -s -X PUT -H 'X-Test: yes' --json @- {PAGE}"),
    );
    run(&mut host, &format!("curl -s -u ann:secret -d a=1 -d b=2 {PAGE}"));
    let [json, form] = host.requests() else { panic!("{:?}", host.requests()) };
    let header = |request: &conclave_sdk::testing::FakeRequest, name: &str| {
        request.headers.iter().find(|header| header.name == name).map(|header| header.value.clone())
    };
    assert_eq!(
        (json.method.as_str(), json.body.as_deref()),
        ("PUT", Some(b"{\"x\": 2}\n".as_slice()))
    );
    assert_eq!(header(json, "x-test").as_deref(), Some("yes"));
    assert_eq!(header(json, "content-type").as_deref(), Some("application/json"));
    assert_eq!((form.method.as_str(), form.body.as_deref()), ("POST", Some(b"a=1&b=2".as_slice())));
    assert_eq!(header(form, "authorization").as_deref(), Some("Basic YW5uOnNlY3JldA=="));
}

#[test]
fn an_error_has_the_exit_code_of_curl() {
    let mut host = host();
    assert_eq!(run(&mut host, "curl -s https://docs.example.org/gone").1, 0);
    assert_eq!(run(&mut host, "curl -sf https://docs.example.org/gone"), (String::new(), 22));
    let (output, code) = run(&mut host, "curl https://elsewhere.example/x");
    assert!(output.starts_with("curl: (7) fetch was refused: "), "{output}");
    assert_eq!(code, 7);
    assert_eq!(run(&mut host, "curl -s https://elsewhere.example/x"), (String::new(), 7));
    assert_eq!(run(&mut host, "curl --nope x").1, 2);
    assert_eq!(run(&mut host, "wget -q https://elsewhere.example/x").1, 4);
    assert!(host.requests().iter().all(|request| request.url.starts_with("https://docs.")));
}
