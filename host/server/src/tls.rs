//! TLS of the server itself. The certificate is read again when its files change, so that a renewed
//! one needs no restart.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate of a server and the file of its key, both in PEM.
pub struct ServerTls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<LoadedCertificate>,
}

struct LoadedCertificate {
    config: Arc<ServerConfig>,
    /// The times of the files as they were looked at last, also if they could not be used.
    changed: [Option<SystemTime>; 2],
}

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{} cannot be read: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file is not in PEM, or has something else.
    #[error("{} cannot be used: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl ServerTls {
    /// Reads a certificate with those that issued it, and its key.
    ///
    /// # Errors
    /// If a file cannot be read, others can read the key, or the two do not belong together.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let changed = times(&certificate, &key);
        let config = load(&certificate, &key)?;
        Ok(Self { certificate, key, current: Mutex::new(LoadedCertificate { config, changed }) })
    }

    /// The acceptor of connections with the present certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current().config).into()
    }

    /// Reads the files again if they have changed. The certificate before stays if they cannot be
    /// used; that is reported once for each change.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let changed = times(&self.certificate, &self.key);
        if self.current().changed == changed {
            return Ok(());
        }
        let loaded = load(&self.certificate, &self.key);
        let mut current = self.current();
        current.changed = changed;
        current.config = loaded?;
        Ok(())
    }

    fn current(&self) -> MutexGuard<'_, LoadedCertificate> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the DER of the first certificate of a text in PEM; `None` if it has none.
#[must_use]
pub fn certificate_der(pem: &[u8]) -> Option<Vec<u8>> {
    let first = CertificateDer::pem_slice_iter(pem).next()?;
    first.ok().map(|certificate| certificate.to_vec())
}

fn times(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
}

fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    check_private(key)?;
    let of_certificate = |error| unusable(certificate, error);
    let chain = CertificateDer::pem_file_iter(certificate).map_err(of_certificate)?;
    let chain = chain.map(|one| one.map_err(of_certificate)).collect::<Result<Vec<_>, _>>()?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
    let content = |error: tokio_rustls::rustls::Error| TlsError::Content {
        path: certificate.to_owned(),
        what: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(content)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(content)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn unusable(path: &Path, error: Error) -> TlsError {
    let path = path.to_owned();
    match error {
        Error::Io(cause) => TlsError::File { path, cause },
        // The text of the error may have a part of the file.
        Error::NoItemsFound => {
            TlsError::Content { path, what: "it has none of what it should have".to_owned() }
        }
        _ => TlsError::Content { path, what: "it is not in PEM".to_owned() },
    }
}

/// Refuses a key that everybody on this machine can read.
fn check_private(key: &Path) -> Result<(), TlsError> {
    let failed = |cause| TlsError::File { path: key.to_owned(), cause };
    let metadata = File::open(key).and_then(|file| file.metadata()).map_err(failed)?;
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o007 != 0 {
        let what = "everybody on this machine may use it: chmod o= on the file".to_owned();
        return Err(TlsError::Content { path: key.to_owned(), what });
    }
    let _ = metadata;
    Ok(())
}

#[cfg(test)]
mod tests {
    use conclave_test_servers::TestAuthority;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    fn trusting(authority: &TestAuthority) -> TlsConnector {
        let own = CertificateDer::from_pem_file(authority.own().certificate).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    /// Asks for a page over TLS. Returns the certificate of the server and the answer.
    async fn get(connector: &TlsConnector, port: u16) -> io::Result<(Vec<u8>, String)> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = connector.connect(name, stream).await?;
        stream.write_all(b"GET /hello HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        // The server closes its side first, which is no truncation for an answer that is whole.
        let _ = stream.read_to_string(&mut answer).await;
        let certificates = stream.get_ref().1.peer_certificates().unwrap();
        Ok((certificates[0].to_vec(), answer))
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
        let authority = TestAuthority::new().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let paths = ["crt", "key"].map(|name| temp.path().join(name));
        let install = |name: &str| {
            let issued = authority.issue(name, "IP:127.0.0.1", [2020, 2049]).unwrap();
            for (from, to) in [issued.certificate, issued.key].iter().zip(&paths) {
                fs::copy(from, to).unwrap();
            }
            std::process::Command::new("chmod").arg("600").arg(&paths[1]).status().unwrap();
        };
        install("first");
        let [certificate, key] = paths.clone();
        let tls = Arc::new(ServerTls::open(certificate, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = axum::Router::new().route("/hello", axum::routing::get(async || "hello"));
        let (stop, stopping) = tokio::sync::watch::channel(false);
        let served = Some(Arc::clone(&tls));
        tokio::spawn(crate::connections::serve(listener, router, served, stopping));
        let connector = trusting(&authority);
        let (first, answer) = get(&connector, port).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("hello"), "{answer}");
        install("second");
        tls.reload().unwrap();
        let (second, _) = get(&connector, port).await.unwrap();
        assert_ne!(first, second);
        fs::write(&paths[0], "no certificate").unwrap();
        assert!(tls.reload().is_err() && tls.reload().is_ok(), "it is reported once");
        assert_eq!(get(&connector, port).await.unwrap().0, second);
        // One that speaks no TLS gets no answer, and others do.
        let mut plain = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        plain.write_all(b"GET /hello HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.windows(5).any(|part| part == b"hello"));
        assert!(get(&trusting(&TestAuthority::new().unwrap()), port).await.is_err());
        drop(stop);
    }

    #[test]
    fn a_key_that_everybody_can_read_and_a_wrong_file_are_refused() {
        let authority = TestAuthority::new().unwrap();
        let issued = authority.issue("one", "IP:127.0.0.1", [2020, 2049]).unwrap();
        let mode = |mode| {
            std::process::Command::new("chmod").arg(mode).arg(&issued.key).status().unwrap();
        };
        let open = |certificate: &Path, key: &Path| {
            let opened = ServerTls::open(certificate.to_owned(), key.to_owned());
            opened.err().map(|error| error.to_string()).unwrap_or_default()
        };
        mode("604");
        assert!(open(&issued.certificate, &issued.key).contains("everybody on this machine"));
        mode("600");
        assert_eq!(open(&issued.certificate, &issued.key), "");
        assert!(open(&issued.key, &issued.key).contains("cannot be used"));
        assert!(open(&issued.certificate, Path::new("/nothing")).contains("cannot be read"));
    }
}
