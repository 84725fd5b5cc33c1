//! The stock plugin in Python: cells, their state over a kill, what they can reach, and limits.

use std::process::{Command, Stdio};

use conclave_test_support::{Rig, bare, until};
use serde_json::{Value, json};

use super::{conclave, output, python, root, said, text};
use crate::resume_cli::kill;

const FOLDER: &str = "plugins/tools/python";
const FILES: &str =
    "grants.files = [{ dir = \"work\", at = \"/workspace\", mode = \"read-write\" }]";

/// Builds the plugin in a rig, with a folder `work`.
fn built() -> Rig {
    let mut rig = Rig::new();
    for entry in std::fs::read_dir(root().join(FOLDER)).expect("the plugin's folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().expect("a name").to_string_lossy();
            let content = std::fs::read(&path).expect("a file of the plugin");
            rig = rig.with_file(&format!("python/{name}"), content);
        }
    }
    let rig = rig
        .with_file("work/helper.py", "VALUE = 7\n")
        .with_file("work/table.csv", "a,b\n1,2\n")
        .with_file("outside.txt", "of somebody else");
    said(conclave(&rig, "python", &["plugin", "build", "--quiet"]));
    rig
}

/// Writes a config, whose agents ask for these cells in turn, and the replies.
fn write(rig: &Rig, config: &str, replies: &[Value], plugin_lines: &str) {
    let config = format!(
        "{config}\n\
         [models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\ngrants.tools = [\"python.*\"]\n\
         [plugins.python]\nsource = \"python/build/python.wasm\"\n{plugin_lines}\n\
         [limits.run]\nturns = 500\nwall = \"30 min\"\n"
    );
    let replies = json!({ "replies": replies }).to_string();
    for (name, text) in [("conclave.toml", config), ("replies.json", replies)] {
        std::fs::write(rig.folder().join(name), text).expect("it can be written");
    }
}

const DESK: &str = "entry = \"desk\"\n\
    [tasks.desk]\nagent = \"chat\"\ntools = [\"python.run_ipython\"]\n\
    [[policy]]\ntool = \"python.*\"\ndecide = \"allow\"";

fn cell(code: &str) -> Value {
    json!({ "calls": [{ "name": "python.run_ipython", "args": { "code": code } }] })
}

fn cells(codes: &[&str]) -> Vec<Value> {
    codes.iter().map(|code| cell(code)).chain([json!("Ended.")]).collect()
}

/// Returns the answer of each cell of the last run.
fn answers(rig: &Rig) -> Vec<String> {
    let shown: Value = said(conclave(rig, ".", &["show", "--json"]))
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .expect("one object");
    let rows = shown["rows"].as_array().expect("rows");
    let is_cell = |row: &&Value| row["type"] == "tool" && row["name"] == "python.run_ipython";
    rows.iter().filter(is_cell).map(|row| row["answer"].as_str().unwrap_or("").to_owned()).collect()
}

