//! An OCI registry on the loopback, for tests: it stores what is pushed, checks digests as a real
//! one does, and misbehaves on demand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const TOKEN: &str = "token-of-the-test";

/// A registry that serves until the test ends.
#[derive(Debug)]
pub struct TestRegistry {
    address: SocketAddr,
    shared: Arc<Mutex<Contents>>,
}

/// A misbehaviour for the GET requests whose path contains a text.
#[derive(Clone, Debug)]
pub enum Misbehaviour {
    /// Returns these bytes instead.
    Replace(Vec<u8>),
    /// Announces the whole length, sends half of it and hangs up.
    Truncate,
    /// Appends a byte in chunked encoding for ever, until the client hangs up.
    Endless,
    /// Redirects to this address.
    Redirect(String),
    /// Answers with this status, and these headers.
    Status(u16, String),
}

#[derive(Debug, Default)]
struct Contents {
    blobs: BTreeMap<(String, String), Vec<u8>>,
    /// Media type and bytes, by repository and digest.
    manifests: BTreeMap<(String, String), (String, Vec<u8>)>,
    tags: BTreeMap<(String, String), String>,
    uploads: BTreeMap<String, Vec<u8>>,
    has_no_referrers: bool,
    login: Option<(String, String)>,
    misbehaviours: Vec<(String, Misbehaviour)>,
    requests: Vec<String>,
}

/// A request as it arrived.
struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Response {
    fn new(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: headers.to_owned(), body: body.into() }
    }

    fn error(status: u16, code: &str) -> Self {
        let body = json!({ "errors": [{ "code": code, "message": code, "detail": null }] });
        Self::new(status, "content-type: application/json\r\n", body.to_string())
    }
}

impl TestRegistry {
    /// Starts a registry with the referrers API.
    ///
    /// # Panics
    /// If the loopback has no free port.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Mutex::new(Contents::default()));
        let contents = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let contents = Arc::clone(&contents);
                std::thread::spawn(move || serve(stream, address, &contents));
            }
        });
        Self { address, shared }
    }

    /// Returns host and port.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns `oci://HOST/` and this name: repository, and tag or digest.
    #[must_use]
    pub fn reference(&self, name: &str) -> String {
        format!("oci://{}/{name}", self.address)
    }

    /// Answers the referrers API with 404, as registries of the specification 1.0 do.
    pub fn remove_referrers_api(&self) {
        self.contents().has_no_referrers = true;
    }

    /// Requires a token, which its token server gives to this user.
    pub fn require_login(&self, user: &str, password: &str) {
        self.contents().login = Some((user.to_owned(), password.to_owned()));
    }

    /// Misbehaves on GET requests whose path contains this text, until [`Self::behave`].
    pub fn misbehave(&self, path: &str, how: Misbehaviour) {
        self.contents().misbehaviours.push((path.to_owned(), how));
    }

    /// Ends all misbehaviour.
    pub fn behave(&self) {
        self.contents().misbehaviours.clear();
    }

    /// Points a tag at another manifest of the repository, by its digest.
    pub fn set_tag(&self, repository: &str, tag: &str, digest: &str) {
        let key = (repository.to_owned(), tag.to_owned());
        self.contents().tags.insert(key, digest.to_owned());
    }

    /// Stores a manifest without any check, and returns its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let bytes = manifest.to_string().into_bytes();
        let digest = digest(&bytes);
        let kind = manifest["mediaType"].as_str().unwrap_or(MANIFEST).to_owned();
        let mut contents = self.contents();
        contents.manifests.insert((repository.to_owned(), digest.clone()), (kind, bytes));
        contents.tags.insert((repository.to_owned(), tag.to_owned()), digest.clone());
        digest
    }

    /// Stores a blob, and returns its digest.
    pub fn put_blob(&self, repository: &str, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        self.contents().blobs.insert((repository.to_owned(), digest.clone()), bytes.to_owned());
        digest
    }

    /// Returns a manifest by tag or digest.
    #[must_use]
    pub fn manifest(&self, repository: &str, version: &str) -> Option<Value> {
        let contents = self.contents();
        let (_, bytes) = contents.manifest(repository, version)?;
        serde_json::from_slice(bytes).ok()
    }

    /// Returns a blob by digest.
    #[must_use]
    pub fn blob(&self, repository: &str, digest: &str) -> Option<Vec<u8>> {
        self.contents().blobs.get(&(repository.to_owned(), digest.to_owned())).cloned()
    }

    /// Removes and returns the requests so far: `GET /v2/…`.
    #[must_use]
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.contents().requests)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `sha256:` and the digest in hexadecimal.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn serve(mut stream: TcpStream, address: SocketAddr, contents: &Mutex<Contents>) {
    let Some(request) = read(&stream) else { return };
    let (response, how) = {
        let mut contents = contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.requests.push(format!("{} {}", request.method, request.path));
        let how = contents.misbehaviours.iter().find(|(path, _)| {
            request.method == "GET" && format!("{}?{}", request.path, request.query).contains(path)
        });
        let how = how.map(|(_, how)| how.clone());
        (contents.answer(&request, address), how)
    };
    // A client that hung up is no fault of the test.
    let _ = send(&mut stream, &request, response, how);
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), headers, body })
}

