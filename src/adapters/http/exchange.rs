//! One request and its answer over one connection, within one limit. Each failure says whether a byte of the request may have
//! left: before that nothing has happened, after it nobody knows.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HOST, HeaderMap, HeaderValue, LINK, RETRY_AFTER};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::super::Call;
use super::address::{self, Names};
use super::outgoing::Outgoing;
use super::{retry_after, roots};
use crate::domain::failure::Code;
use crate::domain::quantity::{Millis, UtcMs};

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The longest head of an answer, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// How often a call looks whether it must stop.
const LOOK: Duration = Duration::from_millis(20);

/// An answer, read to its end.
pub(super) struct Incoming {
    /// Who answered, for people.
    pub(super) host: String,
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    pub(super) retry_after: Option<Millis>,
    /// Whether its headers say that the list goes on elsewhere.
    pub(super) goes_on: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// The address must not be called. Nothing was opened.
    Blocked(String),
    /// No byte of the request has left.
    Before(Code, String),
    /// It may have arrived.
    After(Code, String),
}

/// Sends it and reads the answer to its end.
pub(super) fn exchange(outgoing: &Outgoing, call: &Call<'_>) -> Result<Incoming, Broken> {
    exchange_by(outgoing, call, Arc::new(address::of_this_machine))
}

fn exchange_by(outgoing: &Outgoing, call: &Call<'_>, names: Arc<Names>) -> Result<Incoming, Broken> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| Broken::Before(Code::EnvLimit, format!("cannot open a connection: {e}")))?;
    let answer = runtime.block_on(async {
        let limits = Limits { end: Instant::now() + Duration::from_millis(call.limit.0), call };
        let stream = limits.connect(outgoing, names).await?;
        if !outgoing.tls {
            return limits.speak(outgoing, stream).await;
        }
        let stream = limits.secure(outgoing, stream).await?;
        limits.speak(outgoing, stream).await
    });
    // A look-up that hangs must not hold us.
    runtime.shutdown_background();
    answer
}

struct Limits<'a> {
    end: Instant,
    call: &'a Call<'a>,
}

/// Why something did not come to its end.
enum Cut {
    Time,
    Stop,
}

impl Limits<'_> {
    /// Whatever comes first: the end, the limit, a stop.
    async fn within<T>(&self, what: impl Future<Output = T>) -> Result<T, Cut> {
        tokio::select! {
            done = timeout_at(self.end, what) => done.map_err(|_| Cut::Time),
            () = stopped(self.call.machine.stop) => Err(Cut::Stop),
        }
    }

    fn before(&self, cut: &Cut, host: &str) -> Broken {
        match cut {
            Cut::Time => {
                Broken::Before(Code::NetworkTimeout, format!("no connection to {host} within {}", self.call.limit))
            }
            Cut::Stop => Broken::Before(Code::WorkerCrash, "it was stopped before it was sent".to_owned()),
        }
    }

    fn after(&self, cut: &Cut, host: &str) -> Broken {
        match cut {
            Cut::Time => {
                Broken::After(Code::NetworkTimeout, format!("no whole answer of {host} within {}", self.call.limit))
            }
            Cut::Stop => Broken::After(Code::Interrupted, "it was stopped while it was sent".to_owned()),
        }
    }

    /// Looks the name up, once; checks what it came to; connects to that.
    async fn connect(&self, outgoing: &Outgoing, names: Arc<Names>) -> Result<TcpStream, Broken> {
        let (host, port) = (outgoing.host.clone(), outgoing.port);
        let failed = |message: String| Broken::Before(Code::TemporaryProviderError, message);
        let look = tokio::task::spawn_blocking(move || names(&host, port));
        let host = &outgoing.host;
        let found = self.within(look).await.map_err(|cut| self.before(&cut, host))?;
        let found = found.unwrap_or_else(|_| Err(io::Error::other("the look-up broke off")));
        let found = found.map_err(|e| failed(format!("cannot find {host}: {e}")))?;
        if found.is_empty() {
            return Err(failed(format!("{host} has no address")));
        }
        address::check(host, &found, outgoing.inside).map_err(Broken::Blocked)?;
        let stream = self.within(first_that_answers(&found)).await.map_err(|cut| self.before(&cut, host))?;
        stream.map_err(|e| failed(format!("cannot connect to {host}:{port}: {e}")))
    }

    /// TLS, to its end: a handshake that fails has carried nothing.
    async fn secure(
        &self,
        outgoing: &Outgoing,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Broken> {
        let host = &outgoing.host;
        let failed = |message: String| Broken::Before(Code::TemporaryProviderError, message);
        let settings = roots::settings(self.call.machine).map_err(failed)?;
        let name = ServerName::try_from(host.clone()).map_err(|_| failed(format!("{host} is no name for TLS")))?;
        let secured = self.within(TlsConnector::from(settings).connect(name, stream)).await;
        let secured = secured.map_err(|cut| self.before(&cut, host))?;
        secured.map_err(|e| failed(format!("no secure connection to {host}: {e}")))
    }

    /// From here on everything may have arrived.
    async fn speak(
        &self,
        outgoing: &Outgoing,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Incoming, Broken> {
        let host = &outgoing.host;
        let request = request(outgoing).map_err(|message| Broken::Before(Code::ValidationError, message))?;
        let mut http = http1::Builder::new();
        http.max_buf_size(MAX_HEAD);
        let opened = http.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) =
            opened.map_err(|e| Broken::Before(Code::TemporaryProviderError, format!("cannot speak to {host}: {e}")))?;
        tokio::spawn(connection);
        match self.within(whole_answer(sender.send_request(request))).await {
            Err(cut) => Err(self.after(&cut, host)),
            Ok(Err(message)) => Err(Broken::After(Code::TemporaryProviderError, format!("{host}: {message}"))),
            Ok(Ok((head, body))) => Ok(Incoming {
                host: host.clone(),
                status: head.status,
                body,
                retry_after: head.headers.get(RETRY_AFTER).and_then(read_retry_after),
                goes_on: goes_on(&head.headers),
            }),
        }
    }
}

