//! `curl` and `wget` through the `fetch` import. The host follows redirects and checks each of
//! them, with or without `-L`.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bashkit::{Builtin, BuiltinContext, ExecResult, async_trait, vfs_join};
use conclave_sdk::Error;
use conclave_sdk::fetch::{self, Response};

/// Exit codes of curl.
const USAGE: i32 = 2;
const MALFORMED: i32 = 3;
const UNREACHABLE: i32 = 7;
const HTTP_ERROR: i32 = 22;
const WRITE_ERROR: i32 = 23;
const READ_ERROR: i32 = 26;
const TIMED_OUT: i32 = 28;

/// The command `curl`.
pub(super) struct Curl;

/// The command `wget`.
pub(super) struct Wget;

/// What the words of a command ask for.
#[derive(Default)]
struct Options {
    method: Option<String>,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    /// Whether the body belongs into the query.
    is_query: bool,
    urls: Vec<String>,
    output: Option<String>,
    is_named_by_url: bool,
    is_silent: bool,
    shows_errors: bool,
    fails: bool,
    includes_headers: bool,
    only_headers: bool,
    write_out: String,
    timeout_ms: Option<u32>,
}

/// A failure with its exit code.
struct Failure(i32, String);

#[async_trait]
impl Builtin for Curl {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let options = match parse(&context).await {
            Ok(options) => options,
            Err(failure) => return Ok(ended("curl", Vec::new(), Err(failure), true)),
        };
        let is_quiet = options.is_silent && !options.shows_errors;
        let mut stdout = Vec::new();
        let mut done = Ok(());
        for url in &options.urls {
            done = transfer(&context, &options, url, &mut stdout).await;
        }
        Ok(ended("curl", stdout, done, !is_quiet))
    }
}

fn ended(
    command: &str,
    stdout: Vec<u8>,
    done: Result<(), Failure>,
    shows_error: bool,
) -> ExecResult {
    let mut result = ExecResult::ok_bytes(stdout);
    if let Err(Failure(code, text)) = done {
        result.exit_code = code;
        if shows_error {
            result.stderr = format!("{command}: ({code}) {text}\n").into();
        }
    }
    result
}

async fn transfer(
    context: &BuiltinContext<'_>,
    options: &Options,
    url: &str,
    stdout: &mut Vec<u8>,
) -> Result<(), Failure> {
    let response = send(options, url)?;
    let status = response.status();
    let body = if options.fails && status >= 400 { Vec::new() } else { response.bytes() };
    let mut out = Vec::new();
    if options.includes_headers || options.only_headers {
        let mut head = format!("HTTP/1.1 {status}\r\n");
        for header in response.headers() {
            head += &format!("{}: {}\r\n", header.name, header.value);
        }
        out.extend((head + "\r\n").into_bytes());
    }
    if !options.only_headers {
        out.extend(&body);
    }
    let named = || url.split(['?', '#']).next().and_then(|path| path.rsplit('/').next());
    let file = match &options.output {
        Some(file) => Some(file.as_str()),
        None if options.is_named_by_url => named().filter(|name| !name.is_empty()),
        None => None,
    };
    match file {
        None | Some("-") => stdout.extend(out),
        Some(file) => write(context, file, &out).await?,
    }
    stdout.extend(written_out(&options.write_out, &response, body.len()).into_bytes());
    if options.fails && status >= 400 {
        let text = format!("The requested URL returned error: {status}");
        return Err(Failure(HTTP_ERROR, text));
    }
    Ok(())
}

fn send(options: &Options, url: &str) -> Result<Response, Failure> {
    let mut url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let mut body = options.body.clone();
    if options.is_query
        && let Some(query) = body.take()
    {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&String::from_utf8_lossy(&query));
    }
    let method = match &options.method {
        Some(method) => method.as_str(),
        None if options.only_headers => "HEAD",
        None if body.is_some() => "POST",
        None => "GET",
    };
    let mut request = fetch::request(method, url);
    for (name, value) in &options.headers {
        request = request.header(name, value);
    }
    if let Some(body) = body {
        let is_typed = options.headers.iter().any(|(name, _)| name == "content-type");
        if !is_typed {
            request = request.header("content-type", "application/x-www-form-urlencoded");
        }
        request = request.body(body);
    }
    if let Some(timeout) = options.timeout_ms {
        request = request.timeout_ms(timeout);
    }
    request.send().map_err(|error| {
        let text = error.to_string();
        let code = match &error {
            Error::InvalidArguments(_) => MALFORMED,
            Error::Other(text) if text.contains("time") => TIMED_OUT,
            _ => UNREACHABLE,
        };
        Failure(code, text)
    })
}

