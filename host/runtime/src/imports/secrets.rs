//! Sources of model keys and secrets. A config only refers to a key; the embedding program's source
//! reads it when it is first needed. Plugins never see a key.

mod command;
pub(crate) mod scrub;
pub(crate) mod vault;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use conclave_core::config::{ConfigPath, KeyRef};
use conclave_models::ApiKey;

use crate::support::clock::BoxFuture;

/// Maximum bytes of a key, with its line end.
const KEY_BYTES: usize = 16 << 10;

/// Reads keys.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::clock::BoxFuture;
/// use conclave_runtime::config::KeyRef;
/// use conclave_runtime::models::ApiKey;
/// use conclave_runtime::secrets::SecretSource;
/// use conclave_runtime::{Host, HostOptions};
///
/// /// A vault that the program has opened; a config names what is in it as `key = { env = "NAME" }`.
/// struct Vault;
///
/// impl SecretSource for Vault {
///     fn secret(&self, from: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>> {
///         let found = self.check(from).map(|()| ApiKey::new("sk-from-the-vault".to_owned()));
///         Box::pin(std::future::ready(found))
///     }
///
///     fn check(&self, from: &KeyRef) -> Result<(), String> {
///         match from {
///             KeyRef::Env(name) if name == "MODEL_KEY" => Ok(()),
///             _ => Err("the vault holds MODEL_KEY only".to_owned()),
///         }
///     }
/// }
///
/// let host = Host::new(HostOptions { secrets: Arc::new(Vault), ..HostOptions::default() })?;
/// # drop(host);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SecretSource: Send + Sync + 'static {
    /// Returns the current key. Called when a model is first used, and again after its server
    /// refused the key.
    ///
    /// # Errors
    /// In words for the operator: where the source looked, and why there is no key. Never the key
    /// or a part of it.
    fn secret(&self, from: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>>;

    /// Checks whether the key is likely available. Called when a config is prepared, so it starts
    /// no program and does not block.
    ///
    /// # Errors
    /// As `secret`.
    fn check(&self, from: &KeyRef) -> Result<(), String>;
}

/// A source without keys; a config that refers to one is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl SecretSource for NoSecrets {
    fn secret(&self, from: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>> {
        Box::pin(std::future::ready(self.check(from).map(|()| ApiKey::new(String::new()))))
    }

    fn check(&self, _: &KeyRef) -> Result<(), String> {
        Err("this program has no source of keys".to_owned())
    }
}

/// Reads keys from the three sources that a config can name: a variable, a file or a program. It
/// reads variables through a given function only. A started program inherits the environment of
/// this process.
///
/// ```
/// use conclave_runtime::config::KeyRef;
/// use conclave_runtime::secrets::{SecretSource, Sources};
///
/// let sources = Sources::new(|name| std::env::var(name).ok());
/// assert_eq!(sources.check(&KeyRef::Env("NO_SUCH_KEY".to_owned())).unwrap_err(), "the variable NO_SUCH_KEY is not set");
/// ```
#[derive(Clone, Debug)]
pub struct Sources {
    environment: fn(&str) -> Option<String>,
    folder: Option<PathBuf>,
}

impl Sources {
    /// A source that reads variables with this function.
    #[must_use]
    pub fn new(environment: fn(&str) -> Option<String>) -> Self {
        Self { environment, folder: None }
    }

    /// Sets the folder in which programs start, usually that of the config. The default is the
    /// current directory.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..self }
    }

    fn variable(&self, name: &str) -> Result<String, String> {
        match (self.environment)(name) {
            Some(value) if !value.trim().is_empty() => Ok(value),
            Some(_) => Err(format!("the variable {name} is empty")),
            None => Err(format!("the variable {name} is not set")),
        }
    }

    /// Checks that a program exists: with a `/` in its name relative to the folder, otherwise on
    /// the `PATH`.
    fn find(&self, program: &str) -> Result<(), String> {
        let is_there = |path: &Path| {
            self.folder
                .as_deref()
                .map_or_else(|| path.to_owned(), |folder| folder.join(path))
                .is_file()
        };
        if program.contains('/') {
            return if is_there(Path::new(program)) {
                Ok(())
            } else {
                Err(format!("there is no program {program}"))
            };
        }
        // On other systems programs have extensions that the config omits.
        let path = (self.environment)("PATH").filter(|_| cfg!(unix)).unwrap_or_default();
        let found = path.is_empty()
            || path.split(':').any(|folder| is_there(&Path::new(folder).join(program)));
        if found { Ok(()) } else { Err(format!("there is no program {program} on the PATH")) }
    }
}

