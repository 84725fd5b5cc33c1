//! `tasks.NAME.scope`: the restriction of an agent's grants, capability by capability. Names only;
//! an empty list leaves nothing.

use super::grants::names_of;
use super::keys::SCOPE;
use super::names;
use super::reader::{ConfigReader, SpannedValue};
use super::references::References;
use crate::permissions::fetch::UrlPattern;
use crate::permissions::task_scope::TaskScope;
use crate::types::ids::{ModelName, SecretName, TaskName};
use crate::types::wording::{code, string};

pub(crate) fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> TaskScope {
    let Some(table) = item.table(reader, SCOPE) else { return TaskScope::default() };
    let mut list = |name: &str| table.get(name).and_then(|item| names_of(reader, &item, false));
    let (model, delegate, route) = (list("model"), list("delegate"), list("route"));
    let (files, fetch, secrets) = (list("files"), list("fetch"), list("secrets"));
    model.iter().flatten().for_each(|(item, name)| references.add_model(item, name));
    delegate.iter().flatten().for_each(|(item, name)| references.add_task(item, name));
    route.iter().flatten().for_each(|(item, name)| references.add_address(item, name));
    let mut checked_place =
        |(item, place): (SpannedValue<'_>, &str)| match names::check_place(place) {
            Ok(()) => Some(place.to_owned()),
            Err(error) => {
                let help =
                    names::default_place(place).map(|place| format!("write {}", string(&place)));
                item.wrong(
                    reader,
                    &format!(
                        "must be the place of a folder, `/` and one name: {} {error}",
                        code(place)
                    ),
                    help,
                );
                None
            }
        };
    let files = files.map(|files| files.into_iter().filter_map(&mut checked_place).collect());
    let mut pattern = |(item, text): (SpannedValue<'_>, &str)| match UrlPattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(problem) => {
            item.wrong(
                reader,
                &format!("cannot be {}: {problem}", code(text)),
                format!("write it as {}", string("https://api.example.org/v1/*")),
            );
            None
        }
    };
    let fetch = fetch.map(|fetch| fetch.into_iter().filter_map(&mut pattern).collect());
    TaskScope {
        model: model
            .map(|names| names.into_iter().map(|(_, name)| ModelName::from(name)).collect()),
        delegate: delegate
            .map(|names| names.into_iter().map(|(_, name)| TaskName::from(name)).collect()),
        route: route.map(|names| names.into_iter().map(|(_, name)| name.to_owned()).collect()),
        files,
        fetch,
        secrets: secrets
            .map(|names| names.into_iter().map(|(_, name)| SecretName::from(name)).collect()),
        read_only: table.read(reader, "read_only").unwrap_or_default(),
        kv: table.read(reader, "kv"),
    }
}
