use conclave_runtime::blobs::MemoryBlobs;
use conclave_runtime::journal::NoJournals;
use serde_json::json;

use super::*;

fn served(folder: &Path, files: &[&str]) -> Resources {
    let files = files.iter().map(|file| ServedFile::parse(file, folder).unwrap()).collect();
    Resources::new(files, false, Arc::new(NoJournals), Arc::new(MemoryBlobs::default()))
}

#[test]
fn an_argument_that_names_no_file_is_refused() {
    for argument in [
        "notes.md",
        "notes=notes.md",
        "my notes:a=notes.md",
        "conclave:runs/1=notes.md",
        "notes://{a}{b}={a}.md",
        "notes://{a}=b.md",
        "notes://{a}={b}.md",
        "notes://{a}=x/{a}/b.md",
        "notes://{a b}={a b}.md",
    ] {
        assert!(ServedFile::parse(argument, Path::new("/f")).is_err(), "{argument}");
    }
}

#[test]
fn only_a_part_of_a_name_stands_for_a_variable() {
    let file = ServedFile::parse("notes://{day}/text=days/{day}.md", Path::new("/f")).unwrap();
    for (uri, path) in [
        ("notes://monday/text", Some("/f/days/monday.md")),
        ("notes://a%20b/text", Some("/f/days/a b.md")),
        ("notes:///text", None),
        ("notes://../text", None),
        ("notes://..%2f..%2fetc%2fpasswd/text", None),
        ("notes://.hidden/text", None),
        ("notes://a/b/text", None),
        ("notes://a%00/text", None),
        ("notes://monday", None),
    ] {
        assert_eq!(file.covers(uri), path.map(PathBuf::from), "{uri}");
    }
}

#[tokio::test]
async fn nothing_is_read_but_what_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("days");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("monday.md"), "rain").unwrap();
    std::fs::write(inner.join("photo.png"), [0x89, b'P']).unwrap();
    std::fs::write(folder.path().join("secret.md"), "s").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../secret.md", inner.join("link.md")).unwrap();
    let resources = served(
        folder.path(),
        &["days://{day}=days/{day}.md", "photo:one=days/photo.png", "gone:one=days/gone.md"],
    );
    let read = async |uri: &str| resources.read(uri).await.map(|contents| json!(contents));
    assert_eq!(read("days://monday").await.unwrap()["text"], "rain");
    assert_eq!(read("photo:one").await.unwrap()["mimeType"], "image/png");
    for uri in
        ["days://link", "days://tuesday", "gone:one", "days://../secret", "file:///etc/passwd"]
    {
        assert_eq!(read(uri).await, Err(Unread::NotServed), "{uri}");
    }
    assert_eq!(resources.complete("days://{day}", "day", "m").values, ["monday"]);
    assert_eq!(resources.complete("days://{day}", "other", "m").values, Vec::<String>::new());
    std::fs::write(inner.join("monday.md"), vec![b'a'; MOST as usize + 1]).unwrap();
    assert!(matches!(read("days://monday").await, Err(Unread::Failed(_))));
}
