//! Files that something runs later without anybody starting it. A person who applies a run's changes
//! is told, because such a file acts outside of every grant.

/// Names of files and folders, in lower case, and what runs them.
const RUNS: [(&str, &str); 27] = [
    (".git", "git"),
    (".githooks", "git"),
    (".gitmodules", "git"),
    (".husky", "git"),
    (".pre-commit-config.yaml", "pre-commit"),
    ("lefthook.yml", "lefthook"),
    (".github", "the server of the repository"),
    (".gitlab-ci.yml", "the server of the repository"),
    (".circleci", "the server of the repository"),
    (".travis.yml", "the server of the repository"),
    ("jenkinsfile", "the server of the repository"),
    (".envrc", "direnv"),
    (".vscode", "the editor"),
    (".idea", "the editor"),
    (".vimrc", "the editor"),
    (".exrc", "the editor"),
    (".nvim.lua", "the editor"),
    (".dir-locals.el", "the editor"),
    (".devcontainer", "the editor"),
    (".bashrc", "the shell"),
    (".bash_profile", "the shell"),
    (".profile", "the shell"),
    (".zshrc", "the shell"),
    (".zshenv", "the shell"),
    ("sitecustomize.py", "Python"),
    ("conftest.py", "pytest"),
    (".npmrc", "npm"),
];

/// Returns what runs a file at this path by itself; `None` if nothing is known to. Any part of the
/// path counts, and so does its spelling on a file system that ignores case.
#[must_use]
pub fn runs_later(path: &str) -> Option<&'static str> {
    path.split('/').find_map(|part| {
        let part = part.to_ascii_lowercase();
        RUNS.iter().find(|(name, _)| *name == part).map(|(_, by)| *by)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_by_themselves_are_known_wherever_they_are() {
        for (path, by) in [
            (".git/hooks/pre-commit", Some("git")),
            ("vendor/lib/.git/config", Some("git")),
            (".GIT/config", Some("git")),
            (".github/workflows/ci.yml", Some("the server of the repository")),
            ("a/.envrc", Some("direnv")),
            ("tests/conftest.py", Some("pytest")),
            ("src/git/hooks.rs", None),
            ("README.md", None),
        ] {
            assert_eq!(runs_later(path), by, "{path}");
        }
    }
}
