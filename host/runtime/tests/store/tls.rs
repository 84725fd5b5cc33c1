//! Connections to a server with a certificate: the modes of TLS, files, passwords, and what a
//! refusal says.

use conclave_runtime::store::{Store, StoreAddress};
use conclave_test_servers::{
    TestAuthority, TestDatabase, TestPostgres, is_skipped, postgres_or_skip,
};

/// The years in which a certificate is valid.
const NOW: [u32; 2] = [2020, 2049];
const PAST: [u32; 2] = [2020, 2021];

/// A server, and the authority of its certificates. `None` where one of them cannot be had.
fn server() -> Option<(TestPostgres, TestDatabase, TestAuthority)> {
    let server = postgres_or_skip(TestPostgres::start())?;
    let authority = TestAuthority::new();
    if is_skipped(authority.as_ref().map(drop).map_err(Clone::clone)) {
        return None;
    }
    let database = server.database().unwrap();
    Some((server, database, authority.unwrap()))
}

/// Opens the store with options of TLS. Returns the reason of a refusal.
fn open(database: &TestDatabase, options: &str) -> Result<(), String> {
    let address: StoreAddress = format!("{}?{options}", database.url()).parse().unwrap();
    Store::open(&address).map(drop).map_err(|error| error.to_string())
}

/// Checks which options are accepted, or what the refusal of others says.
fn check(database: &TestDatabase, cases: &[(&str, Option<&str>)]) {
    for (options, refusal) in cases {
        match (open(database, options), refusal) {
            (Ok(()), None) => {}
            (Err(error), Some(refusal)) if error.contains(refusal) => {}
            (result, expected) => panic!("{options}: {result:?} instead of {expected:?}"),
        }
    }
}

/// The number of connections of a database that were encrypted, by its own words.
fn is_encrypted(database: &TestDatabase, options: &str) -> bool {
    let address: StoreAddress = format!("{}?{options}", database.url()).parse().unwrap();
    let store = Store::open(&address).unwrap();
    let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND application_name = 'conclave'";
    let is_encrypted = database.query(&[sql]).unwrap() == "t";
    drop(store);
    is_encrypted
}

#[test]
fn a_mode_verifies_what_it_promises() {
    let Some((server, database, authority)) = server() else { return };
    let another = TestAuthority::new().unwrap();
    let own = authority.own();
    let (root, another_root) = (own.path().to_owned(), another.own().path().to_owned());
    let with = |options: &str| format!("{options}&sslrootcert={root}");
    let no_tls = Some("ALTER SYSTEM SET ssl = on;");
    check(
        &database,
        &[
            ("sslmode=disable", None),
            ("sslmode=prefer", None),
            ("sslmode=require", no_tls),
            (&with("sslmode=verify-ca"), no_tls),
            (&with("sslmode=verify-full"), no_tls),
        ],
    );

    let good = authority.issue("good", "IP:127.0.0.1", NOW).unwrap();
    server.encrypt(&good, &own).unwrap();
    let by_another = format!("sslmode=verify-full&sslrootcert={another_root}");
    let by_another_ca = format!("sslmode=verify-ca&sslrootcert={another_root}");
    let unknown = Some("sslrootcert=FILE");
    check(
        &database,
        &[
            ("sslmode=disable", None),
            ("sslmode=require", None),
            (&with("sslmode=require"), None),
            (&with("sslmode=verify-ca"), None),
            (&with("sslmode=verify-full"), None),
            (&with("sslmode=verify-full&channel_binding=require"), None),
            ("sslmode=disable&channel_binding=require", Some("hannel binding")),
            ("sslmode=verify-full", unknown),
            ("sslmode=verify-full&sslrootcert=system", unknown),
            (&by_another, unknown),
            (&by_another_ca, unknown),
            // Everybody gets a certificate from an authority of the system, for their own name.
            ("sslmode=verify-ca", Some("sslmode=verify-full")),
            ("sslmode=verify-ca&sslrootcert=/nowhere/root.crt", Some("/nowhere/root.crt")),
        ],
    );
    for options in ["sslmode=prefer", "sslmode=require", &with("sslmode=verify-full")] {
        assert!(is_encrypted(&database, options), "{options}");
    }
    assert!(!is_encrypted(&database, "sslmode=disable"));

    let wrong_name = authority.issue("other", "DNS:db.example", NOW).unwrap();
    server.encrypt(&wrong_name, &own).unwrap();
    check(
        &database,
        &[
            (&with("sslmode=verify-full"), Some("subjectAltName")),
            (&with("sslmode=verify-ca"), None),
        ],
    );

    let expired = authority.issue("expired", "IP:127.0.0.1", PAST).unwrap();
    server.encrypt(&expired, &own).unwrap();
    check(
        &database,
        &[
            (&with("sslmode=verify-full"), Some("renew the server's certificate")),
            (&with("sslmode=verify-ca"), Some("renew the server's certificate")),
            ("sslmode=require", None),
        ],
    );

    // As `openssl req -x509` makes one for a server.
    server.encrypt(&own, &own).unwrap();
    check(
        &database,
        &[
            ("sslmode=require", None),
            ("sslmode=verify-full", Some("make one for the server")),
            (&with("sslmode=verify-full"), Some("make one for the server")),
        ],
    );

    let itself = authority.self_signed("itself", "IP:127.0.0.1").unwrap();
    server.encrypt(&itself, &own).unwrap();
    let pinned = format!("sslmode=verify-full&sslrootcert={}", itself.path());
    check(&database, &[(&pinned, None), (&with("sslmode=verify-full"), unknown)]);
}

