//! Downloads of components. The operator pinned a digest, so server and redirects need not be
//! trusted. Downloads are kept in a folder by digest, and verified at every read.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conclave_core::permissions::fetch::{AddressKind, is_inside};
use conclave_core::types::limits::COMPONENT_BYTES;
use conclave_core::types::text::show_size as size;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use url::Url;

use super::read_component;
#[cfg(feature = "registry")]
use super::signature::Envelope;
use crate::support::digest::sha256 as digest;
use crate::support::durable_file::{self, FileAccess};

/// Maximum redirects of one download.
const REDIRECTS: usize = 5;
const CONNECT: Duration = Duration::from_secs(10);
/// The time of one request, with its redirects and the whole answer.
pub(super) const WHOLE: Duration = Duration::from_secs(300);

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The connection failed, timed out, or ended within the answer.
    #[error("{url} does not answer: {cause}")]
    Unreachable {
        /// The URL of the component.
        url: String,
        /// The innermost error, for display.
        cause: String,
    },
    /// The server answered with an error.
    #[error("{url} answers with {status}")]
    Status {
        /// The URL of the component.
        url: String,
        /// The HTTP status, outside 200 to 299.
        status: u16,
    },
    /// The answer is larger than a component may be.
    #[error("{url} gives more than {limit}; a component has no more")]
    TooLarge {
        /// The URL of the component.
        url: String,
        /// The maximum size, with its unit.
        limit: String,
    },
    /// The downloaded component does not have the pinned digest.
    #[error(
        "{url} gives another component than the one that was wanted: its SHA-256 is {actual}, not {expected}"
    )]
    OtherDigest {
        /// The URL of the component.
        url: String,
        /// The SHA-256 digest of the download, in lower-case hexadecimal.
        actual: String,
        /// The SHA-256 digest in the config.
        expected: String,
    },
    /// The HTTP client could not be created; the text is its reason.
    #[error("no secure connection can be made: {0}")]
    Setup(String),
}

/// The kind of a kept file.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileKind {
    Component,
    /// The manifest of an artifact in a registry.
    #[cfg(feature = "registry")]
    Manifest,
    /// The signatures of such a manifest, named by its digest.
    #[cfg(feature = "registry")]
    Signatures,
}

/// The downloaded components, by digest.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// `None` keeps no downloads.
    folder: Option<PathBuf>,
}

impl Downloads {
    /// Returns a store of downloads in this folder.
    #[must_use]
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Returns the component of this digest, from the folder or the network. `downloading` is
    /// called before the network is used.
    ///
    /// # Errors
    /// If the server does not return a component of this digest. A folder that cannot be written is
    /// no error.
    pub async fn component(
        &self,
        url: &str,
        sha256: &str,
        downloading: impl FnOnce(),
    ) -> Result<Vec<u8>, DownloadError> {
        if let Some(bytes) = self.stored(sha256, FileKind::Component) {
            return Ok(bytes);
        }
        downloading();
        let bytes = fetch(url).await?;
        let found = digest(&bytes);
        if found != sha256 {
            return Err(DownloadError::OtherDigest {
                url: url.to_owned(),
                actual: found,
                expected: sha256.to_owned(),
            });
        }
        self.keep(sha256, FileKind::Component, &bytes);
        Ok(bytes)
    }

    /// The kept file if its digest still matches.
    pub(super) fn stored(&self, sha256: &str, kind: FileKind) -> Option<Vec<u8>> {
        let bytes = read_component(&self.path(sha256, kind)?).ok()?;
        (digest(&bytes) == sha256).then_some(bytes)
    }

    /// Stores a file atomically. After a failure the next run downloads it again.
    pub(super) fn keep(&self, sha256: &str, kind: FileKind, bytes: &[u8]) {
        let Some(path) = self.path(sha256, kind) else { return };
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let _ = made.and_then(|()| durable_file::replace(&path, bytes, &FileAccess::Usual));
    }

    /// The kept signatures of a manifest. They are verified at every use, so nothing depends
    /// on who wrote them.
    #[cfg(feature = "registry")]
    pub(super) fn kept_signatures(&self, sha256: &str) -> Vec<Envelope> {
        let path = self.path(sha256, FileKind::Signatures);
        let bytes = path.and_then(|path| read_component(&path).ok()).unwrap_or_default();
        Envelope::parse_lines(&bytes)
    }

