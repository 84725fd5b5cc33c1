//! Side effects of running plugins. Each is counted here before it happens, and journalled before
//! the plugin learns of it. The import checks a single request; this module checks limits of the
//! whole run.

use url::Url;

use super::models::caller_of;
use super::{Budgets, Frames, RoomContext};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::types::capability::Capability;
use crate::types::denial::{Denial, Layer};
use crate::types::ids::{CallId, PluginName};
use crate::types::side_effect::{SideEffect, SideEffectAnswer};

impl Budgets {
    pub(super) fn side_effect_asked(
        &mut self,
        cx: &mut RoomContext,
        frames: &Frames,
        call: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) {
        // The plugin is being stopped, and must not leave anything behind.
        let leave = match caller_of(frames, cx, call) {
            None => Err(over(&side_effect)),
            Some((plugin, _)) => self.admit_side_effect(cx, &plugin, &side_effect).map(|()| {
                let rights = cx.setup.rights(&plugin);
                let overlay = rights.is_some_and(|rights| rights.is_of_overlay(&side_effect));
                let started =
                    Notice::SideEffectStarted { call, ordinal, plugin, side_effect, overlay };
                cx.notify(started);
            }),
        };
        cx.effects.push_back(Effect::AllowSideEffect { call, ordinal, leave });
    }

    fn admit_side_effect(
        &mut self,
        cx: &mut RoomContext,
        plugin: &PluginName,
        side_effect: &SideEffect,
    ) -> Result<(), Denial> {
        let capability = side_effect.capability();
        // Only these two have limits for the whole run.
        if !matches!(capability, Capability::Fetch | Capability::Exec) {
            return Ok(());
        }
        let setup = std::sync::Arc::clone(&cx.setup);
        let Some(rights) = setup.rights(plugin) else { return Err(over(side_effect)) };
        let grants = rights.grants;
        let target = side_effect.target();
        let is_fetch = capability == Capability::Fetch;
        let name = is_fetch.then(|| self.new_host_name(plugin, &target)).flatten();
        let used = self.used_by(plugin);
        let (requests, names) =
            grants.fetch.as_ref().map_or((0, 0), |grant| (grant.requests, grant.names.into()));
        let runs = grants.exec.as_ref().map_or(0, |grant| grant.runs);
        let exceeded = if !is_fetch {
            (used.programs >= runs).then(|| (format!("run the {runs} programs"), "exec.runs"))
        } else if used.requests >= requests {
            Some((format!("sent the {requests} requests"), "fetch.requests"))
        } else {
            // Each new name can leak data: the query reaches the servers of the name's owner.
            let is_over = name.is_some() && used.host_names >= names;
            is_over.then(|| (format!("resolved the {names} host names"), "fetch.host_names"))
        };
        let Some((usage, key)) = exceeded else {
            // Counted before it happens, so that concurrent ones cannot exceed the limit.
            if is_fetch {
                used.requests += 1;
                used.host_names += u64::from(name.is_some());
                self.host_names.entry(plugin.clone()).or_default().extend(name);
            } else {
                used.programs += 1;
            }
            return Ok(());
        };
        let reason = format!("{plugin} has {usage} that plugins.{plugin}.grants.{key} gives it");
        let record = rights.refuse(capability, &target, Layer::Runtime, &reason, None);
        let denial = record.denial.clone();
        cx.denied(plugin, *record);
        Err(denial)
    }

    /// The name in this URL that the plugin has not resolved yet in this room.
    fn new_host_name(&self, plugin: &PluginName, url: &str) -> Option<String> {
        let url = Url::parse(url).ok()?;
        let name = url.domain()?;
        let is_known = self.host_names.get(plugin).is_some_and(|known| known.contains(name));
        (!is_known).then(|| name.to_owned())
    }
}

pub(super) fn side_effect_ended(
    frames: &Frames,
    cx: &mut RoomContext,
    call: CallId,
    ordinal: u32,
    answer: SideEffectAnswer,
) {
    if let Some((plugin, _)) = caller_of(frames, cx, call) {
        cx.notify(Notice::SideEffectEnded { call, ordinal, plugin, answer });
    }
    cx.effects.push_back(Effect::ConfirmSideEffect { call, ordinal });
}