#[test]
fn a_client_shows_its_certificate() {
    let Some((server, database, authority)) = server() else { return };
    let own = authority.own();
    server.encrypt(&authority.issue("server", "IP:127.0.0.1", NOW).unwrap(), &own).unwrap();
    server.add_access_rule("hostssl all guarded all scram-sha-256 clientcert=verify-full").unwrap();
    database
        .query(&[
            "CREATE ROLE guarded SUPERUSER LOGIN PASSWORD 'hunter2'",
            "ALTER ROLE guarded SET client_min_messages = warning",
        ])
        .unwrap();
    let client = authority.issue("guarded", "DNS:guarded", NOW).unwrap();
    let (_, rest) =
        database.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let base =
        format!("postgres://guarded:hunter2@{rest}?sslmode=verify-full&sslrootcert={}", own.path());
    let open = |options: &str| {
        let address: StoreAddress = format!("{base}{options}").parse().unwrap();
        Store::open(&address).map(drop).map_err(|error| {
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            error.to_string()
        })
    };
    let refusal = |options: &str| open(options).unwrap_err();
    let own_files = format!("&sslcert={}&sslkey={}", client.path(), client.key_path());
    assert_eq!(open(&own_files), Ok(()));
    assert!(refusal("").contains("sslcert=FILE&sslkey=FILE"), "{}", refusal(""));

    let other = TestAuthority::new().unwrap();
    let unknown = other.issue("guarded", "DNS:guarded", NOW).unwrap();
    let unknown = format!("&sslcert={}&sslkey={}", unknown.path(), unknown.key_path());
    assert!(refusal(&unknown).contains("ssl_ca_file"), "{}", refusal(&unknown));

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&client.key, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(refusal(&own_files).contains("chmod 600"), "{}", refusal(&own_files));
    }
}

#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let Some(database) = postgres_or_skip(TestPostgres::shared()) else { return };
    let (login, place) =
        database.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (user, _) = login.rsplit_once(':').unwrap();
    for login in [format!("{user}:hunter2"), user.to_owned()] {
        let address: StoreAddress = format!("{login}@{place}").parse().unwrap();
        let error = Store::open(&address).map(drop).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("PGPASSWORD") && !text.contains("hunter2"), "{text}");
    }
}