async fn write(context: &BuiltinContext<'_>, file: &str, bytes: &[u8]) -> Result<(), Failure> {
    let path = vfs_join(context.cwd, file);
    context
        .fs
        .write_file(&path, bytes)
        .await
        .map_err(|error| Failure(WRITE_ERROR, format!("Failed to write {file}: {error}")))
}

/// The text of `-w`.
fn written_out(format: &str, response: &Response, size: usize) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some(letter) = rest.chars().next() {
        let variable = rest.strip_prefix("%{").and_then(|rest| rest.split_once('}'));
        if let Some((name, after)) = variable {
            match name {
                "http_code" | "response_code" => out += &format!("{:03}", response.status()),
                "size_download" => out += &size.to_string(),
                "content_type" => out += &response.header("content-type").unwrap_or_default(),
                "url" | "url_effective" => out += &response.url(),
                _ => {}
            }
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\\n") {
            out.push('\n');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\\t") {
            out.push('\t');
            rest = after;
        } else {
            out.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    out
}

/// Splits clustered short options, such as `-sSLo FILE`, into single ones.
fn split_options(args: &[String]) -> Vec<String> {
    const WITH_VALUE: &str = "XHdowmAeubTrF";
    let mut words = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let is_cluster = arg.len() > 2 && arg.starts_with('-') && !arg.starts_with("--");
        if !is_cluster {
            words.push(arg.clone());
            let takes = arg.len() == 2 && arg.starts_with('-') && WITH_VALUE.contains(&arg[1..]);
            // A value may begin with a dash.
            words.extend(takes.then(|| args.next().cloned()).flatten());
            continue;
        }
        for (index, letter) in arg.char_indices().skip(1) {
            words.push(format!("-{letter}"));
            if WITH_VALUE.contains(letter) {
                let value = &arg[index + letter.len_utf8()..];
                words.extend(if value.is_empty() {
                    args.next().cloned()
                } else {
                    Some(value.to_owned())
                });
                break;
            }
        }
    }
    words
}

async fn parse(context: &BuiltinContext<'_>) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut words = split_options(context.args).into_iter();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                (name.to_owned(), Some(value.to_owned()))
            }
            _ => (word.clone(), None),
        };
        let mut value = || {
            inline
                .clone()
                .or_else(|| words.next())
                .ok_or_else(|| Failure(USAGE, format!("option {name}: requires parameter")))
        };
        match name.as_str() {
            "-X" | "--request" => options.method = Some(value()?),
            "-H" | "--header" => options.header(&value()?),
            "-A" | "--user-agent" => options.set_header("user-agent", value()?),
            "-e" | "--referer" => options.set_header("referer", value()?),
            "-b" | "--cookie" => options.set_header("cookie", value()?),
            "-u" | "--user" => options.set_header("authorization", basic(&value()?)),
            "-d" | "--data" | "--data-ascii" => {
                let data = data(context, &value()?).await?;
                options.add_body(data.into_iter().filter(|byte| !b"\r\n".contains(byte)).collect());
            }
            "--data-binary" => {
                let data = data(context, &value()?).await?;
                options.add_body(data);
            }
            "--data-raw" => options.add_body(value()?.into_bytes()),
            "--data-urlencode" => options.add_body(encoded(&value()?).into_bytes()),
            "--json" => {
                let data = data(context, &value()?).await?;
                options.set_header("content-type", "application/json".to_owned());
                options.set_header("accept", "application/json".to_owned());
                options.body.get_or_insert_default().extend(data);
            }
            "-T" | "--upload-file" => {
                let file = value()?;
                options.body = Some(read(context, &file).await?);
                options.method.get_or_insert_with(|| "PUT".to_owned());
            }
            "-o" | "--output" => options.output = Some(value()?),
            "-w" | "--write-out" => options.write_out = value()?,
            "-m" | "--max-time" => {
                let text = value()?;
                let seconds: f64 = text.parse().map_err(|_| {
                    Failure(USAGE, format!("option -m: expected a number, not {text}"))
                })?;
                // A cast of a float saturates.
                options.timeout_ms = Some((seconds * 1_000.0) as u32);
            }
            "--url" => options.urls.push(value()?),
            "--connect-timeout" | "--retry" | "--retry-delay" | "--max-redirs" => {
                value()?;
            }
            "-O" | "--remote-name" => options.is_named_by_url = true,
            "-s" | "--silent" => options.is_silent = true,
            "-S" | "--show-error" => options.shows_errors = true,
            "-f" | "--fail" => options.fails = true,
            "-i" | "--include" => options.includes_headers = true,
            "-I" | "--head" => options.only_headers = true,
            "-G" | "--get" => options.is_query = true,
            "-L" | "--location" | "-k" | "--insecure" | "--compressed" | "-g" | "--globoff"
            | "-v" | "--verbose" | "-#" | "--progress-bar" | "-N" | "--no-buffer" | "-4" | "-6" => {
            }
            other if other.starts_with('-') && other.len() > 1 => {
                return Err(Failure(USAGE, format!("option {other}: is not known here")));
            }
            _ => options.urls.push(word),
        }
    }
    if options.urls.is_empty() {
        return Err(Failure(USAGE, "no URL specified".to_owned()));
    }
    Ok(options)
}

