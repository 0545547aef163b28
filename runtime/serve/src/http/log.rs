//! What is written and counted of requests: method, route, status and seconds, never what they say.

use std::time::Instant;

use axum::{
    body::Body,
    extract::{MatchedPath, Request},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use futures_util::StreamExt;

use super::stream::Outcome;

/// Characters of an address that no route takes.
const MOST_LOGGED: usize = 200;

/// A line of the log, written when the request is over: a stream's when it ends.
struct Line {
    begun: Instant,
    what: String,
    /// None where the client left before there was one.
    status: Option<StatusCode>,
    stream: Option<Outcome>,
    pieces: u64,
}

impl Line {
    fn piece(&mut self) {
        self.pieces += 1;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Line { begun, what, status, stream, pieces } = self;
        let status = status.map_or("no answer, the client left".to_owned(), |status| status.as_u16().to_string());
        let stream = stream.as_ref().map_or_else(String::new, |outcome| {
            let ended = outcome.told().unwrap_or("the client left");
            format!(", stream of {pieces} pieces: {ended}")
        });
        tracing::info!("{what} {status} {:.3} s{stream}", begun.elapsed().as_secs_f64());
    }
}

/// Counts and logs requests, by route and status; those that no route takes, too.
pub async fn count(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let (begun, method) = (Instant::now(), request.method().clone());
    let what = match &route {
        Some(route) => format!("{method} {route}"),
        None => format!("{method} {:?} (no route)", request.uri().path().chars().take(MOST_LOGGED).collect::<String>()),
    };
    let mut line = Line { begun, what, status: None, stream: None, pieces: 0 };
    let mut response = next.run(request).await;
    let (status, handler) = (response.status(), route.unwrap_or_else(|| "none".to_owned()));
    let labels = [("handler", handler.clone()), ("status", status.as_u16().to_string())];
    metrics::counter!("http_requests_total", &labels).increment(1);
    metrics::histogram!("http_request_duration_seconds", "handler" => handler).record(begun.elapsed().as_secs_f64());
    line.status = Some(status);
    let Some(outcome) = response.extensions_mut().remove::<Outcome>() else { return response };
    line.stream = Some(outcome);
    response.map(|body| Body::from_stream(body.into_data_stream().inspect(move |_| line.piece())))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read, Write},
        net::TcpStream,
        sync::{Arc, Mutex},
    };

    use axum::{Router, body::Bytes, middleware, routing::get};
    use tokio::net::TcpListener;

    use super::count;
    use crate::{
        api::ApiError,
        http::{
            connections::{Limits, serve},
            guard::no_such_route,
            stream::{self, Chunks, chunks},
        },
        request::{Event, Failure, Piece},
    };

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Each event is a chunk; one that is a failure is an error.
    struct Plain;

    impl Chunks for Plain {
        fn begin(&mut self) -> Vec<Bytes> {
            Vec::new()
        }

        fn event(&mut self, _: usize, event: Event) -> Result<Vec<Bytes>, ApiError> {
            match event {
                Event::Failed(failure) => Err(failure.into()),
                Event::Piece(_) | Event::Done(_) => Ok(vec!["piece".into()]),
            }
        }

        fn end(&mut self) -> Vec<Bytes> {
            vec!["end".into()]
        }
    }

    async fn streamed(fails: bool) -> axum::response::Response {
        let last = if fails { Event::Failed(Failure::Deadline) } else { Event::Piece(Piece::default()) };
        let events = futures_util::stream::iter([(0, Event::Piece(Piece::default())), (0, last)]);
        stream::respond(|outcome| chunks(events, Plain, outcome))
    }

    #[test]
    fn the_log_has_the_end_of_a_stream_and_what_no_route_takes() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new()
            .route("/whole", get(|| streamed(false)))
            .route("/late/{id}", get(|| streamed(true)))
            .fallback(no_such_route)
            .layer(middleware::from_fn(count));
        let limits = Limits { most: 8, idle: std::time::Duration::from_secs(20) };
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let client = std::thread::spawn(move || {
            for path in ["/whole", "/late/secret", "/nowhere?secret"] {
                let mut stream = TcpStream::connect(address).expect("connected");
                write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("sent");
                stream.read_to_string(&mut String::new()).expect("answered");
            }
            drop(end);
        });
        tracing::subscriber::with_default(subscriber, || {
            runtime.block_on(serve(listener, router, limits, async { drop(ended.await) }));
        });
        client.join().expect("no panic");
        let told = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].contains("GET /whole 200 ") && lines[0].ends_with("stream of 3 pieces: complete"), "{told}");
        assert!(
            lines[1].contains("GET /late/{id} 200 ") && lines[1].ends_with("stream of 2 pieces: timeout"),
            "{told}"
        );
        assert!(lines[2].contains("GET \"/nowhere\" (no route) 404 ") && !told.contains("secret"), "{told}");
    }
}