    #[cfg(feature = "registry")]
    pub(super) fn keep_signatures(&self, sha256: &str, envelopes: &[Envelope]) {
        let lines: String = envelopes.iter().map(|envelope| envelope.to_json() + "\n").collect();
        self.keep(sha256, FileKind::Signatures, lines.as_bytes());
    }

    fn path(&self, sha256: &str, kind: FileKind) -> Option<PathBuf> {
        let ending = match kind {
            FileKind::Component => "wasm",
            #[cfg(feature = "registry")]
            FileKind::Manifest => "json",
            #[cfg(feature = "registry")]
            FileKind::Signatures => "sig",
        };
        self.folder.as_deref().map(|folder: &Path| folder.join(format!("{sha256}.{ending}")))
    }
}

/// Downloads a component without a known digest, so that an operator can pin one.
///
/// # Errors
/// If the server does not answer, or the answer exceeds the maximum size.
pub async fn fetch(url: &str) -> Result<Vec<u8>, DownloadError> {
    let response = client(&host_of(url), true, may_follow)?
        .get(url)
        .send()
        .await
        .map_err(|error| unreachable(url, error))?;
    if !response.status().is_success() {
        return Err(DownloadError::Status {
            url: url.to_owned(),
            status: response.status().as_u16(),
        });
    }
    body(url, response).await
}

fn host_of(url: &str) -> String {
    Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}

/// Resolves names. A name that a server led to has no address of this machine or its network,
/// unless the operator's own name has one too.
#[derive(Debug)]
struct OutsideAddresses {
    /// The host that the operator named.
    host: String,
}

