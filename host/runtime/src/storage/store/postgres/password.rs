//! The file of passwords of libpq. The library reads no environment and no file of a user's: the
//! program passes the text.

/// Returns the password for a connection from the text of a password file: the first line whose
/// fields match. A line is `host:port:database:user:password`; `*` matches everything, and `\:`
/// and `\\` stand for the characters.
#[must_use]
pub fn find_password(
    text: &str,
    host: &str,
    port: u16,
    database: &str,
    user: &str,
) -> Option<String> {
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