fn send(
    stream: &mut TcpStream,
    request: &Request,
    mut response: Response,
    how: Option<Misbehaviour>,
) -> std::io::Result<()> {
    let mut sent = usize::MAX;
    match how {
        Some(Misbehaviour::Replace(bytes)) => response = Response::new(200, "", bytes),
        Some(Misbehaviour::Truncate) => sent = response.body.len() / 2,
        Some(Misbehaviour::Redirect(to)) => {
            response = Response::new(307, &format!("location: {to}\r\n"), "");
        }
        Some(Misbehaviour::Status(status, headers)) => {
            response = Response::new(status, &headers, "");
        }
        Some(Misbehaviour::Endless) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                stream.write_all(b"1000\r\n")?;
                stream.write_all(&[b'a'; 0x1000])?;
                stream.write_all(b"\r\n")?;
            }
        }
        None => {}
    }
    let Response { status, headers, body } = response;
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    )?;
    if request.method != "HEAD" {
        stream.write_all(&body[..length.min(sent)])?;
    }
    stream.flush()
}

impl Contents {
    fn manifest(&self, repository: &str, version: &str) -> Option<&(String, Vec<u8>)> {
        let name = (repository.to_owned(), version.to_owned());
        let digest = self.tags.get(&name).cloned().unwrap_or(name.1);
        self.manifests.get(&(repository.to_owned(), digest))
    }

    fn answer(&mut self, request: &Request, address: SocketAddr) -> Response {
        if request.path == "/token" {
            return self.token(request);
        }
        let Some(rest) = request.path.strip_prefix("/v2/") else {
            return Response::error(404, "NOT_FOUND");
        };
        let is_known = request.headers.get("authorization").map(String::as_str)
            == Some(&format!("Bearer {TOKEN}"));
        if self.login.is_some() && !is_known {
            let challenge = format!(
                "www-authenticate: Bearer realm=\"http://{address}/token\",service=\"test\",scope=\"repository:x:pull,push\"\r\n"
            );
            return Response { headers: challenge, ..Response::error(401, "UNAUTHORIZED") };
        }
        for part in ["/manifests/", "/blobs/", "/referrers/"] {
            if let Some((repository, name)) = rest.split_once(part) {
                return match part {
                    "/manifests/" => self.manifests(request, repository, name),
                    "/blobs/" => self.blobs(request, repository, name),
                    _ => self.referrers(repository, name),
                };
            }
        }
        Response::new(if rest.is_empty() { 200 } else { 404 }, "", "")
    }

    fn token(&self, request: &Request) -> Response {
        use base64::Engine;
        let (user, password) = self.login.clone().unwrap_or_default();
        let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        if request.headers.get("authorization") == Some(&format!("Basic {login}")) {
            Response::new(200, "", json!({ "token": TOKEN }).to_string())
        } else {
            Response::error(401, "UNAUTHORIZED")
        }
    }

