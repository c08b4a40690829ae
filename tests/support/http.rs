//! An HTTP server whose every answer a test decides, and which remembers what it was asked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub struct Request {
    pub path: String,
    /// First byte that is asked for.
    pub range: Option<usize>,
    pub if_range: Option<String>,
    pub authorization: Option<String>,
    /// Bytes of the body that were handed to the connection.
    pub sent: usize,
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// `Content-Length`, if any.
    pub length: Option<usize>,
    /// Says nothing more after the body, but does not hang up.
    pub stalls: bool,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            length: Some(0),
            stalls: false,
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// As a good server answers, that tells versions apart by `etag`.
    pub fn honest(body: &[u8], etag: &str, request: &Request) -> Self {
        let fresh = request.if_range.as_deref().is_none_or(|tag| tag == etag);
        let first = request.range.filter(|_| fresh);
        let mut reply = match first {
            Some(first) if first >= body.len() => Self::status(416),
            Some(first) => {
                let range = format!("bytes {first}-{}/{}", body.len() - 1, body.len());
                Self {
                    body: body[first..].to_vec(),
                    ..Self::status(206).header("Content-Range", &range)
                }
            }
            None => Self {
                body: body.to_vec(),
                ..Self::status(200)
            },
        };
        reply.length = Some(reply.body.len());
        reply.header("ETag", etag)
    }
}

pub struct Server {
    pub url: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers with `answer(request, how many came before)`, each request in its own connection.
    pub fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (answer, request) = (Arc::new(answer), log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, request) = (answer.clone(), request.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &*answer, &request));
            }
        });
        Self { url, log }
    }

    pub fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&Request, usize) -> Reply,
    log: &Mutex<Vec<Request>>,
) {
    let Some(request) = read(&stream) else { return };
    let place = {
        let mut log = log.lock().unwrap();
        log.push(request.clone());
        log.len() - 1
    };
    let reply = answer(&request, place);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = reply.length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    head.push_str("\r\n");
    let mut sent = stream.write_all(head.as_bytes()).is_ok();
    for piece in reply.body.chunks(64 << 10) {
        sent = sent && stream.write_all(piece).is_ok();
        if sent {
            log.lock().unwrap()[place].sent += piece.len();
        }
    }
    if reply.stalls {
        // Until the other side hangs up.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
        let _ = std::io::Read::read(&mut stream, &mut [0]);
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let mut request = Request {
        path: lines.next()?.ok()?.split(' ').nth(1)?.to_owned(),
        ..Request::default()
    };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else {
            return Some(request);
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let first = value.strip_prefix("bytes=")?.split('-').next()?;
                request.range = Some(first.parse().ok()?);
            }
            "if-range" => request.if_range = Some(value.to_owned()),
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    None
}
