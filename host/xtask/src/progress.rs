//! How far a build by cargo is: the crates that are finished, and an estimate of the time that is
//! left. It knows the figures of `times.txt` and reads cargo's messages, and prints nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::phase::spelled;
use crate::times::Estimate;

/// The processor time of a crate that is not recorded, because it takes less than what is.
const SMALL_MS: u64 = 100;
/// The part of a build, in percent, before which its own pace says little.
const ENOUGH: u64 = 5;

/// What is known about the builds of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuildProgress {
    estimate: Option<Estimate>,
}

/// A crate that cargo reports.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FinishedCrate<'a> {
    package: &'a str,
    target: &'a str,
}

impl BuildProgress {
    pub(crate) fn new(estimate: Estimate) -> Self {
        Self { estimate: Some(estimate) }
    }

    /// Returns the progress after so long: `, 12 of 268 crates, about 3 min 40 s left`. Empty before
    /// the first crate.
    pub(crate) fn describe(&self, messages: &str, elapsed: Duration) -> String {
        let mut finished = BTreeMap::new();
        for line in messages.lines() {
            if let Some((name, is_fresh)) = finished_crate(line) {
                finished.insert(name, is_fresh);
            }
        }
        let built = finished.values().filter(|is_fresh| !**is_fresh).count();
        if built == 0 {
            return String::new();
        }
        let Some(estimate) = &self.estimate else { return format!(", {built} crates") };
        let time_of = |name: &FinishedCrate<'_>| {
            let key = (name.package.to_owned(), name.target.to_owned());
            estimate.units.get(&key).copied().unwrap_or(SMALL_MS)
        };
        let reused_ms: u64 =
            finished.iter().filter(|(_, is)| **is).map(|(name, _)| time_of(name)).sum();
        let spent_ms: u64 =
            finished.iter().filter(|(_, is)| !**is).map(|(name, _)| time_of(name)).sum();
        let known = estimate.units.len();
        let small = estimate.crates.saturating_sub(known) as u64 * SMALL_MS;
        let all = (estimate.units.values().sum::<u64>() + small).saturating_sub(reused_ms);
        let fresh_crates = finished.len() - built;
        let crates = estimate.crates.saturating_sub(fresh_crates).max(built);
        let remaining = if spent_ms * 100 < all * ENOUGH {
            estimate.wall_here().saturating_sub(elapsed)
        } else {
            let rest = all.saturating_sub(spent_ms);
            Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(0) * rest / spent_ms)
        };
        if remaining < Duration::from_secs(1) {
            return format!(", {built} of {crates} crates");
        }
        format!(", {built} of {crates} crates, about {} left", rounded(remaining))
    }
}

/// Returns a time in steps that do not jump each second.
pub(crate) fn rounded(time: Duration) -> String {
    let seconds = time.as_secs().max(1);
    let step = if seconds > 60 { 10 } else { 5 };
    spelled(Duration::from_secs(seconds.div_ceil(step) * step))
}

/// Returns the crate of a message of cargo, and whether it was there before. `None` for other
/// messages and for build scripts.
fn finished_crate(line: &str) -> Option<(FinishedCrate<'_>, bool)> {
    if !line.starts_with(r#"{"reason":"compiler-artifact""#)
        || line.contains(r#""kind":["custom-build"]"#)
    {
        return None;
    }
    let id = string_at(line, "package_id")?;
    let (path, version) = id.rsplit_once('#')?;
    let package = match version.split_once('@') {
        Some((name, _)) => name,
        // A package in a folder of its name.
        None => path.rsplit('/').next()?,
    };
    // The triple of a cross build is a folder above the profile's.
    let (_, files) = line.split_once(r#""filenames":["#)?;
    let first = files.split('"').nth(1)?;
    let target = if first.contains("/wasm32-wasip2/") { "wasm32-wasip2" } else { "host" };
    Some((FinishedCrate { package, target }, line.contains(r#""fresh":true"#)))
}

fn string_at<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_once(&format!("\"{key}\":\""))?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, file: &str, is_fresh: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"{id}","target":{{"kind":["lib"]}},"filenames":["{file}"],"fresh":{is_fresh}}}"#
        )
    }

    fn estimate() -> Estimate {
        let unit = |package: &str, target: &str, time: u64| {
            ((package.to_owned(), target.to_owned()), time)
        };
        Estimate {
            wall: Duration::from_secs(100),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            crates: 4,
            units: BTreeMap::from([
                unit("serde", "host", 10_000),
                unit("core", "host", 30_000),
                unit("core", "wasm32-wasip2", 60_000),
            ]),
        }
    }

    #[test]
    fn a_message_names_a_crate_and_its_target() {
        let name = |line: &str| {
            finished_crate(line)
                .map(|(name, is_fresh)| format!("{} {} {is_fresh}", name.package, name.target))
        };
        let registry = artifact("registry+index#serde@1.0.2", "/t/debug/libserde.rlib", false);
        assert_eq!(name(&registry).as_deref(), Some("serde host false"));
        let folder =
            artifact("path+file:///w/host/core#0.1.0", "/t/wasm32-wasip2/plugin/c.wasm", true);
        assert_eq!(name(&folder).as_deref(), Some("core wasm32-wasip2 true"));
        assert_eq!(name(r#"{"reason":"build-script-executed","package_id":"a#b@1"}"#), None);
        assert_eq!(name("   Compiling a v1.0.0"), None);
    }

    #[test]
    fn the_rest_is_estimated_by_the_pace_of_this_build() {
        let progress = BuildProgress::new(estimate());
        assert_eq!(progress.describe("", Duration::from_secs(3)), "");
        let core = artifact("path+file:///w/host/core#0.1.0", "/t/debug/libcore.rlib", false);
        // 30 of 100.1 recorded seconds are done after 60: as slow as 0.5 on two cores.
        let text = progress.describe(&core, Duration::from_secs(60));
        assert_eq!(text, ", 1 of 4 crates, about 2 min 20 s left");
    }

    #[test]
    fn what_is_there_already_is_no_progress_and_not_left() {
        let progress = BuildProgress::new(estimate());
        let serde = artifact("registry+index#serde@1.0.2", "/t/debug/libserde.rlib", true);
        let core = artifact("path+file:///w/host/core#0.1.0", "/t/debug/libcore.rlib", false);
        let plugin = artifact("path+file:///w/host/core#0.1.0", "/t/wasm32-wasip2/c.wasm", true);
        let messages = format!("{serde}\n{core}\n{plugin}\n");
        assert_eq!(progress.describe(&serde, Duration::from_secs(60)), "");
        assert_eq!(progress.describe(&messages, Duration::from_secs(60)), ", 1 of 2 crates");
    }

    #[test]
    fn a_build_that_was_never_measured_counts_its_crates() {
        let core = artifact("path+file:///w/host/core#0.1.0", "/t/debug/libcore.rlib", false);
        assert_eq!(BuildProgress::default().describe(&core, Duration::from_secs(9)), ", 1 crates");
    }
}
