//! Logins at registries. The embedding program decides where they come from; the library reads
//! neither files nor the environment.

use std::fmt;

/// A user name and a password, or an access token in its place.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user name.
    pub user: String,
    /// The password; never shown.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The source of logins.
pub trait RegistryLogins: fmt::Debug + Send + Sync {
    /// Returns the login at a registry, a host with its port if it has one; `None` for anonymous
    /// access. It is called on a thread that may block, only after the registry required a login.
    ///
    /// # Errors
    /// The reason why a configured login cannot be read, for display.
    fn login(&self, registry: &str) -> Result<Option<Login>, String>;
}

/// Anonymous access to every registry.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLogins;

impl RegistryLogins for NoLogins {
    fn login(&self, _: &str) -> Result<Option<Login>, String> {
        Ok(None)
    }
}