impl SecretSource for Sources {
    fn secret(&self, from: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>> {
        match from {
            KeyRef::Env(name) => Box::pin(std::future::ready(self.variable(name).map(ApiKey::new))),
            KeyRef::File(path) => {
                let path = path.clone();
                Box::pin(async move {
                    let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                    read.unwrap_or_else(|_| Err("the file could not be read".to_owned()))
                })
            }
            KeyRef::Command(words) => Box::pin(command::run(words.clone(), self.folder.clone())),
        }
    }

    fn check(&self, from: &KeyRef) -> Result<(), String> {
        match from {
            KeyRef::Env(name) => self.variable(name).map(drop),
            KeyRef::File(path) => regular_file(path).map(drop),
            KeyRef::Command(words) => {
                self.find(words.first().map(String::as_str).unwrap_or_default())
            }
        }
    }
}

fn regular_file(path: &ConfigPath) -> Result<(), String> {
    let metadata = std::fs::metadata(&path.path)
        .map_err(|error| format!("{} could not be read: {error}", path.display_path))?;
    if metadata.is_file() {
        Ok(())
    } else {
        Err(format!("{} is not a regular file", path.display_path))
    }
}

fn read_file(path: &ConfigPath) -> Result<ApiKey, String> {
    // Opening a named pipe would block until it has a writer.
    regular_file(path)?;
    let mut file = std::fs::File::open(&path.path)
        .map_err(|error| format!("{} could not be read: {error}", path.display_path))?;
    first_line(&mut file).map_err(|what| format!("{} {what}", path.display_path))
}

/// Returns the first line, which must not be empty or longer than a key.
fn first_line(from: &mut impl Read) -> Result<ApiKey, String> {
    let mut line = Vec::new();
    let read = BufReader::new(from.take(KEY_BYTES as u64 + 1)).read_until(b'\n', &mut line);
    read.map_err(|error| format!("could not be read: {error}"))?;
    if line.len() > KEY_BYTES {
        return Err(format!("has a first line of more than {KEY_BYTES} bytes"));
    }
    let line =
        String::from_utf8(line).map_err(|_| "has a first line that is not UTF-8".to_owned())?;
    if line.trim().is_empty() {
        Err("has an empty first line".to_owned())
    } else {
        Ok(ApiKey::new(line))
    }
}

/// The key source of one model.
#[cfg(feature = "http-models")]
pub(crate) struct KeyOf {
    pub(crate) secrets: std::sync::Arc<dyn SecretSource>,
    pub(crate) from: KeyRef,
}

#[cfg(feature = "http-models")]
impl conclave_models::KeySource for KeyOf {
    fn key(&self) -> BoxFuture<'static, Result<ApiKey, String>> {
        self.secrets.secret(&self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> KeyRef {
        KeyRef::File(ConfigPath {
            display_path: "key.txt".to_owned(),
            path: path.display().to_string(),
        })
    }

    async fn secret(sources: &Sources, from: KeyRef) -> Result<String, String> {
        sources.secret(&from).await.map(|key| key.reveal().to_owned())
    }

    fn environment(name: &str) -> Option<String> {
        [("KEY", "sk-1"), ("EMPTY", " "), ("PATH", "/bin:/usr/bin")]
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    }

    #[tokio::test]
    async fn variables_come_from_the_function_that_was_given() {
        let sources = Sources::new(environment);
        let env = |name: &str| KeyRef::Env(name.to_owned());
        assert_eq!(secret(&sources, env("KEY")).await, Ok("sk-1".to_owned()));
        assert_eq!(sources.check(&env("KEY")), Ok(()));
        assert_eq!(
            secret(&sources, env("EMPTY")).await,
            Err("the variable EMPTY is empty".to_owned())
        );
        assert_eq!(
            sources.check(&env("HOME")),
            Err("the variable HOME is not set".to_owned()),
            "the process has it, the function not"
        );
    }

    #[tokio::test]
    async fn of_a_file_only_the_first_line_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("key");
        let sources = Sources::new(|_| None);
        let read = async |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            secret(&sources, file(&path)).await
        };
        assert_eq!(read(b"sk-2\r\nrest").await, Ok("sk-2".to_owned()));
        assert_eq!(read(b"").await, Err("key.txt has an empty first line".to_owned()));
        assert_eq!(read(b"\nsk-2").await, Err("key.txt has an empty first line".to_owned()));
        assert_eq!(
            read(&vec![b'x'; 20_000]).await,
            Err("key.txt has a first line of more than 16384 bytes".to_owned())
        );
        assert_eq!(
            read(b"\xff\n").await,
            Err("key.txt has a first line that is not UTF-8".to_owned())
        );
        assert!(sources.check(&file(&path)).is_ok());
        assert!(sources.check(&file(temp.path())).unwrap_err().contains("not a regular file"));
        assert!(
            sources
                .check(&file(&temp.path().join("none")))
                .unwrap_err()
                .contains("could not be read")
        );
    }

    #[tokio::test]
    async fn without_a_source_there_are_no_keys() {
        let from = KeyRef::Env("KEY".to_owned());
        assert!(NoSecrets.check(&from).is_err());
        assert!(NoSecrets.secret(&from).await.is_err());
    }
}
