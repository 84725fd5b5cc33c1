//! The password of a database as libpq finds it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Once;

use conclave_runtime::store::PostgresAddress;

use crate::ui::show::show_path;
use crate::ui::stderr;

/// The password of the variable `PGPASSWORD`, or else of the file of passwords.
pub(super) fn password_of(
    database: &PostgresAddress,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<String> {
    if let Some(password) = variable("PGPASSWORD") {
        return password.into_string().ok();
    }
    let users = || variable("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let file = variable("PGPASSFILE").map(PathBuf::from).or_else(users)?;
    let user = variable("USER").and_then(|user| user.into_string().ok()).unwrap_or_default();
    database.password_in(&private_text(&file)?, &user)
}

/// The text of a file that only its owner can read. Any other file is reported and ignored, as
/// libpq does.
fn private_text(file: &Path) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(file).ok()?.permissions().mode();
        if mode & 0o077 != 0 {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                let path = show_path(file);
                stderr::warning(format_args!(
                    "{path} is ignored: other users can access it; make it private: chmod 600 {path}"
                ));
            });
            return None;
        }
    }
    std::fs::read_to_string(file).ok()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use conclave_runtime::store::StoreAddress;

    use super::*;

    #[test]
    fn a_password_comes_from_the_environment_or_a_private_file() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".pgpass");
        let Ok(StoreAddress::Postgres(database)) = "postgres://ada@db/runs".parse() else {
            panic!("it is the address of a database");
        };
        let find = |variables: &[(&str, &Path)]| {
            password_of(&database, |name| {
                let pair = variables.iter().find(|(other, _)| *other == name);
                pair.map(|(_, value)| value.as_os_str().to_owned())
            })
        };
        let of_home: (&str, &Path) = ("HOME", home.path());
        assert_eq!(find(&[of_home]), None, "there is no file");
        std::fs::write(&file, "db:5432:runs:ada:from file\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        assert_eq!(find(&[of_home]), None, "others can read the file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(find(&[of_home]).as_deref(), Some("from file"));
        assert_eq!(find(&[("PGPASSFILE", &file)]).as_deref(), Some("from file"));
        let first = ("PGPASSWORD", Path::new("from variable"));
        assert_eq!(find(&[of_home, first]).as_deref(), Some("from variable"));
    }
}
