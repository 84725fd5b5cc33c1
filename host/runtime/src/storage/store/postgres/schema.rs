//! The tables of a store in PostgreSQL, in a schema of their own, and their migration.

use std::time::Duration;

use tokio_postgres::types::ToSql;

use super::link::Link;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// The migrations of the tables from each format to the next. A released one never changes.
const MIGRATIONS: [&str; 7] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
];
/// The functions of the newest format.
const FUNCTIONS: &str = include_str!("schema/functions.sql");
/// Removes the functions of an older format. Their parameters may be others, and `CREATE OR REPLACE`
/// would add such a function beside the old one.
const DROP_FUNCTIONS: &str = "DO $$ DECLARE f regprocedure; BEGIN
    FOR f IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'conclave'::regnamespace LOOP
        EXECUTE format('DROP FUNCTION %s', f);
    END LOOP; END $$";
/// The version of the tables; a newer host made those with a higher one.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;
/// The lock under which one host at a time migrates: `conclave` in ASCII.
pub(super) const MIGRATING: i64 = i64::from_be_bytes(*b"conclave");
/// The time for each statement of a migration, which may rebuild the index of a large table.
const MIGRATING_WITHIN: Duration = Duration::from_secs(24 * 3_600);
/// The oldest version of the server.
const SERVER: i32 = 150_000;

/// The state of the tables in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    Missing,
    Older(i64),
    Current,
    Newer(i64),
}

/// Returns the state of the tables.
pub(super) fn tables(link: &Link) -> SqlResult<Tables> {
    // Not by `to_regclass`: within a transaction its cache does not show what others made.
    let there = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables
        WHERE schemaname = 'conclave' AND tablename = 'meta')";
    if !link.row(there, &[])?.try_get::<_, bool>(0)? {
        return Ok(Tables::Missing);
    }
    let rows = link.rows("SELECT value FROM conclave.meta WHERE name = 'version'", &[])?;
    let Some(row) = rows.first() else { return Ok(Tables::Missing) };
    Ok(match row.try_get::<_, i64>(0)? {
        VERSION => Tables::Current,
        older if older < VERSION => Tables::Older(older),
        newer => Tables::Newer(newer),
    })
}

/// Brings the tables to this host's version, unless they are newer. Returns their state before.
///
/// # Errors
/// Fails while hosts of an older version live: a migration removes the functions that they call.
pub(super) fn migrate(link: &Link) -> SqlResult<Tables> {
    let found = tables(link)?;
    if matches!(found, Tables::Current | Tables::Newer(_)) {
        return Ok(found);
    }
    // One that was given up would go on in the server, and the next try would begin anew.
    link.patiently(MIGRATING_WITHIN, migrate_patiently)
}

fn migrate_patiently(link: &Link) -> SqlResult<Tables> {
    link.batch("BEGIN")?;
    // The lock goes with the transaction. Another host may have migrated while this one waited.
    link.run("SELECT pg_advisory_xact_lock(?1)", &[&MIGRATING])?;
    let found = tables(link)?;
    let from = match found {
        Tables::Missing => {
            link.batch("CREATE SCHEMA IF NOT EXISTS conclave")?;
            0
        }
        Tables::Older(version) => {
            check_unused(link, version)?;
            usize::try_from(version).unwrap_or(0)
        }
        Tables::Current | Tables::Newer(_) => {
            link.batch("ROLLBACK")?;
            return Ok(found);
        }
    };
    // Whoever reads a table for long, such as a backup, must not hold up all hosts behind this one.
    link.batch("SET LOCAL search_path = conclave; SET LOCAL lock_timeout = '20s'")?;
    link.batch(DROP_FUNCTIONS)?;
    for migration in MIGRATIONS.iter().skip(from) {
        link.batch(migration)?;
    }
    link.batch(FUNCTIONS)?;
    link.batch(&format!(
        "INSERT INTO meta (name, value) VALUES ('version', {VERSION})
         ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value; COMMIT"
    ))?;
    Ok(found)
}

fn check_unused(link: &Link, version: i64) -> SqlResult<()> {
    let live = "SELECT host FROM conclave.hosts WHERE until > clock_timestamp() ORDER BY host";
    let rows = link.rows(live, &[])?;
    let hosts: Vec<&str> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if hosts.is_empty() {
        return Ok(());
    }
    let what = format!(
        "its tables have the format {version}, this host needs {VERSION}, and hosts of an older version use them ({}): stop those, then start this one",
        hosts.join(", ")
    );
    Err(SqlError::new(SqlErrorKind::Other, what))
}

