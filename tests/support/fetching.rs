//! Fetches in processes of their own, whose environment says what the machine sets, and a proxy.

use super::process::again;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::{Download, FetchError, Fetcher};
use stackforge_types::Digest;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What became of a fetch in a process with that environment: the one of the test `test`, which calls
/// [`fetches_with_its_environment`] there.
pub fn ask(test: &str, url: &str, body: &[u8], directory: &Path, env: &[(&str, &str)]) -> String {
    let mut command = again(test);
    command
        .env("FETCH_URL", url)
        .env("FETCH_SHA256", Digest::of(body).to_string())
        .env("FETCH_DIRECTORY", directory);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    let out = command.envs(env.iter().copied()).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    match stdout.split_once("ENDED ") {
        Some((_, rest)) => rest.lines().next().unwrap_or_default().to_owned(),
        None => panic!("{stdout}{}", String::from_utf8_lossy(&out.stderr)),
    }
}

/// Fetches what [`ask`] wants, and prints what became of it.
#[tokio::main(flavor = "multi_thread")]
pub async fn fetches_with_its_environment() {
    let env = |name: &str| std::env::var(name).unwrap();
    if let Ok(limit) = std::env::var("FETCH_LIMIT") {
        let limit = limit.parse().ok();
        let most = rustix::process::Rlimit {
            current: limit,
            maximum: limit,
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, most).unwrap();
    }
    let policy = RetryPolicy {
        attempts: 1,
        ..RetryPolicy::default()
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
pub fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
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

/// Bytes that look random and are the same in every run.
pub fn bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..))
        .take(size)
        .collect()
}
