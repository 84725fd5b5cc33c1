//! The tokens of people. A token is `NAME.SECRET` and is shown once; stored is a slow hash of it,
//! in a file of the operator's state folder or in the config.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use conclave_core::policy::roles::Role;
use conclave_core::types::ids::Millis;
use conclave_runtime::durable_file::{self, FileAccess, make_folders};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::ServerError;

/// Bytes of the secret in a token.
const SECRET: usize = 32;
/// Bytes of a salt, which is a digest of its token. Those of older programs are random and shorter.
const SALT: usize = 24;
/// Bytes of a token: those of the longest name, and of the secret.
pub(crate) const TOKEN_MAX: usize = 256;

/// A token of a person, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonToken {
    /// The name of the person.
    pub name: String,
    /// What the person may do.
    pub role: Role,
    /// The config whose server takes the token; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// The hash of the token, as a PHC string of argon2id.
    pub hash: String,
    /// When it was made.
    pub created: Millis,
}

/// A token with its hash.
pub struct NewToken {
    /// The token, for its person alone.
    pub token: String,
    /// Its hash, to be stored.
    pub hash: String,
}

impl NewToken {
    /// Makes a token with 256 random bits.
    ///
    /// # Errors
    /// `Randomness` if the system has none, `Hash` if the memory does not suffice.
    pub fn of(name: &str) -> Result<Self, ServerError> {
        let token = format!("{name}.{}", random_text()?);
        let hash = Argon2::default().hash_password_with_salt(token.as_bytes(), &salt_of(&token));
        let hash = hash.map_err(|error| ServerError::Hash(error.to_string()))?.to_string();
        Ok(Self { token, hash })
    }
}

/// The name in a token; `None` if it has not its form.
pub(crate) fn name_of(token: &str) -> Option<&str> {
    let (name, secret) = token.rsplit_once('.')?;
    let is_secret =
        secret.len() == 2 * SECRET && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_secret.then_some(name)
}

/// Whether the hash is that of the token. It takes long on purpose, and as long for each token.
pub(crate) fn verify(token: &str, hash: &str) -> bool {
    Argon2::default().verify_password(token.as_bytes(), hash).is_ok()
}

/// What a fast look says about a token and a stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuickMatch {
    /// They belong together, which the slow hash will say too.
    Same,
    /// They do not.
    Other,
    /// The hash is of an older program.
    Unknown,
}

/// Looks whether a hash can be that of a token, without computing it.
pub(crate) fn quick_match(token: &str, hash: &str) -> QuickMatch {
    let Some(salt) = PasswordHash::new(hash).ok().and_then(|hash| hash.salt) else {
        return QuickMatch::Unknown;
    };
    match salt.len() {
        SALT if *salt == salt_of(token) => QuickMatch::Same,
        SALT => QuickMatch::Other,
        _ => QuickMatch::Unknown,
    }
}

/// The salt for a token. It is as unique as the token, and tells nothing about it: nobody finds 256
/// random bits by a digest of them. Whoever reads it can tell the token from all others at once.
fn salt_of(token: &str) -> [u8; SALT] {
    let digest = Sha256::digest([b"conclave salt of a token\0", token.as_bytes()].concat());
    let mut salt = [0; SALT];
    salt.copy_from_slice(&digest[..SALT]);
    salt
}

/// 256 random bits in hexadecimal.
pub(crate) fn random_text() -> Result<String, ServerError> {
    let mut bytes = [0; SECRET];
    getrandom::fill(&mut bytes).map_err(ServerError::Randomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file with the tokens of people, for all servers of a user of this machine.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

/// The content of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTokens {
    tokens: Vec<PersonToken>,
}

impl TokenFile {
    /// The name of the file in a state folder.
    pub const NAME: &str = "server-tokens.json";

    /// The file in this state folder. It need not exist.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(Self::NAME) }
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All tokens; none if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or is not one of tokens.
    pub fn read(&self) -> io::Result<Vec<PersonToken>> {
        match durable_file::read_own(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => Ok(serde_json::from_slice::<StoredTokens>(&read?)?.tokens),
        }
    }

    /// Changes the tokens, and returns what `change` returns. Only the owner can read the file.
    ///
    /// # Errors
    /// As [`TokenFile::read`], or if the file cannot be written. It is unchanged then.
    pub fn edit<T>(&self, change: impl FnOnce(&mut Vec<PersonToken>) -> T) -> io::Result<T> {
        make_folders(durable_file::folder_of(&self.path), 0o700)?;
        // Another process that changes the file waits, so that no token of either is lost.
        let lock = File::create(self.path.with_extension("lock"))?;
        lock.lock()?;
        let mut stored = StoredTokens { tokens: self.read()? };
        let changed = change(&mut stored.tokens);
        let text = serde_json::to_vec_pretty(&stored)?;
        durable_file::replace(&self.path, &text, &FileAccess::Private)?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_verified_by_its_hash_alone() {
        let (one, other) = (NewToken::of("ada").unwrap(), NewToken::of("ada").unwrap());
        assert!(verify(&one.token, &one.hash) && !verify(&other.token, &one.hash));
        assert!(!verify("", &one.hash) && !verify(&one.token, "") && !verify(&one.hash, &one.hash));
        assert!(one.hash.starts_with("$argon2id$v=19$") && !one.hash.contains(&one.token[4..]));
        assert_eq!(name_of(&one.token), Some("ada"));
        assert_eq!(one.token.len(), "ada.".len() + 64);
        for text in ["", "ada", "ada.", "ada.secret", &one.token[1..].replace('.', "")] {
            assert_eq!(name_of(text), None, "{text}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_file_is_its_owners_alone_and_keeps_what_others_wrote() {
        use std::os::unix::fs::PermissionsExt;

        let temp = tempfile::tempdir().unwrap();
        let file = TokenFile::in_folder(&temp.path().join("state"));
        assert_eq!(file.read().unwrap(), []);
        let token = |name: &str| PersonToken {
            name: name.to_owned(),
            role: Role::Viewer,
            config: None,
            hash: "$argon2id$".to_owned(),
            created: Millis(1),
        };
        file.edit(|tokens| tokens.push(token("ada"))).unwrap();
        file.edit(|tokens| tokens.push(token("bob"))).unwrap();
        assert_eq!(file.read().unwrap(), [token("ada"), token("bob")]);
        let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(file.path(), "{}").unwrap();
        assert!(file.edit(|tokens| tokens.clear()).is_err(), "it is no file of tokens");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "{}");
    }
}
