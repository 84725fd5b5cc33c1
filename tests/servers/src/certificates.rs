//! Certificates of a test's own, made by `openssl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The sections of `openssl`: requests without questions, an authority, and what it issues.
const SETTINGS: &str = "
[req]
distinguished_name = none
[none]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, digitalSignature
[ca]
default_ca = issue
[issue]
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
[any]
commonName = supplied
[leaf]
basicConstraints = critical, CA:FALSE
";

/// An authority that issues certificates. Its files are removed when it is dropped.
#[derive(Debug)]
pub struct TestAuthority {
    folder: tempfile::TempDir,
}

/// The files of a certificate and of its key, in PEM.
#[derive(Clone, Debug)]
pub struct TestCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TestAuthority {
    /// Creates an authority.
    ///
    /// # Errors
    /// If `openssl` is not installed or fails.
    pub fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        for (file, text) in [("settings", SETTINGS), ("index", "")] {
            fs::write(folder.path().join(file), text).map_err(|error| error.to_string())?;
        }
        let authority = Self { folder };
        let own = ["-x509", "-extensions", "authority", "-days", "30", "-out", "authority.crt"];
        authority.request("authority", "test authority", &own)?;
        Ok(authority)
    }

    /// Returns the certificate and the key of the authority itself.
    #[must_use]
    pub fn own(&self) -> TestCertificate {
        self.files("authority")
    }

    /// Issues a certificate for names such as `DNS:db.example` or `IP:127.0.0.1`, for the years
    /// from the first to the beginning of the second.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn issue(
        &self,
        name: &str,
        names: &str,
        years: [u32; 2],
    ) -> Result<TestCertificate, String> {
        let extensions = format!("{SETTINGS}subjectAltName = {names}\n");
        let of_leaf = format!("{name}.settings");
        let file = self.folder.path().join(&of_leaf);
        fs::write(file, extensions).map_err(|error| error.to_string())?;
        let request = format!("{name}.request");
        self.request(name, name, &["-out", &request])?;
        let [start, end] = years.map(|year| format!("{year}0101000000Z"));
        self.openssl(&[
            "ca",
            "-batch",
            "-notext",
            "-config",
            &of_leaf,
            "-extensions",
            "leaf",
            "-cert",
            "authority.crt",
            "-keyfile",
            "authority.key",
            "-startdate",
            &start,
            "-enddate",
            &end,
            "-in",
            &request,
            "-out",
            &format!("{name}.crt"),
        ])?;
        Ok(self.files(name))
    }

    /// Makes a certificate that is its own authority, and none for others.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn self_signed(&self, name: &str, names: &str) -> Result<TestCertificate, String> {
        let own = format!("{name}.crt");
        let names = format!("subjectAltName={names}");
        let extensions = ["-x509", "-addext", "basicConstraints=CA:FALSE", "-addext", &names];
        let words = [&extensions[..], &["-days", "30", "-out", &own]].concat();
        self.request(name, name, &words)?;
        Ok(self.files(name))
    }

    fn request(&self, name: &str, common_name: &str, others: &[&str]) -> Result<(), String> {
        let (key, subject) = (format!("{name}.key"), format!("/CN={common_name}"));
        let mut words = vec![
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-config",
            "settings",
            "-keyout",
            &key,
            "-subj",
            &subject,
        ];
        words.extend(others);
        self.openssl(&words)
    }

    fn files(&self, name: &str) -> TestCertificate {
        let file = |ending| self.folder.path().join(format!("{name}.{ending}"));
        TestCertificate { certificate: file("crt"), key: file("key") }
    }

    fn openssl(&self, words: &[&str]) -> Result<(), String> {
        let output = Command::new("openssl")
            .args(words)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("openssl: {error}"))?;
        let errors = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(format!("openssl: {}", errors())) }
    }
}

impl TestCertificate {
    /// The path of the certificate as a parameter of a URL.
    #[must_use]
    pub fn path(&self) -> &str {
        text(&self.certificate)
    }

    /// The path of the key as a parameter of a URL.
    #[must_use]
    pub fn key_path(&self) -> &str {
        text(&self.key)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
