//! Fetching from servers with certificates of openssl, over HTTP/1.0 and nghttpd's HTTP/2.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use support::fetching::{self, bytes, proxy};
use support::http::{Reply, Server};
use support::process::is_again;

/// The test that runs again in a process of its own.
const HOOK: &str = "tls::an_authority_of_the_environment_is_trusted_also_through_a_proxy";

/// What became of a fetch in a process with that environment.
fn ask(url: &str, body: &[u8], directory: &Path, env: &[(&str, &str)]) -> String {
    fetching::ask(HOOK, url, body, directory, env)
}

/// A server with a certificate of an authority of its own.
struct Tls {
    dir: tempfile::TempDir,
    port: u16,
    child: std::process::Child,
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tls {
    /// `openssl s_server -WWW`, which speaks HTTP/1.0.
    fn start(body: &[u8]) -> Self {
        Self::serve(body, |port| {
            let mut server = Command::new("openssl");
            server
                .args(["s_server", "-WWW", "-quiet", "-cert", "cert.pem"])
                .args(["-key", "key.pem", "-accept", port]);
            server
        })
    }

    /// The same, whose `thing` is a whole answer with its head.
    fn answering(answer: &str) -> Self {
        Self::serve(answer.as_bytes(), |port| {
            let mut server = Command::new("openssl");
            server
                .args(["s_server", "-HTTP", "-quiet", "-cert", "cert.pem"])
                .args(["-key", "key.pem", "-accept", port]);
            server
        })
    }

    /// nghttpd, which speaks HTTP/2 and nothing else; what it says is in `log`.
    fn http2(body: &[u8]) -> Self {
        Self::serve(body, |port| {
            let mut server = Command::new("sh");
            let script = "exec stdbuf -oL nghttpd -v -d . \"$0\" key.pem cert.pem >log 2>&1";
            server.args(["-c", script, port]);
            server
        })
    }

    fn serve(body: &[u8], server: impl FnOnce(&str) -> Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thing"), body).unwrap();
        let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority -addext basicConstraints=critical,CA:TRUE \
            && openssl req -newkey rsa:2048 -nodes -keyout key.pem -out it.csr -subj /CN=localhost \
            && printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > ext \
            && openssl x509 -req -in it.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cert.pem";
        let made = Command::new("sh")
            .args(["-ec", script])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let child = server(&port.to_string())
            .current_dir(dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Self { dir, port, child }
    }
}

#[test]
fn an_authority_of_the_environment_is_trusted_also_through_a_proxy() {
    if is_again() {
        return fetching::fetches_with_its_environment();
    }
    let body = bytes(32, 200_000);
    let server = Tls::start(&body);
    let url = format!("https://localhost:{}/thing", server.port);
    let ca = server.dir.path().join("ca.pem");
    let ca = ca.to_str().unwrap();
    let fetch = |env: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        ask(&url, &body, dir.path(), env)
    };
    let unknown = fetch(&[]);
    assert!(unknown.contains("ertificate"), "{unknown}");
    assert_eq!(fetch(&[("SSL_CERT_FILE", ca)]), "well, 200000 bytes came");
    let (address, log) = proxy();
    let proxy = format!("http://user:secret@{address}");
    let through = fetch(&[("SSL_CERT_FILE", ca), ("HTTPS_PROXY", &proxy)]);
    assert_eq!(through, "well, 200000 bytes came");
    let tunnel = format!("CONNECT localhost:{} HTTP/1.1", server.port);
    assert_eq!(log.lock().unwrap().as_slice(), [tunnel]);
}

#[test]
fn no_redirect_leads_out_of_tls() {
    let body = bytes(35, 1000);
    let served = body.clone();
    let plain = Server::start(move |request, _| Reply::honest(&served, "\"a\"", request));
    let answer = format!(
        "HTTP/1.0 302 Found\r\nLocation: {}/thing\r\nContent-Length: 0\r\n\r\n",
        plain.url
    );
    let server = Tls::answering(&answer);
    let ca = server.dir.path().join("ca.pem");
    let dir = tempfile::tempdir().unwrap();
    let url = format!("https://localhost:{}/thing", server.port);
    let env = [("SSL_CERT_FILE", ca.to_str().unwrap())];
    let end = ask(&url, &body, dir.path(), &env);
    assert!(
        end.contains("a redirect to an address without TLS"),
        "{end}"
    );
    assert!(plain.log().is_empty());
}

#[test]
fn many_files_come_over_one_connection_where_a_server_speaks_http_2() {
    let body = bytes(34, 400_000);
    let server = Tls::http2(&body);
    let url = format!("https://localhost:{}/thing", server.port);
    let urls = [url.as_str(); 12].join(" ");
    let ca = server.dir.path().join("ca.pem");
    let dir = tempfile::tempdir().unwrap();
    let env = [("SSL_CERT_FILE", ca.to_str().unwrap())];
    assert_eq!(
        ask(&urls, &body, dir.path(), &env),
        "well, 4800000 bytes came"
    );
    let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap();
    assert_eq!(log.matches(":path: /thing").count(), 12, "{log}");
    // Those that ask before the first connection says what it speaks may open others.
    let of = |line: &str| {
        line.split(' ')
            .find(|w| w.starts_with("[id="))
            .map(str::to_owned)
    };
    let connections: std::collections::BTreeSet<String> = log.lines().filter_map(of).collect();
    assert!((1..12).contains(&connections.len()), "{connections:?}");
}
