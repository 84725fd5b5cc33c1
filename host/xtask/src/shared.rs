//! Components that all clones of this user share: a clone takes those that another one built of the
//! same inputs. A set is found by a digest of its inputs, and each component is compared with a
//! digest of its content.
//!
//! It is a cache. What cannot be read, written or verified is built again. CI, where the variable
//! `CI` is set, always builds.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs, io, process};

use crate::place::{Checkout, digest_of};

/// The file with a digest of each component, written after them.
const CONTENTS: &str = "contents";
/// The maximum number of sets of one kind. The oldest are removed.
const SETS: usize = 6;

/// A set of components.
pub(crate) struct SharedComponents {
    kind: PathBuf,
    inputs: String,
}

impl SharedComponents {
    /// Returns the set of a kind with these inputs; `None` in CI and without a cache folder.
    pub(crate) fn find(place: &Checkout, kind: &str, inputs: &str) -> Option<Self> {
        if env::var_os("CI").is_some() {
            return None;
        }
        Some(Self { kind: place.shared()?.join(kind), inputs: inputs.to_owned() })
    }

    /// Returns the files of these components; `None` unless each is as it was stored.
    pub(crate) fn get(&self, names: &[String]) -> Option<Vec<(PathBuf, String)>> {
        let folder = self.folder();
        let contents = fs::read_to_string(folder.join(CONTENTS)).ok()?;
        let mut found = Vec::new();
        for name in names {
            let file = component(&folder, name);
            let line = described(name, &fs::read(&file).ok()?);
            if !contents.lines().any(|known| known == line) {
                return None;
            }
            found.push((file, name.clone()));
        }
        // Marks the set as recently used. If that fails, it is only removed a little earlier.
        let _ = fs::File::open(&folder).and_then(|it| it.set_modified(SystemTime::now()));
        Some(found)
    }

    /// Stores components for other clones.
    pub(crate) fn put(&self, components: &[(PathBuf, String)]) {
        // A set that cannot be stored is built again in the next clone.
        let _ = self.stored(components);
        self.trim();
    }

    fn stored(&self, components: &[(PathBuf, String)]) -> io::Result<()> {
        let draft = self.kind.join(format!("{}.{}.new", self.inputs, process::id()));
        fs::create_dir_all(&draft)?;
        let mut contents = String::new();
        for (file, name) in components {
            let bytes = fs::read(file)?;
            contents += &format!("{}\n", described(name, &bytes));
            fs::write(component(&draft, name), bytes)?;
        }
        fs::write(draft.join(CONTENTS), contents)?;
        let _ = fs::remove_dir_all(self.folder());
        // Fails if another clone was faster.
        fs::rename(&draft, self.folder()).or_else(|_| fs::remove_dir_all(&draft))
    }

    fn trim(&self) {
        let mut sets: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.kind)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        sets.sort();
        for (_, folder) in sets.iter().rev().skip(SETS) {
            let _ = fs::remove_dir_all(folder);
        }
    }

    fn folder(&self) -> PathBuf {
        self.kind.join(&self.inputs)
    }
}

fn component(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.wasm"))
}

fn described(name: &str, bytes: &[u8]) -> String {
    format!("{} {} {name}", digest_of(bytes), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("conclave-shared-{name}-{}", process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn set(&self, inputs: &str) -> SharedComponents {
            SharedComponents { kind: self.0.join("guests"), inputs: inputs.to_owned() }
        }

        fn built(&self, text: &str) -> Vec<(PathBuf, String)> {
            let file = self.0.join("built.wasm");
            fs::write(&file, text).unwrap();
            vec![(file, "echo".to_owned())]
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read(set: &SharedComponents, names: &[&str]) -> Option<Vec<String>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = set.get(&names)?;
        Some(found.iter().map(|(file, _)| fs::read_to_string(file).unwrap()).collect())
    }

    #[test]
    fn a_set_is_found_by_its_inputs_alone() {
        let folder = Folder::new("inputs");
        let set = folder.set("a");
        assert_eq!(read(&set, &["echo"]), None);
        set.put(&folder.built("one"));
        assert_eq!(read(&folder.set("a"), &["echo"]), Some(vec!["one".to_owned()]));
        assert_eq!(read(&folder.set("b"), &["echo"]), None);
        assert_eq!(read(&set, &["echo", "spin"]), None);
        set.put(&folder.built("two"));
        assert_eq!(read(&set, &["echo"]), Some(vec!["two".to_owned()]));
    }

    #[test]
    fn a_changed_component_is_not_taken() {
        let folder = Folder::new("changed");
        let set = folder.set("a");
        set.put(&folder.built("one"));
        fs::write(component(&set.folder(), "echo"), "two").unwrap();
        assert_eq!(read(&set, &["echo"]), None);
        set.put(&folder.built("one"));
        fs::remove_file(set.folder().join(CONTENTS)).unwrap();
        assert_eq!(read(&set, &["echo"]), None);
    }

    #[test]
    fn old_sets_are_removed() {
        let folder = Folder::new("old");
        for number in 0..SETS + 3 {
            folder.set(&format!("{number}")).put(&folder.built("one"));
        }
        assert_eq!(fs::read_dir(folder.0.join("guests")).unwrap().count(), SETS);
        assert_eq!(
            read(&folder.set(&format!("{}", SETS + 2)), &["echo"]),
            Some(vec!["one".to_owned()])
        );
    }
}
