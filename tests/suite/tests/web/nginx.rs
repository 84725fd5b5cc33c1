//! nginx in front of the server, with the config of docs/use/serve-operate.md.

use std::path::Path;
use std::process::{Child, Stdio};

use conclave_soak::is_skipped;
use conclave_test_support::{Rig, free_port, until};

use super::{data, desk, program, python};
use crate::cli::text;
use crate::serve::client::Served;
use crate::serve::people::token;

const HOST: &str = "chat.example.org";

/// nginx in the foreground, ended with the test.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first server of the page, on these ports and with this certificate.
fn server_of_page(port: u16, server: &str, folder: &Path) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/serve-operate.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let block = page.split("```nginx\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut block = block.expect("it shows a config of nginx").to_owned();
    let file = |name: &str| folder.join(name).display().to_string();
    for (before, now) in [
        ("listen 443 ssl;", format!("listen 127.0.0.1:{port} ssl;")),
        ("/etc/ssl/chat.pem", file("chat.pem")),
        ("/etc/ssl/chat.key", file("chat.key")),
        ("http://127.0.0.1:8800", format!("http://{server}")),
    ] {
        assert!(block.contains(before), "the page has `{before}`: {block}");
        block = block.replace(before, &now);
    }
    block
}

/// Starts nginx with the config of the page.
fn start(rig: &Rig, nginx: &Path, port: u16, server: &str) -> Nginx {
    let folder = rig.folder();
    let server = server_of_page(port, server, folder);
    let place = |name: &str| folder.join(name).display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {};\n", place(name)))
        .collect();
    // The processes of a root's nginx would be nobody's, who cannot read the folder of a test.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let config = format!(
        "{user}daemon off;\nmaster_process on;\npid {};\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}{server}}}\n",
        place("nginx.pid")
    );
    std::fs::write(folder.join("nginx.conf"), config).expect("it can be written");
    let log = place("nginx.log");
    let child = rig
        .bare(nginx)
        .args(["-c", &place("nginx.conf"), "-e", &log])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx starts");
    let mut nginx = Nginx(child);
    until("nginx", || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(nginx.0.try_wait().expect("it can be asked").is_none(), "{log}");
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    nginx
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_config_of_the_page_works_with_tls_and_passes_events_at_once() {
    let (Some(nginx), Some(openssl)) = (program(&["nginx"]), program(&["openssl"])) else {
        assert!(is_skipped(Err("nginx or openssl is not installed".to_owned())));
        return;
    };
    let rig = desk();
    let root = token(&rig, "root", "admin");
    let made = rig
        .bare(openssl)
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"])
        .args([&format!("/CN={HOST}"), "-addext", &format!("subjectAltName=DNS:{HOST}")])
        .args(["-keyout", "chat.key", "-out", "chat.pem"])
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    // What it prints is the address of the proxy.
    let (behind, port) = (free_port(), free_port());
    let _served = Served::start_at(&rig, behind, &["--public", HOST]);
    let _nginx = start(&rig, &nginx, port, &format!("127.0.0.1:{behind}"));
    let asked = rig
        .bare(python())
        .arg(data("proxied.py"))
        .args([&port.to_string(), HOST, "chat.pem", &root])
        .output()
        .expect("Python runs");
    let log = std::fs::read_to_string(rig.folder().join("nginx.log")).unwrap_or_default();
    assert!(asked.status.success(), "{}{log}", text(&asked.stderr));
}