impl Options {
    fn header(&mut self, line: &str) {
        if let Some((name, value)) = line.split_once(':') {
            self.set_header(&name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }

    fn set_header(&mut self, name: &str, value: String) {
        self.headers.push((name.to_owned(), value));
    }

    fn add_body(&mut self, bytes: Vec<u8>) {
        let body = self.body.get_or_insert_default();
        if !body.is_empty() {
            body.push(b'&');
        }
        body.extend(bytes);
    }
}

/// Returns the data of an option: `@FILE`, `@-` for the input, or the text itself.
async fn data(context: &BuiltinContext<'_>, value: &str) -> Result<Vec<u8>, Failure> {
    match value.strip_prefix('@') {
        Some(file) => read(context, file).await,
        None => Ok(value.as_bytes().to_vec()),
    }
}

async fn read(context: &BuiltinContext<'_>, file: &str) -> Result<Vec<u8>, Failure> {
    if file == "-" {
        return Ok(context.stdin.map(|input| input.as_bytes().to_vec()).unwrap_or_default());
    }
    let read = context.fs.read_file(&vfs_join(context.cwd, file)).await;
    read.map_err(|error| Failure(READ_ERROR, format!("Failed to open {file}: {error}")))
}

/// Encodes `NAME=CONTENT` or `CONTENT` for a form.
fn encoded(text: &str) -> String {
    let (name, content) = match text.split_once('=') {
        Some((name, content)) => (name, content),
        None => ("", text),
    };
    let mut out = if name.is_empty() { String::new() } else { format!("{name}=") };
    for byte in content.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn basic(user: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(user))
}

#[async_trait]
impl Builtin for Wget {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let mut options = Options { is_named_by_url: true, fails: true, ..Options::default() };
        let mut words = context.args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-q" | "--quiet" | "-nv" => options.is_silent = true,
                "-O" | "--output-document" => options.output = words.next().cloned(),
                "-qO" => {
                    options.is_silent = true;
                    options.output = words.next().cloned();
                }
                "-qO-" => {
                    options.is_silent = true;
                    options.output = Some("-".to_owned());
                }
                "-O-" => options.output = Some("-".to_owned()),
                word => {
                    if let Some(header) = word.strip_prefix("--header=") {
                        options.header(header);
                    } else if let Some(data) = word.strip_prefix("--post-data=") {
                        options.add_body(data.as_bytes().to_vec());
                    } else if word.starts_with('-') {
                        let text = format!("option {word}: is not known here");
                        let failure = Failure(USAGE, text);
                        return Ok(ended("wget", Vec::new(), Err(failure), true));
                    } else {
                        options.urls.push(word.to_owned());
                    }
                }
            }
        }
        if options.urls.is_empty() {
            let failure = Failure(USAGE, "missing URL".to_owned());
            return Ok(ended("wget", Vec::new(), Err(failure), true));
        }
        let mut stdout = Vec::new();
        let mut done = Ok(());
        for url in &options.urls {
            done = transfer(&context, &options, url, &mut stdout).await;
        }
        // GNU wget's codes: 4 for the network, 8 for a status.
        let done = done
            .map_err(|Failure(code, text)| Failure(if code == HTTP_ERROR { 8 } else { 4 }, text));
        Ok(ended("wget", stdout, done, !options.is_silent))
    }
}
