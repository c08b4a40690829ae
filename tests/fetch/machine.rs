//! What the machine sets: proxies, certificates, the size of its disk. Each is tried in a process of
//! its own, whose environment it is.

use super::bytes;
use super::server::{Reply, Server};
use stackforge_transfer::fetch::{Download, FetchError, Fetcher, Policy};
use stackforge_types::Digest;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// What became of a fetch in a process with that environment.
fn ask(url: &str, body: &[u8], directory: &Path, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("machine::fetches_with_its_environment")
        .env("FETCH_URL", url)
        .env("FETCH_SHA256", Digest::of(body).to_string())
        .env("FETCH_DIRECTORY", directory);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    let out = command.envs(env.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    match said.split_once("ENDED ") {
        Some((_, rest)) => rest.lines().next().unwrap_or_default().to_owned(),
        None => panic!("{said}{}", String::from_utf8_lossy(&out.stderr)),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs what the other tests tell it, which run it"]
async fn fetches_with_its_environment() {
    let env = |name: &str| std::env::var(name).unwrap();
    if let Ok(limit) = std::env::var("FETCH_LIMIT") {
        let limit = limit.parse().ok();
        let most = rustix::process::Rlimit {
            current: limit,
            maximum: limit,
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, most).unwrap();
    }
    let policy = Policy {
        attempts: 1,
        ..Policy::default()
    };
    let wanted = |(number, url): (usize, &str)| Download {
        name: match number {
            0 => "thing".to_owned(),
            more => format!("thing-{more}"),
        },
        urls: vec![url.to_owned()],
        sha256: env("FETCH_SHA256").parse().unwrap(),
        size: None,
    };
    let urls = env("FETCH_URL");
    let wanted: Vec<Download> = urls.split(' ').enumerate().map(wanted).collect();
    let directory = env("FETCH_DIRECTORY");
    let fetcher = Fetcher::with_netrc(policy, Default::default()).unwrap();
    match fetcher.all(&wanted, Path::new(&directory), &|_| {}).await {
        Ok(got) => {
            let bytes: u64 = got.iter().map(|f| f.bytes).sum();
            println!("ENDED well, {bytes} bytes came");
        }
        Err(FetchError::Full { kept, .. }) => println!("ENDED full, {kept} kept"),
        Err(e) => println!("ENDED {}", stackforge_stack::diag::chain(&e)),
    }
}

/// A proxy as small as one can be: it forwards requests for `http:` and opens tunnels for the rest,
/// for who knows `user:secret`. Its log holds the first line of each request.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = log.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let seen = seen.clone();
            std::thread::spawn(move || forward(client.unwrap(), &seen));
        }
    });
    (address, log)
}

fn forward(client: TcpStream, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let first = head.first()?.trim().to_owned();
    log.lock().unwrap().push(first.clone());
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut client = client;
    let is = |line: &String, name: &str| line.to_ascii_lowercase().starts_with(name);
    let login = head.iter().find(|line| is(line, "proxy-authorization:"));
    if !login.is_some_and(|line| line.contains("dXNlcjpzZWNyZXQ=")) {
        let answer = b"HTTP/1.1 407 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return client.write_all(answer).ok();
    }
    let mut server;
    if method == "CONNECT" {
        server = TcpStream::connect(target).ok()?;
        client.write_all(b"HTTP/1.1 200 X\r\n\r\n").ok()?;
    } else {
        let rest = target.strip_prefix("http://")?;
        let (host, path) = rest.split_once('/')?;
        server = TcpStream::connect(host).ok()?;
        write!(server, "{method} /{path} HTTP/1.1\r\n").ok()?;
        for line in head[1..].iter().filter(|line| !is(line, "proxy-")) {
            server.write_all(line.as_bytes()).ok()?;
        }
        server.write_all(b"\r\n").ok()?;
    }
    let (mut up, mut back) = (server.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut reader, &mut up);
    });
    let _ = std::io::copy(&mut server, &mut back);
    let _ = client.shutdown(std::net::Shutdown::Both);
    Some(())
}

#[test]
fn a_proxy_of_the_environment_is_taken_unless_the_host_is_excepted() {
    let body = bytes(31, 300_000);
    let served = body.clone();
    let server = Server::start(move |seen, _| Reply::honest(&served, "\"a\"", seen));
    let url = format!("{}/thing", server.url);
    let (address, log) = proxy();
    let (knows, guesses) = (
        format!("http://user:secret@{address}"),
        format!("http://user:sesame@{address}"),
    );
    let fetch = |env: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        ask(&url, &body, dir.path(), env)
    };
    assert_eq!(fetch(&[("HTTP_PROXY", &knows)]), "well, 300000 bytes came");
    assert_eq!(
        log.lock().unwrap().as_slice(),
        [format!("GET {url} HTTP/1.1")]
    );
    let wrong = fetch(&[("HTTP_PROXY", &guesses)]);
    assert!(
        wrong.contains("answers 407") && !wrong.contains("sesame"),
        "{wrong}"
    );
    assert_eq!(log.lock().unwrap().len(), 2);
    let past = fetch(&[("HTTP_PROXY", &guesses), ("NO_PROXY", "127.0.0.1")]);
    assert_eq!(past, "well, 300000 bytes came");
    assert_eq!(log.lock().unwrap().len(), 2);
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
    let plain = Server::start(move |seen, _| Reply::honest(&served, "\"a\"", seen));
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

/// A small file system for root, else a limit on the size of files, which the kernel reports
/// otherwise and which means the same.
#[test]
fn a_full_disk_is_named_and_what_came_is_gone_on_with() {
    let body = bytes(33, 6 << 20);
    let served = body.clone();
    let server = Server::start(move |seen, _| Reply::honest(&served, "\"a\"", seen));
    let url = format!("{}/thing", server.url);
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().to_str().unwrap();
    let mount = |options: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none", disk]);
        rustix::process::geteuid().is_root() && mount.status().is_ok_and(|s| s.success())
    };
    let small = mount("size=3m");
    let limit = (3 << 20).to_string();
    let limits: &[(&str, &str)] = match small {
        true => &[],
        false => &[("FETCH_LIMIT", &limit)],
    };
    let full = ask(&url, &body, dir.path(), limits);
    if small {
        assert!(mount("remount,size=20m"));
    }
    let then = ask(&url, &body, dir.path(), &[]);
    let mut there = Vec::new();
    if let Ok(mut file) = std::fs::File::open(dir.path().join("thing")) {
        file.read_to_end(&mut there).unwrap();
    }
    if small {
        assert!(Command::new("umount").arg(disk).status().unwrap().success());
    }
    let kept: u64 = full
        .strip_prefix("full, ")
        .and_then(|rest| rest.strip_suffix(" kept"))
        .unwrap_or_else(|| panic!("{full}"))
        .parse()
        .unwrap();
    assert!(kept > 2 << 20 && kept <= 3 << 20, "{kept}");
    assert_eq!(
        then,
        format!("well, {} bytes came", body.len() as u64 - kept)
    );
    assert!(there == body);
    let asked: Vec<_> = server.log().iter().map(|s| s.range).collect();
    assert_eq!(asked, [None, Some(usize::try_from(kept).unwrap())]);
}
