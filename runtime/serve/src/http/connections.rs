//! Connections: so many at a time, each with a header to bring within a time, and all with an orderly end. More than those wait
//! unaccepted, where they cost nothing here.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open at a time.
    pub most: usize,
    /// From the beginning of a connection, or from its last answer, until the whole header of the next request is there.
    pub idle: Duration,
}

/// After an error that may last, such as too many open files.
const PAUSE: Duration = Duration::from_secs(1);

/// Until `end`; then no more are taken, and it returns when the answers under way are sent.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, end: impl Future<Output = ()>) {
    let open = Arc::new(Semaphore::new(limits.most.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    // It also runs while a connection that is kept is silent.
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle);
    let mut end = std::pin::pin!(end);
    loop {
        let taken = async {
            // Nobody closes the semaphore.
            let permit = Arc::clone(&open).acquire_owned().await.ok();
            (permit, accepted(&listener).await)
        };
        let (permit, stream) = tokio::select! {
            taken = taken => taken,
            () = &mut end => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn accepted(listener: &TcpListener) -> TcpStream {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Pieces of an answer are small, and each is to arrive at once; without it they arrive all the same.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            // Of a client that left before it was taken.
            Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) => {}
            Err(error) => {
                tracing::error!("a connection was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpStream},
        sync::mpsc,
        thread::sleep,
        time::{Duration, Instant},
    };

    use axum::{Router, routing::get};
    use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot, task::JoinHandle};

    use super::{Limits, serve};

    const ASKED: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    /// Longer than anything takes here.
    const PATIENCE: Duration = Duration::from_secs(20);

    struct Served {
        runtime: Runtime,
        address: SocketAddr,
        end: oneshot::Sender<()>,
        served: JoinHandle<()>,
        /// Hears of each request for `/slow`.
        asked: mpsc::Receiver<()>,
    }

    fn start(most: usize, idle: Duration) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (tell, asked) = mpsc::channel();
        let slow = move || async move {
            tell.send(()).unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(400)).await;
            "slow"
        };
        let router = Router::new().route("/", get(|| async { "here" })).route("/slow", get(slow));
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap_or_default() };
        let served = runtime.spawn(serve(listener, router, Limits { most, idle }, ended));
        Served { runtime, address, end, served, asked }
    }

    fn connect(server: &Served) -> TcpStream {
        let stream = TcpStream::connect(server.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    /// What comes next; nothing where the server has hung up, `None` where it says nothing in time.
    fn answer(stream: &mut TcpStream) -> Option<String> {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Ok(read) => Some(String::from_utf8_lossy(&bytes[..read]).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(String::new()),
            Err(_) => None,
        }
    }

    #[test]
    fn a_header_that_does_not_come_ends_its_connection() {
        let idle = Duration::from_secs(1);
        let server = start(8, idle);
        // Drop by drop, never whole: what came last does not begin the time anew.
        let (mut slow, begun) = (connect(&server), Instant::now());
        for byte in ASKED.iter().filter(|byte| **byte != b'\n').cycle() {
            assert!(begun.elapsed() < PATIENCE, "the server hangs up");
            sleep(Duration::from_millis(20));
            if slow.write_all(&[*byte]).is_err() {
                break;
            }
        }
        assert!(begun.elapsed() >= idle);
        // Silence after an answer, and from the start.
        let mut kept = connect(&server);
        kept.write_all(ASKED).expect("sent");
        assert!(answer(&mut kept).is_some_and(|told| told.starts_with("HTTP/1.1 200")));
        assert_eq!(answer(&mut kept).as_deref(), Some(""));
        assert_eq!(answer(&mut connect(&server)).as_deref(), Some(""));
    }

    #[test]
    fn more_connections_than_may_be_open_wait_for_one_to_end() {
        let server = start(2, PATIENCE);
        let (first, _second, mut third) = (connect(&server), connect(&server), connect(&server));
        third.write_all(ASKED).expect("sent");
        third.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        assert_eq!(answer(&mut third), None, "it is not served yet");
        drop(first);
        third.set_read_timeout(Some(PATIENCE)).expect("set");
        assert!(answer(&mut third).is_some_and(|told| told.ends_with("here")));
    }

    #[test]
    fn an_end_waits_for_answers_and_not_for_who_is_silent() {
        let server = start(8, PATIENCE);
        let (mut asks, _silent) = (connect(&server), connect(&server));
        asks.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").expect("sent");
        server.asked.recv_timeout(PATIENCE).expect("it is asked");
        let begun = Instant::now();
        server.end.send(()).expect("it serves");
        assert!(answer(&mut asks).is_some_and(|told| told.ends_with("slow")));
        server.runtime.block_on(server.served).expect("no panic");
        assert!(begun.elapsed() < PATIENCE);
    }
}