/// Runs cells in a new run, and returns their answers.
fn run(rig: &Rig, plugin_lines: &str, codes: &[&str]) -> Vec<String> {
    write(rig, DESK, &cells(codes), plugin_lines);
    said(conclave(rig, ".", &["run", "conclave.toml", "go"]));
    let answers = answers(rig);
    assert_eq!(answers.len(), codes.len(), "{answers:?}");
    answers
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_plugin_is_checked_and_passes_its_own_tests() {
    for arguments in [
        &["-m", "ruff", "check", "--no-cache", "."][..],
        &["-m", "mypy", "--cache-dir", "/dev/null"],
        &["-m", "pytest", "-q", "-p", "no:cacheprovider"],
    ] {
        let mut command = bare(python());
        command.current_dir(root().join(FOLDER)).env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(arguments);
        said(command);
    }
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn cells_share_their_variables_and_reach_what_is_granted() {
    let rig = built();
    let passed = said(conclave(&rig, "python", &["plugin", "test", "--yes"]));
    assert!(passed.contains(": 0 failed"), "{passed}");
    variables_live_on(&rig);
    the_listed_modules_are_there_and_others_are_refused(&rig);
    the_state_of_a_hundred_cells_does_not_grow(&rig);
    files_are_those_of_the_grant(&rig);
    a_stopped_cell_leaves_the_state_before_it(&rig);
    the_state_of_another_task_is_out_of_reach(&rig);
    a_killed_run_goes_on_with_its_variables(&rig);
    the_example_answers(&rig);
    one_script_calls_the_tools_of_another_plugin(&rig);
}

fn variables_live_on(rig: &Rig) {
    let shown = run(
        rig,
        "",
        &[
            "import math\nfrom dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n\
             def area(p):\n    return math.floor(p.x / scale)\nscale, points = 2, [Point(8)]\nsame = points",
            "same.append(Point(3))\nprint('printed')\nlen(points), area(points[0])",
            "scale = 0\narea(points[1])",
            "later = (i for i in ())\nimport asyncio",
        ],
    );
    assert_eq!(shown[0], "");
    assert_eq!(shown[1], "printed\n(2, 4)");
    for line in ["Cell In[3], line 2\n", "Cell In[1], line 7, in area(p)\n", "----> 7     return"] {
        assert!(shown[2].contains(line), "{line}: {}", shown[2]);
    }
    assert!(shown[3].contains("a cell has one thread"), "{}", shown[3]);
    assert!(shown[3].contains("[not kept for the next cell: `later`"), "{}", shown[3]);
}

/// The list is that of the page.
fn the_listed_modules_are_there_and_others_are_refused(rig: &Rig) {
    let page = std::fs::read_to_string(root().join("docs/use/stock-plugins.md")).expect("a page");
    let list = page.split("The **standard library** of a cell: ").nth(1).expect("the list");
    let list = list.split(". The import of").next().expect("its end");
    let modules: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(modules.len() > 60, "{modules:?}");
    let imports: String = modules.iter().map(|module| format!("import {module}\n")).collect();
    let refused = ["socket", "sqlite3", "bz2", "subprocess", "numpy"];
    let tries = refused.map(|module| format!("import {module}"));
    let codes: Vec<&str> =
        std::iter::once(imports.as_str()).chain(tries.iter().map(String::as_str)).collect();
    let shown = run(rig, "", &codes);
    assert_eq!(shown[0], "");
    for (module, answer) in refused.iter().zip(&shown[1..]) {
        let sentence = format!("ModuleNotFoundError: No module named '{module}': ");
        assert!(answer.contains(&sentence), "{answer}");
    }
}

fn the_state_of_a_hundred_cells_does_not_grow(rig: &Rig) {
    let size = "n = step(n)\nfrom conclave_sdk import scratch\nlen(scratch.get_bytes())";
    let mut codes = vec!["def step(n):\n    return n + 1\nn = 0", "n = step(n)", size];
    // Each differs, so that the run is no loop.
    let others: Vec<String> =
        (0..96).map(|index| format!("n = step(n)\nn, {index}, 'a text of its own'")).collect();
    codes.extend(others.iter().map(String::as_str));
    codes.extend([size, "n"]);
    let shown = run(rig, "", &codes);
    let bytes = |index: usize| shown[index].parse::<u64>().expect("a number");
    assert_eq!(shown[100], "99");
    assert!(bytes(2) > 100 && bytes(99) < bytes(2) + 100, "{} {}", bytes(2), bytes(99));
}

fn files_are_those_of_the_grant(rig: &Rig) {
    let shown = run(
        rig,
        FILES,
        &[
            "import helper, os\nopen('out.txt', 'w').write('kept')\nos.getcwd(), open('table.csv').readline()",
            "helper.VALUE, open('/workspace/out.txt').read()",
            "open('../outside.txt')",
            "import os\nfrom pathlib import Path\nopen('sub/deep.py', 'w').close()\n\
             sorted(map(str, Path('.').rglob('*.py'))), [*map(str, Path('sub').glob('*'))], \
             os.path.isdir('sub/'), os.path.exists('helper.py/')",
        ],
    );
    assert_eq!(shown[3], "(['helper.py', 'sub/deep.py'], ['sub/deep.py'], True, False)");
    assert_eq!(shown[0], "('/workspace', 'a,b\\n')");
    assert_eq!(shown[1], "(7, 'kept')");
    assert!(shown[2].contains("files was refused"), "{}", shown[2]);
    let ungranted = run(rig, "", &["open('/workspace/table.csv')", "import os\nos.listdir('/')"]);
    assert!(ungranted[0].contains("files was refused: /workspace/table.csv"), "{}", ungranted[0]);
    assert!(!ungranted[1].contains("work"), "{}", ungranted[1]);
}

fn a_stopped_cell_leaves_the_state_before_it(rig: &Rig) {
    let shown = run(
        rig,
        "limits = { memory = \"100 MiB\", cpu = \"8 s\" }",
        &[
            "kept = 1",
            "kept = 2\nheld = [bytearray(1 << 20) for _ in range(1000)]",
            "import zlib\nkept = 3\nbomb = zlib.compress(zlib.compress(bytes(50 << 20)))\n\
             zlib.decompress(zlib.decompress(bomb)) * 20",
            "kept = 4\nwhile True: pass",
            "kept = 5\nnested = []\nfor _ in range(100_000): nested = [nested]",
            "import os\nlarge, small = os.urandom(200_000), 1\nkept",
            "small, 'large' in dir()",
        ],
    );
    for (index, limit) in [(1, "limits.memory"), (2, "limits.memory"), (3, "limits.cpu")] {
        assert!(shown[index].contains(limit), "{index}: {}", shown[index]);
    }
    assert!(shown[5].starts_with("1\n[not kept for the next cell: `large`"), "{}", shown[5]);
    assert_eq!(shown[6], "(1, False)");
}

fn the_state_of_another_task_is_out_of_reach(rig: &Rig) {
    let stage = |name: &str| {
        format!("[tasks.{name}]\nagent = \"chat\"\ntools = [\"python.run_ipython\"]\n")
    };
    let config = format!(
        "entry = \"both\"\n[tasks.both]\nagent = \"pipeline\"\n{}{}\
         [plugins.pipeline]\nsource = \"stock:pipeline\"\n\
         grants.delegate = [\"first\", \"second\"]\nconfig.stages = [\"first\", \"second\"]\n\
         [[policy]]\ntool = \"python.*\"\ndecide = \"allow\"",
        stage("first"),
        stage("second")
    );
    let search = "import gc, sys\nfrom conclave_sdk import scratch\n\
        (len(scratch.get_bytes()), 'mine' in dir(), [o for o in gc.get_objects() if o == [40 + 2, 'mine']][1:],\n\
         [name for name in sys.modules if name.endswith(('.kv', '.blobs', '.history')) and 'imports' in name])";
    let done = json!("DONE It is done.");
    let replies = [cell("mine = [40 + 2, 'mine']\nmine"), done.clone(), cell(search), done];
    write(rig, &config, &replies, "");
    said(conclave(rig, ".", &["run", "conclave.toml", "go"]));
    assert_eq!(answers(rig), ["[42, 'mine']", "(0, False, [], [])"]);
}

/// The second cell waits for an approval when the process is killed.
fn a_killed_run_goes_on_with_its_variables(rig: &Rig) {
    let asks = DESK.replace(
        "[[policy]]",
        "[[policy]]\ntool = \"python.*\"\narguments = { code = \"total += 1\" }\ndecide = \"ask\"\n[[policy]]",
    );
    let codes = ["def double(n):\n    return 2 * n\ntotal = 20", "total += 1", "double(total)"];
    write(rig, &asks, &cells(&codes), "");
    let start = |arguments: &[&str]| -> Command { conclave(rig, ".", arguments) };
    let mut first = start(&["run", "conclave.toml", "go", "--approvals", "wait"]);
    let child = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let approval = until("a cell that waits", || {
        text(&output(start(&["approvals", "--json"])).stdout)
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line).ok())
    });
    kill(child);
    // A new process reads the replies from the start.
    write(rig, &asks, &cells(&codes[2..]), "");
    said(start(&["approve", approval["id"].as_str().expect("an id"), "--yes"]));
    said(start(&["resume", "--approvals", "refuse"]));
    assert_eq!(answers(rig), ["", "", "42"]);
}

