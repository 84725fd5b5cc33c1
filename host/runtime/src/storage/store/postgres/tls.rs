//! TLS to the database, by the modes of libpq.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// A mode of TLS, as libpq names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    /// Encrypted where the server offers it. As with libpq, its certificate is not verified.
    Prefer,
    /// Encrypted. As with libpq, the server's certificate is verified only against `sslrootcert`,
    /// if that is there.
    Require,
    /// The certificate is verified, and may have another server's name.
    VerifyCa,
    VerifyFull,
}

impl TlsMode {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "disable" => Self::Disable,
            "prefer" | "allow" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

/// Returns what makes a TLS connection, with authorities of the operating system and of the file.
pub(super) fn connector(mode: TlsMode, roots: Option<&Path>) -> SqlResult<MakeRustlsConnect> {
    let wrong = |what: String| SqlError::new(SqlErrorKind::Other, what);
    let provider = Arc::new(ring::default_provider());
    let check = match (mode, roots.is_some()) {
        (TlsMode::VerifyFull, _) => Check::Full,
        (TlsMode::VerifyCa, _) | (TlsMode::Require, true) => Check::Authority,
        (TlsMode::Disable | TlsMode::Prefer | TlsMode::Require, _) => Check::Nothing,
    };
    let platform = if check == Check::Nothing {
        None
    } else {
        let mut extra: Vec<CertificateDer<'static>> = Vec::new();
        if let Some(file) = roots {
            let failed = |error: &dyn std::fmt::Display| {
                wrong(format!("sslrootcert {}: {error}", file.display()))
            };
            for certificate in
                CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))?
            {
                extra.push(certificate.map_err(|error| failed(&error))?);
            }
        }
        let verifier = Verifier::new_with_extra_roots(extra, Arc::clone(&provider))
            .map_err(|error| wrong(format!("the certificates of this machine: {error}")))?;
        Some(verifier)
    };
    let verifier = CertificateCheck { check, platform, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// What is verified of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Nothing,
    Authority,
    Full,
}

#[derive(Debug)]
struct CertificateCheck {
    check: Check,
    /// `None` only if nothing is verified.
    platform: Option<Verifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateCheck {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(platform) = &self.platform else { return Ok(ServerCertVerified::assertion()) };
        match platform.verify_server_cert(certificate, others, name, ocsp, now) {
            // The name is verified last, so everything else is in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Authority => Ok(ServerCertVerified::assertion()),
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
