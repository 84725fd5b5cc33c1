//! The file of passwords of libpq. The library reads no environment and no file of a user's: the
//! program passes the text.

use tokio_postgres::config::Host;

use super::connecting::Connecting;
use crate::storage::store::PostgresAddress;

/// The port of a server that names none.
const PORT: u16 = 5432;

/// Returns the password for a database: that of the first of its hosts for which the file has one.
/// `user` is the one of a connection whose URL names none.
pub(in crate::storage::store) fn password_in(
    address: &PostgresAddress,
    text: &str,
    user: &str,
) -> Option<String> {
    let config = Connecting::of(address).ok()?.config;
    let user = config.get_user().unwrap_or(user);
    let database = config.get_dbname().unwrap_or(user);
    let (hosts, ports) = (config.get_hosts(), config.get_ports());
    hosts.iter().enumerate().find_map(|(index, host)| {
        let host = match host {
            Host::Tcp(name) => name.as_str(),
            // As libpq names every socket of this machine.
            #[cfg(unix)]
            Host::Unix(_) => "localhost",
        };
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
        find_password(text, host, port, database, user)
    })
}

/// Returns the password for a connection from the text of a password file: the first line whose
/// fields match. A line is `host:port:database:user:password`; `*` matches everything, and `\:`
/// and `\\` stand for the characters.
fn find_password(text: &str, host: &str, port: u16, database: &str, user: &str) -> Option<String> {
    let port = port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [of_host, of_port, of_database, of_user, password] = fields.as_slice() else {
            return None;
        };
        let is_meant =
            [(of_host, host), (of_port, &port), (of_database, database), (of_user, user)]
                .iter()
                .all(|(pattern, value)| *pattern == "*" || pattern == value);
        is_meant.then(|| password.clone())
    })
}

/// Splits a line at its colons. The password is the last field, and may have further ones.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field) = (Vec::new(), String::new());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => field.extend(characters.next()),
            ':' if fields.len() < 4 => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::StoreAddress;

    #[test]
    fn the_url_of_a_database_says_which_line_is_meant() {
        let text = "b:5433:runs:ada:of b\nlocalhost:5432:runs:eve:of socket\ndb:5432:ada:ada:own\n";
        for (url, password) in [
            ("postgres:///runs?user=ada&host=a,b&port=5432,5433", Some("of b")),
            ("postgres://ada@b:5432/runs", None),
            ("postgres:///runs?user=eve&host=/run/postgresql", Some("of socket")),
            ("postgres://db", Some("own")),
        ] {
            let Ok(StoreAddress::Postgres(address)) = url.parse() else { panic!("{url}") };
            assert_eq!(address.password_in(text, "ada").as_deref(), password, "{url}");
        }
    }

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let text = "# for tests\ndb:5432:runs:ada:one\nd\\:b:*:*:ada:t\\\\w\\:o\n*:*:*:eve:x:y\n\
                    short:line\n*:5433:*:*:last";
        let find = |host, port, user| find_password(text, host, port, "runs", user);
        assert_eq!(find("db", 5432, "ada").as_deref(), Some("one"));
        assert_eq!(find("d:b", 1, "ada").as_deref(), Some("t\\w:o"));
        assert_eq!(find("db", 5432, "eve").as_deref(), Some("x:y"));
        assert_eq!(find("db", 5433, "bob").as_deref(), Some("last"));
        assert_eq!(find("db", 5432, "bob"), None);
    }
}
