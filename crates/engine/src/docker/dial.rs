//! Byte streams to an engine: a Unix socket, TCP, TLS, or `docker system dial-stdio` at the remote end
//! of an ssh connection.
//!
//! The API and the BuildKit session both use a [`Wire`], so an address that works for one works for the
//! other. Each request gets its own stream; closing it cancels the work.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper_util::client::legacy::connect::{Connected as HttpConnected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::address::Address;

trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A stream to the engine.
pub(super) struct Wire(Pin<Box<dyn Duplex>>);

impl Address {
    pub(super) async fn dial(&self) -> io::Result<Wire> {
        Ok(match self {
            Address::Unix(path) => Wire(Box::pin(UnixStream::connect(path).await?)),
            Address::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                // A peer that loses power sends nothing, not even an end of stream.
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                let minute = std::time::Duration::from_secs(60);
                rustix::net::sockopt::set_tcp_keepidle(&stream, minute)?;
                match tls {
                    None => Wire(Box::pin(stream)),
                    Some(certificates) => {
                        let config = tls_config(certificates)?;
                        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
                        Wire(Box::pin(connector.connect(name, stream).await?))
                    }
                }
            }
            Address::Ssh { .. } => Wire(Box::pin(SshStream::spawn(self)?)),
        })
    }
}

fn tls_config(dir: &Path) -> io::Result<rustls::ClientConfig> {
    let named = |name: &str| {
        let path = dir.join(name);
        move |error: rustls::pki_types::pem::Error| {
            io::Error::other(format!("cannot read {}: {error}", path.display()))
        }
    };
    let certificates = |name: &str| -> io::Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_file_iter(dir.join(name))
            .and_then(Iterator::collect)
            .map_err(named(name))
    };
    let mut roots = rustls::RootCertStore::empty();
    if dir.join("ca.pem").exists() {
        for certificate in certificates("ca.pem")? {
            roots.add(certificate).map_err(io::Error::other)?;
        }
    } else {
        // A docker context without a CA uses the system's CAs.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    // A docker context may have only the engine's CA.
    if !dir.join("cert.pem").exists() {
        return Ok(config.with_no_client_auth());
    }
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).map_err(named("key.pem"))?;
    config
        .with_client_auth_cert(certificates("cert.pem")?, key)
        .map_err(io::Error::other)
}

/// The stdin and stdout of an ssh process that runs `docker system dial-stdio` on the engine's host. If
/// ssh ends before it has delivered a byte, its stderr becomes the error.
struct SshStream {
    stdin: ChildStdin,
    stdout: ChildStdout,
    spoken: Spoken,
    complaint: Option<JoinHandle<String>>,
    /// The process is killed when the stream is dropped.
    _child: Child,
}

/// Whether the client has sent something. An end of stream before that is held back, because a client
/// drops an idle connection that ends, and ssh's error message with it.
enum Spoken {
    /// Nothing was sent yet. A reader that saw the end waits here.
    No(Option<Waker>),
    Yes,
}

impl SshStream {
    fn spawn(address: &Address) -> io::Result<Self> {
        let mut command = Command::new("ssh");
        command.args(ssh_arguments(address));
        Self::start(command)
    }

    fn start(mut command: Command) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // Ctrl-C at the terminal is meant for us only: the connection to the engine must live long
            // enough to remove what runs there.
            .process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start ssh: {error}")))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("ssh started without pipes"));
        };
        let complaint = child.stderr.take().map(|mut stderr| {
            tokio::spawn(async move {
                let mut kept = Vec::new();
                let mut chunk = [0; 1024];
                while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
                    // Reading goes on, or ssh blocks. The first few lines say why it fails.
                    let room = 4096_usize.saturating_sub(kept.len());
                    kept.extend_from_slice(&chunk[..count.min(room)]);
                }
                String::from_utf8_lossy(&kept).trim().to_owned()
            })
        });
        Ok(SshStream {
            stdin,
            stdout,
            spoken: Spoken::No(None),
            complaint,
            _child: child,
        })
    }
}

fn ssh_arguments(address: &Address) -> Vec<String> {
    let Address::Ssh {
        user,
        host,
        port,
        socket,
    } = address
    else {
        return Vec::new();
    };
    // In its own process group ssh cannot ask for a passphrase, hence BatchMode.
    let mut words: Vec<String> = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]
        .map(str::to_owned)
        .into();
    if let Some(user) = user {
        words.extend(["-l".to_owned(), user.clone()]);
    }
    if let Some(port) = port {
        words.extend(["-p".to_owned(), port.to_string()]);
    }
    words.extend(["--".to_owned(), host.clone(), "docker".to_owned()]);
    if let Some(socket) = socket {
        words.extend(["--host".to_owned(), format!("unix://{socket}")]);
    }
    words.extend(["system", "dial-stdio"].map(str::to_owned));
    words
}

impl AsyncRead for SshStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut stream.stdout).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            stream.complaint = None;
            return Poll::Ready(Ok(()));
        }
        let Some(complaint) = &mut stream.complaint else {
            return Poll::Ready(Ok(()));
        };
        if let Spoken::No(waiting) = &mut stream.spoken {
            *waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let message = std::task::ready!(Pin::new(complaint).poll(cx)).unwrap_or_default();
        stream.complaint = None;
        match message.as_str() {
            "" => Poll::Ready(Ok(())),
            message => Poll::Ready(Err(io::Error::other(format!("ssh: {message}")))),
        }
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Spoken::No(Some(waiting)) = std::mem::replace(&mut self.spoken, Spoken::Yes) {
            waiting.wake();
        }
        match std::task::ready!(Pin::new(&mut self.stdin).poll_write(cx, bytes)) {
            // ssh's stderr says more than "broken pipe", and the next read returns it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && self.complaint.is_some() => {
                Poll::Ready(Ok(bytes.len()))
            }
            other => Poll::Ready(other),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(cx)
    }
}

impl Connection for Wire {
    fn connected(&self) -> HttpConnected {
        HttpConnected::new()
    }
}

impl tonic::transport::server::Connected for Wire {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

/// Connects an HTTP client to the engine, whatever the URI says.
#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<Address>);

impl tower_service::Service<http::Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let address = Arc::clone(&self.0);
        Box::pin(async move { address.dial().await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn an_end_before_the_question_is_told_to_whoever_asks() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo denied >&2; exit 255"]);
        let mut stream = SshStream::start(command).unwrap();
        stream._child.wait().await.unwrap();
        let mut byte = [0];
        let idle = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await;
        assert!(idle.is_err(), "{idle:?}");
        stream.write_all(b"GET /version").await.unwrap();
        let error = stream.read(&mut byte).await.unwrap_err();
        assert_eq!(error.to_string(), "ssh: denied");
    }
}
