//! A server between the client and a registry: it does harm by a seed, or wants tokens.
//!
//! One request a connection, so that harm to one touches no other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is done to one exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The answer ends after so many bytes of its body, against the length it promised.
    Cut(usize),
    /// The same, but the connection stays open.
    Stall(usize),
    /// The answer is shorter and says so.
    Truncate(usize),
    /// One byte of the body is another one.
    Flip(usize),
    /// The registry is not asked: 429 and `Retry-After: 0`.
    TooMany,
    /// The registry is not asked: this status.
    Status(u16),
    /// The registry does not hear of the range.
    IgnoreRange,
    /// The request ends after so many bytes of its body.
    CutRequest(usize),
    /// The registry does what is asked, and nobody hears of it.
    DropAnswer,
    /// One byte of the request's body is another one.
    FlipRequest(usize),
    /// Two stretches of the answer's body have changed places.
    Reorder(usize),
    /// The same of the request's.
    ReorderRequest(usize),
    /// The answer comes after those of later requests.
    Late(usize),
}

pub struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// What the proxy does with a request.
pub enum Act {
    Pass,
    /// With another header in the answer, `NAME: VALUE`.
    Adding(String),
    Harm(Fault),
    /// Status line and headers, body.
    Answer(String, String),
}

type Judge = Box<dyn Fn(&Request) -> Act + Send + Sync>;

pub struct Proxy {
    pub host: String,
    shared: Arc<Shared>,
    listener: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    upstream: String,
    judge: Judge,
    requests: Mutex<Vec<String>>,
    ends: AtomicBool,
}

impl Proxy {
    pub fn start(upstream: &str, judge: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            judge: Box::new(judge),
            requests: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let inside = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                if inside.ends.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&inside);
                // A connection that breaks is what this is for.
                std::thread::spawn(move || client.and_then(|c| serve(&shared, c)));
            }
        });
        Self {
            host,
            shared,
            listener: Some(thread),
        }
    }

    /// `METHOD PATH` of every request up to now.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.host);
        self.listener.take().unwrap().join().unwrap();
    }
}

fn serve(shared: &Shared, client: TcpStream) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(30)))?;
    client.set_nodelay(true)?;
    let mut from = BufReader::new(client.try_clone()?);
    let mut to = client;
    let (first, headers) = head(&mut from)?;
    let mut words = first.split(' ').map(str::to_owned);
    let request = Request {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        headers,
    };
    if request.method.is_empty() {
        return Ok(());
    }
    let line = format!("{} {}", request.method, request.path);
    shared.requests.lock().unwrap().push(line.clone());
    let mut added = None;
    let fault = match (shared.judge)(&request) {
        Act::Pass => None,
        Act::Adding(header) => {
            added = Some(header);
            None
        }
        Act::Harm(fault) => Some(fault),
        Act::Answer(head, body) => {
            drain(&mut from, &request)?;
            return write!(
                to,
                "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    };
    match fault {
        Some(Fault::TooMany) => {
            drain(&mut from, &request)?;
            return to.write_all(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        Some(Fault::Status(status)) => {
            drain(&mut from, &request)?;
            return write!(
                to,
                "HTTP/1.1 {status} Harm\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            );
        }
        _ => {}
    }
    let mut up = TcpStream::connect(&shared.upstream)?;
    write!(up, "{line} HTTP/1.1\r\n")?;
    for (name, value) in &request.headers {
        let ranged = name.eq_ignore_ascii_case("range") && fault == Some(Fault::IgnoreRange);
        if !ranged && !name.eq_ignore_ascii_case("connection") {
            write!(up, "{name}: {value}\r\n")?;
        }
    }
    up.write_all(b"Connection: close\r\n\r\n")?;
    let mut body = vec![0; length(&request.headers)];
    from.read_exact(&mut body)?;
    match fault {
        Some(Fault::CutRequest(at)) if !body.is_empty() => {
            up.write_all(&body[..at % body.len()])?;
            let _ = up.shutdown(Shutdown::Both);
            return to.shutdown(Shutdown::Both);
        }
        Some(Fault::FlipRequest(at)) if !body.is_empty() => {
            let at = at % body.len();
            body[at] ^= 1;
        }
        Some(Fault::ReorderRequest(at)) if !body.is_empty() => {
            let at = at % body.len();
            body.rotate_left(at);
        }
        _ => {}
    }
    up.write_all(&body)?;
    let mut up = BufReader::new(up);
    let (status, headers) = head(&mut up)?;
    let mut body = vec![0; length(&headers)];
    if request.method != "HEAD" {
        if length(&headers) == 0 {
            up.read_to_end(&mut body)?;
        } else {
            up.read_exact(&mut body)?;
        }
    }
    if fault == Some(Fault::DropAnswer) {
        return to.shutdown(Shutdown::Both);
    }
    if let Some(Fault::Truncate(at)) = fault
        && !body.is_empty()
    {
        body.truncate(at % body.len());
    }
    if let Some(Fault::Late(at)) = fault {
        std::thread::sleep(Duration::from_millis(at as u64 % 60));
    }
    let truncated = matches!(fault, Some(Fault::Truncate(_)));
    write!(to, "{status}\r\n")?;
    for (name, value) in &headers {
        let is_length = name.eq_ignore_ascii_case("content-length");
        if is_length && truncated && request.method != "HEAD" {
            write!(to, "{name}: {}\r\n", body.len())?;
        } else if !name.eq_ignore_ascii_case("connection") {
            write!(to, "{name}: {value}\r\n")?;
        }
    }
    if let Some(header) = added {
        write!(to, "{header}\r\n")?;
    }
    to.write_all(b"Connection: close\r\n\r\n")?;
    if request.method == "HEAD" {
        return Ok(());
    }
    match fault {
        Some(Fault::Cut(at)) if !body.is_empty() => {
            to.write_all(&body[..at % body.len()])?;
            to.shutdown(Shutdown::Both)
        }
        Some(Fault::Stall(at)) if !body.is_empty() => {
            to.write_all(&body[..at % body.len()])?;
            // Until the client has enough of it.
            let _ = to.read(&mut [0]);
            Ok(())
        }
        Some(Fault::Flip(at)) if !body.is_empty() => {
            let at = at % body.len();
            body[at] ^= 1;
            to.write_all(&body)
        }
        Some(Fault::Reorder(at)) if !body.is_empty() => {
            let at = at % body.len();
            body.rotate_left(at);
            to.write_all(&body)
        }
        _ => to.write_all(&body),
    }
}

/// A client that has not sent all of its body does not read an answer.
fn drain(from: &mut impl Read, request: &Request) -> std::io::Result<()> {
    let length = length(&request.headers) as u64;
    std::io::copy(&mut from.take(length), &mut std::io::sink()).map(|_| ())
}

fn head(from: &mut impl BufRead) -> std::io::Result<(String, Vec<(String, String)>)> {
    let mut first = String::new();
    from.read_line(&mut first)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => return Ok((first.trim_end().to_owned(), headers)),
        }
    }
}

fn length(headers: &[(String, String)]) -> usize {
    headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse().unwrap())
}
