//! `store`: where the runs of a config are stored. The shell opens it.

use super::plugin;
use super::reader::{ConfigReader, SpannedValue};
use crate::types::wording::code;

/// The beginnings of a database's URL.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Reads a folder, joined to that of the config, or the URL of a database. A config is shared and
/// kept under version control, so the URL has no password.
pub(super) fn read(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    folder: &str,
) -> Option<String> {
    let text = item.string(reader)?;
    let Some(rest) = after_scheme(text) else {
        return plugin::path(reader, item, folder).map(|path| path.path);
    };
    if has_password(rest) {
        let what = format!("{} is not allowed: it holds a password", code(&item.name));
        let help = "write the URL without it; the password comes from PGPASSWORD, or from the file \
                    that PGPASSFILE names [default: ~/.pgpass]";
        reader.secret_error(&item.span, what, help.to_owned());
        return None;
    }
    Some(text.to_owned())
}

/// The rest of a database's URL; `None` for a folder.
fn after_scheme(text: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| {
        let (start, rest) = text.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Whether a URL has a password, before the host or as a parameter. A `@`, `/` or `?` in the password
/// itself must not hide it, so the last `@` counts.
fn has_password(rest: &str) -> bool {
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    let is_password = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        name.to_ascii_lowercase().ends_with("password")
    };
    login.is_some_and(|login| login.contains(':')) || query.split('&').any(is_password)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ProblemCode};

    fn read(value: &str) -> Result<Option<String>, String> {
        let text = format!(
            "entry = \"desk\"\nstore = {value}\n[plugins.chat]\nsource = \"stock:chat\"\n\
             [tasks.desk]\nagent = \"chat\"\n"
        );
        match Config::parse("conclave.toml", "/srv/desk", &text) {
            Ok(config) => Ok(config.store),
            Err(problems) => {
                if problems.0.iter().any(|problem| problem.code == ProblemCode::PlaintextKey) {
                    let text = problems.to_string();
                    assert!(!text.contains("hunter2") && text.contains("PGPASSFILE"), "{text}");
                }
                Err(problems.0[0].code.as_str().to_owned())
            }
        }
    }

    #[test]
    fn a_store_is_a_folder_from_that_of_the_config_or_the_url_of_a_database() {
        for (value, store) in [
            (r#""runs""#, "/srv/desk/runs"),
            (r#""/var/lib/conclave""#, "/var/lib/conclave"),
            (r#""postgres://ada@db.example:5433/x""#, "postgres://ada@db.example:5433/x"),
            (r#""PostgreSQL://db/x?sslmode=require""#, "PostgreSQL://db/x?sslmode=require"),
            (r#""postgres://[::1]:5432/x""#, "postgres://[::1]:5432/x"),
        ] {
            assert_eq!(read(value), Ok(Some(store.to_owned())), "{value}");
        }
        for (value, code) in [
            (r#""""#, "config/invalid-value"),
            (r#""~/runs""#, "config/invalid-value"),
            ("7", "config/wrong-type"),
        ] {
            assert_eq!(read(value), Err(code.to_owned()), "{value}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        for value in [
            r#""postgres://ada:hunter2@db/x""#,
            r#""postgres://:hunter2@db/x""#,
            r#""POSTGRES://ada:hun@ter2@db/x""#,
            r#""postgres://ada:12/hunter2@db/x""#,
            r#""postgres://ada:12?hunter2@db/x""#,
            r#""postgres://db/x?sslkey=k&sslpassword=hunter2""#,
            r#""postgres://db/x?sslmode=require&Password=hunter2""#,
        ] {
            assert_eq!(read(value), Err("config/plaintext-key".to_owned()), "{value}");
        }
    }
}