/// Addresses are tried one after the other; what is told is why the last one failed.
async fn first_that_answers(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}

fn request(outgoing: &Outgoing) -> Result<Request<Full<Bytes>>, String> {
    let Outgoing { method, uri, headers, body, .. } = outgoing;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority).map_err(|_| "the host cannot be written".to_owned())?;
    let request = Request::builder().method(method.clone()).uri(target).header(HOST, host);
    let body = Full::new(Bytes::from(body.clone()));
    let mut request = request.body(body).map_err(|_| "the request cannot be written".to_owned())?;
    request.headers_mut().extend(headers.clone());
    Ok(request)
}

/// An answer that was not read to its end proves nothing, whatever its status says: something between us may have made it.
async fn whole_answer(
    sent: impl Future<Output = hyper::Result<http::Response<Body>>>,
) -> Result<(http::response::Parts, Vec<u8>), String> {
    let answer = sent.await.map_err(|e| format!("no answer: {e}"))?;
    let (head, mut body) = answer.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("the answer broke off: {e}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > MAX_ANSWER {
            return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((head, bytes))
}

fn read_retry_after(value: &HeaderValue) -> Option<Millis> {
    let present = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let present = UtcMs(i64::try_from(present.as_millis()).unwrap_or(i64::MAX));
    retry_after::read(value.to_str().ok()?, present)
}

/// `Link: <…>; rel="next"`.
fn goes_on(headers: &HeaderMap) -> bool {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    links
        .flat_map(|links| links.split(','))
        .any(|link| link.split(';').skip(1).any(|part| matches!(part.trim(), "rel=\"next\"" | "rel=next")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{IpAddr, TcpListener};
    use std::sync::Mutex;

    use http::Method;

    use super::super::super::{Files, Machine};
    use super::*;
    use crate::domain::action::contract::Environment;
    use crate::domain::action::{ActionRequest, Contract};
    use crate::domain::ids::ActionId;
    use crate::domain::policy::ActionType;
    use crate::process::{ChildId, Supervisor};

    /// A name that means one thing the first time and another ever after.
    fn flipping(answers: [&str; 2], asked: Arc<Mutex<usize>>) -> Arc<Names> {
        let answers = answers.map(|text| text.parse::<IpAddr>().unwrap());
        Arc::new(move |_, port| {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            Ok(vec![SocketAddr::new(answers[(*asked - 1).min(1)], port)])
        })
    }

    fn get(port: u16, inside: bool, names: Arc<Names>) -> Result<Incoming, Broken> {
        let none = std::path::Path::new("/nonexistent");
        let (empty, stop) = (BTreeMap::new(), AtomicBool::new(false));
        let request = ActionRequest {
            kind: ActionType::Generic,
            target: String::new(),
            account: None,
            environment: Environment::Test,
            contract: None,
            instance: None,
            irreversible: false,
            subject: BTreeMap::new(),
            input: serde_json::Value::Null,
        };
        let machine = Machine {
            supervisor: &Supervisor::start().unwrap(),
            child: ChildId(1),
            environment: &empty,
            vars: &empty,
            secrets: &[],
            dir: none,
            files: Files { request: none, stdout: none, stderr: none, max_bytes: 0 },
            grace: Millis(1),
            stop: &stop,
        };
        let outgoing = Outgoing {
            method: Method::GET,
            uri: format!("http://flip.example:{port}/x").parse().unwrap(),
            host: "flip.example".to_owned(),
            port,
            tls: false,
            headers: HeaderMap::new(),
            body: Vec::new(),
            inside,
            secrets: Vec::new(),
        };
        let call = Call {
            contract: &Contract::careful("x"),
            request: &request,
            key: "k",
            operation: &ActionId::recorded("op"),
            reference: None,
            fence: 1,
            limit: Millis::secs(10),
            run: None,
            status: None,
            machine: &machine,
        };
        exchange_by(&outgoing, &call, names)
    }

    #[test]
    fn f96_a_name_is_looked_up_once_and_the_checked_address_is_the_one_that_is_called() {
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = good.local_addr().unwrap().port();
        let metadata = TcpListener::bind(("127.0.0.2", port)).unwrap();
        metadata.set_nonblocking(true).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = good.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        });
        let asked = Arc::new(Mutex::new(0));
        let answer = get(port, true, flipping(["127.0.0.1", "127.0.0.2"], Arc::clone(&asked)));
        assert_eq!(answer.map_err(|e| format!("{e:?}")).unwrap().body, b"ok");
        assert_eq!(*asked.lock().unwrap(), 1);
        serving.join().unwrap();
        assert!(metadata.accept().is_err(), "nobody came");
        for second in ["127.0.0.2", "169.254.169.254"] {
            let blocked = get(port, false, flipping([second, "93.184.216.34"], Arc::default()));
            assert!(matches!(blocked, Err(Broken::Blocked(_))));
        }
        assert!(metadata.accept().is_err(), "nobody came");
    }
}