fn over(side_effect: &SideEffect) -> Denial {
    let capability = side_effect.capability();
    let target: String = side_effect.target().chars().take(256).collect();
    Denial {
        capability: capability.as_str().to_owned(),
        detail: "the call is over".to_owned(),
        target,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::fixture::Parts;
    use super::*;
    use crate::types::side_effect::Digest;

    const GRANT: &str = r#"
[plugins.worker.grants.fetch]
urls = ["https://example.org/*"]
requests = 2
"#;

    fn fetch() -> SideEffect {
        fetch_of("https://example.org/a")
    }

    fn fetch_of(url: &str) -> SideEffect {
        SideEffect::Fetch {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: None,
            secrets: Vec::new(),
        }
    }

    /// Asks for a side effect, and returns whether it may happen and how many notices that gave.
    fn ask(parts: &mut Parts, call: CallId, side_effect: SideEffect) -> (bool, usize) {
        parts.budgets.side_effect_asked(&mut parts.cx, &parts.frames, call, 0, side_effect);
        let effects = parts.cx.take_effects();
        let [Effect::AllowSideEffect { leave, .. }] = effects.as_slice() else {
            panic!("{effects:?}")
        };
        (leave.is_ok(), parts.cx.take_notices().len())
    }

    #[test]
    fn requests_beyond_the_grant_are_refused_and_other_side_effects_are_not_counted() {
        let mut parts = Parts::new(GRANT);
        let call = parts.cx.next_call(Purpose::Strategy { strategy: "worker".into() });
        let set = || SideEffect::SetKey {
            key: "k".to_owned(),
            value: Digest { sha256: String::new(), length: 0 },
        };
        let side_effects = [fetch(), set(), fetch(), fetch(), set()];
        let allowed = side_effects.map(|side_effect| ask(&mut parts, call, side_effect));
        // A refusal is reported, too.
        assert_eq!(allowed, [(true, 1), (true, 1), (true, 1), (false, 1), (true, 1)]);
        assert_eq!(parts.budgets.used_by(&"worker".into()).requests, 2);
    }

    #[test]
    fn new_host_names_beyond_the_grant_are_refused_and_known_ones_and_addresses_are_not_counted() {
        let mut parts = Parts::new(
            r#"
[plugins.worker.grants.fetch]
urls = ["https://*.example.org/*"]
host_names = 2
"#,
        );
        let call = parts.cx.next_call(Purpose::Strategy { strategy: "worker".into() });
        let urls = [
            "https://a.example.org/",
            "https://a.example.org/?b.example.org",
            "https://192.0.2.1/",
            "https://b.example.org/",
            "https://c.example.org/",
            "https://b.example.org/again",
        ];
        let allowed = urls.map(|url| ask(&mut parts, call, fetch_of(url)).0);
        assert_eq!(allowed, [true, true, true, true, false, true]);
        // A snapshot keeps the count and the names.
        let snapshot = serde_json::to_value(&parts.budgets).unwrap();
        parts.budgets = serde_json::from_value(snapshot).unwrap();
        let allowed = ["https://c.example.org/", "https://a.example.org/"]
            .map(|url| ask(&mut parts, call, fetch_of(url)).0);
        assert_eq!(allowed, [false, true]);
        let used = *parts.budgets.used_by(&"worker".into());
        assert_eq!((used.requests, used.host_names), (6, 2));
    }

    #[test]
    fn a_call_that_is_over_leaves_nothing_behind() {
        let mut parts = Parts::new(GRANT);
        assert_eq!(ask(&mut parts, CallId(7), fetch()), (false, 0));
        assert_eq!(parts.budgets, Budgets::default());
    }

    #[test]
    fn a_plugin_without_the_grant_sends_no_request() {
        let mut parts = Parts::new("");
        let call = parts.cx.next_call(Purpose::Strategy { strategy: "worker".into() });
        assert_eq!(ask(&mut parts, call, fetch()), (false, 1));
    }
}