    fn manifests(&mut self, request: &Request, repository: &str, version: &str) -> Response {
        if request.method != "PUT" {
            let Some((kind, bytes)) = self.manifest(repository, version) else {
                return Response::error(404, "MANIFEST_UNKNOWN");
            };
            let headers =
                format!("content-type: {kind}\r\ndocker-content-digest: {}\r\n", digest(bytes));
            return Response::new(200, &headers, bytes.clone());
        }
        let digest = digest(&request.body);
        if version.contains(':') && version != digest {
            return Response::error(400, "DIGEST_INVALID");
        }
        let Ok(manifest) = serde_json::from_slice::<Value>(&request.body) else {
            return Response::error(400, "MANIFEST_INVALID");
        };
        let layers = manifest["layers"].as_array().into_iter().flatten();
        let blobs = layers.chain(manifest.get("config"));
        let is_there = |part: &Value| {
            let digest = part["digest"].as_str().unwrap_or_default().to_owned();
            let blob = self.blobs.get(&(repository.to_owned(), digest));
            blob.is_some_and(|blob| part["size"] == blob.len())
        };
        if !blobs.into_iter().all(is_there) {
            return Response::error(400, "MANIFEST_BLOB_UNKNOWN");
        }
        let kind = request.headers.get("content-type").cloned().unwrap_or_default();
        if manifest["mediaType"].as_str().is_some_and(|written| written != kind) {
            return Response::error(400, "MANIFEST_INVALID");
        }
        let mut headers = format!("docker-content-digest: {digest}\r\n");
        if let Some(subject) = manifest["subject"]["digest"].as_str()
            && !self.has_no_referrers
        {
            let _ = write!(headers, "oci-subject: {subject}\r\n");
        }
        self.manifests
            .insert((repository.to_owned(), digest.clone()), (kind, request.body.clone()));
        if !version.contains(':') {
            self.tags.insert((repository.to_owned(), version.to_owned()), digest);
        }
        Response::new(201, &headers, "")
    }

    fn blobs(&mut self, request: &Request, repository: &str, name: &str) -> Response {
        let key = |digest: &str| (repository.to_owned(), digest.to_owned());
        let Some(upload) = name.strip_prefix("uploads/") else {
            return match self.blobs.get(&key(name)) {
                Some(bytes) => {
                    Response::new(200, "content-type: application/octet-stream\r\n", bytes.clone())
                }
                None => Response::error(404, "BLOB_UNKNOWN"),
            };
        };
        let location = |upload: &str, length: usize| {
            let last = length.saturating_sub(1);
            format!("location: /v2/{repository}/blobs/uploads/{upload}\r\nrange: 0-{last}\r\n")
        };
        if request.method == "POST" {
            let upload = self.uploads.len().to_string();
            self.uploads.insert(upload.clone(), Vec::new());
            return Response::new(202, &location(&upload, 0), "");
        }
        let Some(received) = self.uploads.get_mut(upload) else {
            return Response::error(404, "BLOB_UPLOAD_UNKNOWN");
        };
        received.extend_from_slice(&request.body);
        if request.method == "PATCH" {
            return Response::new(202, &location(upload, received.len()), "");
        }
        let received = std::mem::take(received);
        let named = request.query.split('&').find_map(|pair| pair.strip_prefix("digest="));
        let named = named.unwrap_or_default().replace("%3A", ":");
        if named != digest(&received) {
            return Response::error(400, "DIGEST_INVALID");
        }
        self.blobs.insert(key(&named), received);
        Response::new(201, &format!("docker-content-digest: {named}\r\n"), "")
    }

    fn referrers(&self, repository: &str, subject: &str) -> Response {
        if self.has_no_referrers {
            return Response::error(404, "NOT_FOUND");
        }
        let found: Vec<Value> = self
            .manifests
            .iter()
            .filter(|((of, _), _)| of == repository)
            .filter_map(|((_, digest), (kind, bytes))| {
                let manifest: Value = serde_json::from_slice(bytes).ok()?;
                (manifest["subject"]["digest"] == subject).then(|| {
                    json!({
                        "mediaType": kind,
                        "digest": digest,
                        "size": bytes.len(),
                        "artifactType": manifest["artifactType"],
                    })
                })
            })
            .collect();
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": found });
        Response::new(200, &format!("content-type: {INDEX}\r\n"), index.to_string())
    }
}
