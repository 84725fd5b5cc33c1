//! A provider of OpenID Connect on loopback, with real keys and signatures. It logs everybody in at
//! once, as the person of its behaviour, and can do all that a provider must not.

mod keys;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use url::Url;

use keys::KeyRing;
pub use keys::TokenSignature;

/// The client that the provider knows.
const CLIENT: (&str, &str) = ("conclave", "s3cret of a client/");
/// Seconds for which a token is valid.
const VALID: u64 = 300;

/// A provider, until it is dropped.
pub struct TestProvider {
    address: SocketAddr,
    state: Arc<Mutex<ProviderState>>,
    stops: Arc<AtomicBool>,
}

/// What the provider says and does.
#[derive(Clone, Debug)]
pub struct ProviderBehaviour {
    /// The claims of the person who logs in.
    pub person: Map<String, Value>,
    /// Claims in place of those of a token; `null` leaves one out.
    pub claims: Map<String, Value>,
    /// How tokens are signed.
    pub signature: TokenSignature,
    /// The name of the key with which they are.
    pub key: String,
    /// The names of the keys that the provider publishes.
    pub published: Vec<String>,
    /// The issuer in the metadata, in place of the right one.
    pub metadata_issuer: Option<String>,
    /// The issuer with which a browser comes back, in place of the right one.
    pub callback_issuer: Option<String>,
    /// Whether tokens come with one to refresh them.
    pub is_refreshable: bool,
    /// Whether the person has no access any more.
    pub is_revoked: bool,
    /// Whether each request fails.
    pub is_down: bool,
    /// Where each request is led instead of being answered.
    pub redirect: Option<String>,
}

struct ProviderState {
    behaviour: ProviderBehaviour,
    keys: KeyRing,
    codes: BTreeMap<String, Grant>,
    refresh_tokens: Vec<String>,
    refreshes: usize,
}

/// What a code stands for.
struct Grant {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

struct HttpRequest {
    method: String,
    target: String,
    authorization: String,
    body: String,
}

impl TestProvider {
    /// Starts a provider whose person is `ada`, with keys of its own.
    ///
    /// # Errors
    /// If no port is free, or `openssl` makes no key.
    pub fn start() -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let person = json!({ "sub": "ada-17", "email": "ada@example.org", "email_verified": true });
        let behaviour = ProviderBehaviour {
            person: person.as_object().cloned().unwrap_or_default(),
            claims: Map::new(),
            signature: TokenSignature::Es256,
            key: "one".to_owned(),
            published: vec!["one".to_owned()],
            metadata_issuer: None,
            callback_issuer: None,
            is_refreshable: false,
            is_revoked: false,
            is_down: false,
            redirect: None,
        };
        let state = Arc::new(Mutex::new(ProviderState {
            behaviour,
            keys: KeyRing::default(),
            codes: BTreeMap::new(),
            refresh_tokens: Vec::new(),
            refreshes: 0,
        }));
        let (stops, serving) = (Arc::<AtomicBool>::default(), Arc::clone(&state));
        let stopping = Arc::clone(&stops);
        let issuer = format!("http://{address}");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let (state, issuer) = (Arc::clone(&serving), issuer.clone());
                std::thread::spawn(move || answer(&state, &issuer, stream));
            }
        });
        Ok(Self { address, state, stops })
    }

    /// The issuer of its tokens.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The name and the secret of the client that it knows.
    #[must_use]
    pub fn client(&self) -> (&'static str, &'static str) {
        CLIENT
    }

    /// Changes what the provider says and does from now on.
    pub fn change(&self, change: impl FnOnce(&mut ProviderBehaviour)) {
        change(&mut lock(&self.state).behaviour);
    }

    /// The number of refreshes that were asked for.
    #[must_use]
    pub fn refreshes(&self) -> usize {
        lock(&self.state).refreshes
    }

    /// Plays a browser that logs in at an address of the provider. Returns where it is led.
    ///
    /// # Errors
    /// If the provider refuses the request.
    pub fn log_in(&self, url: &str) -> Result<String, String> {
        let target = url.strip_prefix(&self.issuer()).ok_or(format!("{url} is elsewhere"))?;
        let mut stream = TcpStream::connect(self.address).map_err(|error| error.to_string())?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        let location = answer.lines().find_map(|line| line.strip_prefix("Location: "));
        location.map(str::to_owned).ok_or(answer.clone())
    }
}