impl Resolve for OutsideAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        let host = self.host.clone();
        Box::pin(async move {
            let mut addresses = lookup(name.as_str()).await?;
            if name.as_str() != host && !lookup(&host).await?.iter().any(is_of_own_network) {
                addresses.retain(|address| !is_of_own_network(address));
                if addresses.is_empty() {
                    let why = format!(
                        "it leads from the web to {}, which is this machine or in its network",
                        name.as_str()
                    );
                    return Err(why.into());
                }
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

async fn lookup(name: &str) -> std::io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.collect())
}

fn is_of_own_network(address: &SocketAddr) -> bool {
    AddressKind::of(address.ip()).is_some()
}

/// Returns a client for files of strangers, which begins at the host `named`. `may_follow` decides
/// about each redirect, given the first address, the next one and the number of hops. Without
/// `is_secure` it needs no certificates, and cannot connect securely.
pub(super) fn client(
    host: &str,
    is_secure: bool,
    may_follow: fn(Option<&Url>, &Url, usize) -> Result<(), &'static str>,
) -> Result<Client, DownloadError> {
    let setup = |error: &dyn Error| DownloadError::Setup(error.to_string());
    let redirects = Policy::custom(move |attempt| {
        let first = attempt.previous().first().cloned();
        match may_follow(first.as_ref(), attempt.url(), attempt.previous().len()) {
            Ok(()) => attempt.follow(),
            Err(why) => attempt.error(why),
        }
    });
    let tls = conclave_models::http::shared_tls(is_secure).map_err(|error| setup(&error))?;
    let builder = Client::builder()
        .user_agent(concat!("conclave/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .timeout(WHOLE)
        .redirect(redirects)
        .dns_resolver(Arc::new(OutsideAddresses { host: host.to_owned() }))
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .tls_backend_preconfigured(tls);
    builder.build().map_err(|error| setup(&error))
}

/// Whether a redirect is followed. It must not lead from HTTPS to HTTP. It must not lead from a
/// public address to this machine or its network.
pub(super) fn may_follow(first: Option<&Url>, to: &Url, hops: usize) -> Result<(), &'static str> {
    if hops > REDIRECTS {
        return Err("it leads on and on");
    }
    if to.scheme() != "https" && first.is_some_and(|first| first.scheme() == "https") {
        return Err("it leads from a secure address to one that is not");
    }
    if is_inside(to) && !first.is_some_and(is_inside) {
        return Err("it leads from the web to an address of this machine or its network");
    }
    Ok(())
}

async fn body(url: &str, mut response: Response) -> Result<Vec<u8>, DownloadError> {
    let too_large =
        || DownloadError::TooLarge { url: url.to_owned(), limit: size(COMPONENT_BYTES) };
    // Fails early; the loop below does not trust the header.
    if response.content_length().is_some_and(|length| length > COMPONENT_BYTES) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(url, error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > COMPONENT_BYTES {
            return Err(too_large());
        }
    }
    Ok(bytes)
}

fn unreachable(url: &str, error: reqwest::Error) -> DownloadError {
    DownloadError::Unreachable { url: url.to_owned(), cause: innermost(error) }
}

/// The innermost cause, which is the most specific.
pub(super) fn innermost(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_redirect_leads_to_no_inner_address() {
        let url = |text: &str| Url::parse(text).unwrap();
        let follow = |from: &str, to: &str| may_follow(Some(&url(from)), &url(to), 1).is_ok();
        assert!(follow("https://a.example/x.wasm", "https://cdn.example/x.wasm"));
        assert!(
            follow("http://127.0.0.1:8000/x.wasm", "http://127.0.0.1:9000/x.wasm"),
            "the operator's own machine, from the start"
        );
        for inner in [
            "https://127.0.0.1/",
            "https://169.254.169.254/",
            "https://[::1]/",
            "https://10.1.2.3/",
            "https://localhost/",
            "https://0x7f.1/",
        ] {
            assert!(!follow("https://a.example/x.wasm", inner), "{inner}");
        }
        assert!(!follow("https://a.example/x.wasm", "http://b.example/x.wasm"));
    }

    #[tokio::test]
    async fn a_name_that_a_server_led_to_is_not_resolved_to_this_machine() {
        let resolved = async |host: &str| {
            let resolver = OutsideAddresses { host: host.to_owned() };
            let addresses = resolver.resolve("localhost".parse().unwrap()).await;
            addresses.map(Iterator::count).map_err(|error| error.to_string())
        };
        // An address needs no resolver, so this test uses no network.
        let refused = resolved("192.0.66.1").await.unwrap_err();
        assert!(refused.contains("this machine"), "{refused}");
        assert!(resolved("localhost").await.unwrap() > 0, "the operator named it");
        assert!(resolved("127.0.0.1").await.unwrap() > 0, "as in the operator's own network");
    }

    /// Starts a server that returns these answers in order, and counts the requests.
    async fn server(answers: Vec<String>) -> (String, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await.unwrap();
                let _ =
                    stream.write_all(answer.replace("HERE", &address.to_string()).as_bytes()).await;
            }
        });
        (format!("http://{address}/x.wasm"), requests)
    }

    fn ok(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    #[tokio::test]
    async fn a_component_is_downloaded_once_and_held_to_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads::new(Some(folder.path().join("components")));
        let detour = "HTTP/1.1 302 Found\r\nlocation: http://HERE/y.wasm\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned();
        let (url, requests) = server(vec![detour, ok("component"), ok("component")]).await;
        let expected = digest(b"component");
        assert_eq!(downloads.component(&url, &expected, || {}).await.unwrap(), b"component");
        assert_eq!(
            downloads.component(&url, &expected, || panic!("it was kept")).await.unwrap(),
            b"component"
        );
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        std::fs::write(
            folder.path().join("components").join(format!("{expected}.wasm")),
            b"changed",
        )
        .unwrap();
        assert_eq!(
            downloads.component(&url, &expected, || {}).await.unwrap(),
            b"component",
            "what was changed is fetched anew"
        );
    }

    #[tokio::test]
    async fn what_is_not_what_was_wanted_is_refused_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads::new(Some(folder.path().to_owned()));
        let long = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", COMPONENT_BYTES + 1);
        let (url, _) = server(vec![
            ok("another"),
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
            long,
        ])
        .await;
        let expected = digest(b"component");
        assert!(matches!(
            downloads.component(&url, &expected, || {}).await,
            Err(DownloadError::OtherDigest { .. })
        ));
        assert!(matches!(
            downloads.component(&url, &expected, || {}).await,
            Err(DownloadError::Status { status: 404, .. })
        ));
        assert!(matches!(
            downloads.component(&url, &expected, || {}).await,
            Err(DownloadError::TooLarge { .. })
        ));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let unreachable = downloads.component("http://127.0.0.1:9/x.wasm", &expected, || {}).await;
        assert!(matches!(unreachable, Err(DownloadError::Unreachable { .. })), "{unreachable:?}");
    }
}
