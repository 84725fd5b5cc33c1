//! TLS to the database, by the modes and files of libpq.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// A mode of TLS, as libpq names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    /// Encrypted where the server offers it. As with libpq, its certificate is not verified.
    Prefer,
    /// Encrypted. As with libpq, the server's certificate is verified only against `sslrootcert`,
    /// if that is there.
    Require,
    /// The certificate is verified, and may have another server's name.
    VerifyCa,
    #[default]
    VerifyFull,
}

/// What an address says about TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsOptions {
    pub(super) mode: TlsMode,
    /// The only authorities that are trusted. `None`: those of the operating system.
    pub(super) roots: Option<PathBuf>,
    /// The certificate of the client, and the file of its key.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
}

impl TlsMode {
    const ALL: [Self; 5] =
        [Self::Disable, Self::Prefer, Self::Require, Self::VerifyCa, Self::VerifyFull];

    pub(super) fn of_name(name: &str) -> Option<Self> {
        if name == "allow" {
            return Some(Self::Prefer);
        }
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// Returns what makes a TLS connection.
pub(super) fn connector(options: &TlsOptions) -> SqlResult<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let verifier = ServerCheck {
        authorities: authorities(options, &provider)?,
        is_any_name_good: options.mode != TlsMode::VerifyFull,
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &options.certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            check_private(key)?;
            let chain = certificates("sslcert", certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unreadable("sslkey", key, &error))?;
            config
                .with_client_auth_cert(chain, secret)
                .map_err(|error| unreadable("sslcert", certificate, &error))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Returns what verifies that a trusted authority has issued the server's certificate; `None` if
/// the mode trusts every server.
fn authorities(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
) -> SqlResult<Option<Arc<dyn ServerCertVerifier>>> {
    let Some(file) = &options.roots else {
        return match options.mode {
            TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => Ok(None),
            // Anybody gets a certificate from one of them, for a name of their own.
            TlsMode::VerifyCa => Err(refused(
                "sslmode=verify-ca needs sslrootcert=FILE with the authority of your servers; \
                 with the authorities of this machine use sslmode=verify-full"
                    .to_owned(),
            )),
            TlsMode::VerifyFull => {
                let verifier = Verifier::new(Arc::clone(provider)).map_err(|error| {
                    refused(format!("the certificates of this machine: {error}"))
                })?;
                Ok(Some(Arc::new(verifier)))
            }
        };
    };
    if matches!(options.mode, TlsMode::Disable | TlsMode::Prefer) {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates("sslrootcert", file)? {
        roots.add(certificate).map_err(|error| unreadable("sslrootcert", file, &error))?;
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    // It fails for a file without a certificate.
    Ok(Some(verifier.map_err(|error| unreadable("sslrootcert", file, &error))?))
}

fn certificates(option: &str, file: &Path) -> SqlResult<Vec<CertificateDer<'static>>> {
    let failed = |error| unreadable(option, file, &error);
    CertificateDer::pem_file_iter(file).map_err(failed)?.map(|one| one.map_err(failed)).collect()
}

/// Refuses a key that others can read, as libpq does.
fn check_private(key: &Path) -> SqlResult<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::metadata(key).map_err(|error| unreadable("sslkey", key, &error))?;
        // A key of root may be for a group, such as `ssl-cert` of Debian.
        let of_others = if file.uid() == 0 { 0o027 } else { 0o077 };
        if file.mode() & of_others != 0 {
            let key = key.display();
            return Err(refused(format!("sslkey {key}: others can access it: chmod 600 {key}")));
        }
    }
    Ok(())
}

fn unreadable(option: &str, file: &Path, error: &dyn std::fmt::Display) -> SqlError {
    refused(format!("{option} {}: {error}", file.display()))
}

fn refused(what: String) -> SqlError {
    SqlError::new(SqlErrorKind::Other, what)
}

/// Returns how an operator mends a handshake that failed; `None` if the error is none of TLS.
pub(super) fn remedy(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(remedy_of_handshake(error));
        }
        // The source of such an error is not the error in it, but the source of that one.
        cause = match error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref()) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn remedy_of_handshake(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(error) => match error {
            // The second: another authority has the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "add the certificate of its authority to the address: sslrootcert=FILE"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "connect by a name of the certificate, or make one with this name \
                 (subjectAltName)"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew the server's certificate, then SELECT pg_reload_conf();"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "compare the clocks of both machines"
            }
            other if other.to_string().contains("CaUsedAsEndEntity") => {
                "the certificate is that of an authority; make one for the server, with \
                 basicConstraints=CA:FALSE"
            }
            _ => "make another certificate for the server",
        },
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::DecryptError,
        ) => "the server refuses this client's certificate; see sslcert, and its ssl_ca_file",
        _ => "compare ssl_min_protocol_version and ssl_ciphers of the server",
    }
}

/// Verifies the server as the mode says.
#[derive(Debug)]
struct ServerCheck {
    /// `None` if nothing is verified.
    authorities: Option<Arc<dyn ServerCertVerifier>>,
    is_any_name_good: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        match authorities.verify_server_cert(certificate, others, name, ocsp, now) {
            // The name is verified last, so everything else is in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.is_any_name_good => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