impl Drop for TestProvider {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        // It waits for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock(state: &Mutex<ProviderState>) -> MutexGuard<'_, ProviderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(state: &Mutex<ProviderState>, issuer: &str, stream: TcpStream) {
    let Some(request) = read(&stream) else { return };
    let (status, headers, body) = {
        let mut state = lock(state);
        match (state.behaviour.is_down, &state.behaviour.redirect) {
            (true, _) => ("500 Internal Server Error", String::new(), json!({})),
            (_, Some(place)) => ("302 Found", format!("Location: {place}\r\n"), json!({})),
            _ => state.answer(issuer, &request),
        }
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn read(stream: &TcpStream) -> Option<HttpRequest> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                value.clone_into(&mut authorization);
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(HttpRequest { method, target, authorization, body: String::from_utf8(body).ok()? })
}

type Answer = (&'static str, String, Value);

fn refuse(error: &str) -> Answer {
    ("400 Bad Request", String::new(), json!({ "error": error }))
}

impl ProviderState {
    fn answer(&mut self, issuer: &str, request: &HttpRequest) -> Answer {
        let ok = |body: Value| ("200 OK", String::new(), body);
        let Ok(url) = Url::parse(&format!("{issuer}{}", request.target)) else {
            return refuse("invalid_request");
        };
        match (&*request.method, url.path()) {
            ("GET", "/.well-known/openid-configuration") => ok(json!({
                "issuer": self.behaviour.metadata_issuer.as_deref().unwrap_or(issuer),
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "jwks_uri": format!("{issuer}/keys"),
                "authorization_response_iss_parameter_supported": true,
            })),
            ("GET", "/keys") => {
                let names = self.behaviour.published.clone();
                ok(json!({ "keys": self.keys.published(&names) }))
            }
            ("GET", "/authorize") => self.authorize(issuer, &url),
            ("POST", "/token") => self.token(issuer, request),
            _ => ("404 Not Found", String::new(), json!({})),
        }
    }

    fn authorize(&mut self, issuer: &str, url: &Url) -> Answer {
        let fields: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let is_code = field("response_type") == "code" && field("code_challenge_method") == "S256";
        let is_openid = field("scope").split(' ').any(|scope| scope == "openid");
        let target = Url::parse(&field("redirect_uri"));
        let (true, true, true, Ok(mut target)) =
            (is_code, is_openid, field("client_id") == CLIENT.0, target)
        else {
            return refuse("invalid_request");
        };
        let code = format!("code-{}", self.codes.len());
        let issuer = self.behaviour.callback_issuer.as_deref().unwrap_or(issuer);
        target.query_pairs_mut().extend_pairs([
            ("code", &*code),
            ("state", &field("state")),
            ("iss", issuer),
        ]);
        let (nonce, challenge) = (field("nonce"), field("code_challenge"));
        self.codes.insert(code, Grant { nonce, challenge, redirect_uri: field("redirect_uri") });
        ("302 Found", format!("Location: {target}\r\n"), json!({}))
    }

    fn token(&mut self, issuer: &str, request: &HttpRequest) -> Answer {
        let fields: BTreeMap<String, String> =
            url::form_urlencoded::parse(request.body.as_bytes()).into_owned().collect();
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let encoded = |text: &str| -> String {
            url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
        };
        let pair = format!("{}:{}", encoded(CLIENT.0), encoded(CLIENT.1));
        if request.authorization != format!("Basic {}", BASE64_STANDARD.encode(pair)) {
            return refuse("invalid_client");
        }
        let nonce = match &*field("grant_type") {
            // A code is used once, by whoever has the secret of PKCE.
            "authorization_code" => {
                let Some(grant) = self.codes.remove(&field("code")) else {
                    return refuse("invalid_grant");
                };
                let verifier = field("code_verifier");
                let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
                let is_own = BASE64_URL_SAFE_NO_PAD.encode(digest) == grant.challenge;
                if !is_own || grant.redirect_uri != field("redirect_uri") {
                    return refuse("invalid_grant");
                }
                Some(grant.nonce)
            }
            "refresh_token" => {
                self.refreshes += 1;
                let token = field("refresh_token");
                if self.behaviour.is_revoked || !self.refresh_tokens.contains(&token) {
                    return refuse("invalid_grant");
                }
                None
            }
            _ => return refuse("unsupported_grant_type"),
        };
        let mut answer = json!({
            "access_token": "none", "token_type": "Bearer",
            "id_token": self.id_token(issuer, nonce),
        });
        if self.behaviour.is_refreshable {
            let token = format!("refresh-{}", self.refresh_tokens.len());
            answer["refresh_token"] = token.as_str().into();
            // The one before is used up.
            self.refresh_tokens = vec![String::new(); self.refresh_tokens.len()];
            self.refresh_tokens.push(token);
        }
        ("200 OK", String::new(), answer)
    }

    fn id_token(&mut self, issuer: &str, nonce: Option<String>) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut claims = self.behaviour.person.clone();
        let own = json!({ "iss": issuer, "aud": CLIENT.0, "iat": now, "exp": now + VALID });
        claims.extend(own.as_object().cloned().unwrap_or_default());
        claims.extend(nonce.map(|nonce| ("nonce".to_owned(), nonce.into())));
        claims.extend(self.behaviour.claims.clone());
        claims.retain(|_, value| !value.is_null());
        self.keys.sign(self.behaviour.signature, &self.behaviour.key, &claims)
    }
}