/// Makes a connection's commits safe for as long as it lives, whatever an operator sets for others.
pub(super) const KEEP_SYNCHRONOUS: &str = "SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END,
    false)";

/// The setting without which no commit is safe. A session reads it between two statements, so it
/// holds for a statement and the commit behind it.
const SYNCS: &str = "current_setting('fsync') = 'on'";
/// Whether a commit before it is safe. Unlike [`KEEP_SYNCHRONOUS`], a connection cannot decide these
/// settings for itself. It must be a statement of its own behind the commit: a commit that waits for
/// a standby is acknowledged when the setting is emptied meanwhile.
const IS_SAFE: &str = "SELECT current_setting('fsync') = 'on'
    AND (?1 OR btrim(current_setting('synchronous_standby_names')) <> '')";

/// Calls a stored function that commits, and fails if what it has committed can be lost.
pub(crate) fn call_safely(
    link: &Link,
    call: &str,
    values: &[&(dyn ToSql + Sync)],
) -> SqlResult<()> {
    let safely = format!("SELECT {call} WHERE {SYNCS}");
    if link.has_standby() {
        let (rows, is_safe) = link.rows_and_row((&safely, values), (IS_SAFE, &[&false]))?;
        return refuse_unless(link, !rows.is_empty() && is_safe.try_get(0)?);
    }
    // No second statement: it would take as long as a quarter of the first one.
    let is_safe = !link.rows(&safely, values)?.is_empty();
    refuse_unless(link, is_safe)
}

/// Fails if what this connection has just committed can be lost.
pub(crate) fn check_commit(link: &Link) -> SqlResult<()> {
    let is_safe = link.row(IS_SAFE, &[&!link.has_standby()])?.try_get(0)?;
    refuse_unless(link, is_safe)
}

fn refuse_unless(link: &Link, is_safe: bool) -> SqlResult<()> {
    if is_safe {
        return Ok(());
    }
    check_durability(link)?;
    let what = "the settings of the server were changed during a commit";
    Err(SqlError::new(SqlErrorKind::Unsafe, what))
}

/// Makes the tables of format 1.
#[cfg(test)]
pub(crate) fn make_first_format(link: &Link) -> SqlResult<()> {
    link.batch(&format!(
        "CREATE SCHEMA conclave; SET search_path = conclave; {}
         CREATE FUNCTION commit_group(writes_json TEXT) RETURNS VOID LANGUAGE sql AS '';
         INSERT INTO meta (name, value) VALUES ('version', 1)",
        MIGRATIONS[0]
    ))
}

/// Checks that what the server acknowledges survives a power cut, and the loss of the server where
/// another takes over. The error has the line that mends it.
pub(crate) fn check_durability(link: &Link) -> SqlResult<()> {
    let show = |name: &str| -> SqlResult<String> {
        Ok(link.row("SELECT current_setting(?1)", &[&name])?.try_get(0)?)
    };
    let refuse = |what: String| Err(SqlError::new(SqlErrorKind::Other, what));
    let version = show("server_version_num")?;
    if version.parse::<i32>().unwrap_or(0) < SERVER {
        let version = show("server_version")?;
        return refuse(format!("PostgreSQL 15 or newer is needed; this server is {version}"));
    }
    let encoding = show("server_encoding")?;
    if encoding != "UTF8" {
        return refuse(format!(
            "the database has the encoding {encoding}, and UTF8 is needed: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0;"
        ));
    }
    let refuse = |what: String| Err(SqlError::new(SqlErrorKind::Unsafe, what));
    if show("fsync")? != "on" {
        return refuse(
            "fsync is off, so a power cut loses records: ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();"
                .to_owned(),
        );
    }
    let commit = show("synchronous_commit")?;
    if !matches!(commit.as_str(), "on" | "remote_apply") {
        let source = "SELECT source FROM pg_settings WHERE name = 'synchronous_commit'";
        let remedy = match link.row(source, &[])?.try_get::<_, String>(0)?.as_str() {
            "database" => "ALTER DATABASE … RESET synchronous_commit;",
            "user" => "ALTER ROLE … RESET synchronous_commit;",
            "database user" => "ALTER ROLE … IN DATABASE … RESET synchronous_commit;",
            "client" => "leave it out of the address's `options`",
            _ => "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();",
        };
        return refuse(format!(
            "synchronous_commit is {commit}, so acknowledged records can be lost: {remedy}"
        ));
    }
    if link.has_standby() && show("synchronous_standby_names")?.trim().is_empty() {
        return refuse(
            "the address names several servers, and none of them is a synchronous standby, so records that only the first has can be lost: ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf();"
                .to_owned(),
        );
    }
    Ok(())
}