fn the_example_answers(rig: &Rig) {
    let folder = root().join("docs/examples");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the example");
    let pages = root().join("docs/use").display().to_string();
    let config = read("cells.toml")
        .replace("stock:python", "python/build/python.wasm")
        .replace("\"../../docs/use\"", &format!("{pages:?}"));
    for (name, text) in
        [("conclave.toml", config), ("cells-replies.json", read("cells-replies.json"))]
    {
        std::fs::write(rig.folder().join(name), text).expect("it can be written");
    }
    let told = said(conclave(rig, ".", &["run", "conclave.toml", "How many words?"]));
    assert!(told.contains("More than a thousand."), "{told}");
    assert_eq!(answers(rig), ["True", "True"]);
}

/// Three requests to the model in place of one for each guide.
fn one_script_calls_the_tools_of_another_plugin(rig: &Rig) {
    let folder = root().join("docs/examples");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the example");
    let guides = rig.folder().join("guides");
    std::fs::create_dir(&guides).expect("a new folder");
    for guide in 0..70 {
        let text = if guide % 30 == 7 { "`limits.wall` is a limit." } else { "Nothing." };
        std::fs::write(guides.join(format!("g{guide}.md")), text).expect("it can be written");
    }
    let config = read("code.toml")
        .replace("stock:python", "python/build/python.wasm")
        .replace("\"../use\"", &format!("{:?}", guides.display().to_string()));
    for (name, text) in
        [("conclave.toml", config), ("code-replies.json", read("code-replies.json"))]
    {
        std::fs::write(rig.folder().join(name), text).expect("it can be written");
    }
    said(conclave(rig, ".", &["run", "conclave.toml", "Which guides?"]));
    let answers = answers(rig);
    assert!(answers[0].starts_with("search.list() -> str"), "{answers:?}");
    assert_eq!(answers[1], "/guides/g37.md\n/guides/g67.md\n/guides/g7.md", "{answers:?}");
    let shown = said(conclave(rig, ".", &["show", "--json"]));
    let rows: Value =
        shown.lines().find_map(|line| serde_json::from_str(line).ok()).expect("one object");
    let count = |kind: &str, name: &str| {
        let rows = rows["rows"].as_array().expect("rows");
        rows.iter()
            .filter(|row| row["type"] == kind && (name.is_empty() || row["name"] == name))
            .count()
    };
    assert_eq!((count("tool", "search.read"), count("model", "")), (70, 3), "{shown}");
}
