//! The server's life: bind, serve, and on SIGTERM or SIGINT finish what runs and end. A second signal ends at once.

use std::{future::Future, net::SocketAddr, process, sync::Arc};

use anyhow::{Context, Result};
use tokio::net::TcpListener;

use super::{App, routes};
use crate::engine::Engine;

/// Exit code of a process that a second signal ended.
const INTERRUPTED: i32 = 130;

/// Binds, then makes the engine and serves it until a signal. `tell` hears the address once it is bound.
pub async fn serve(
    address: SocketAddr,
    tell: impl FnOnce(SocketAddr),
    app: impl FnOnce() -> Result<App>,
) -> Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listening on {address} (--host, --port)"))?;
    let mut stop = Signals::new()?;
    let app = Arc::new(app()?);
    tell(listener.local_addr().context("the address that is listened on")?);
    let engine = app.engine.clone();
    let drain = engine.clone();
    let signal = async move {
        stop.next().await;
        tracing::info!("shutting down: requests that run are finished; a second signal ends at once");
        drain.drain();
        tokio::spawn(async move {
            stop.next().await;
            process::exit(INTERRUPTED);
        });
    };
    serve_until(listener, app, signal).await?;
    finish(engine).await
}

async fn serve_until(
    listener: TcpListener,
    app: Arc<App>,
    signal: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    axum::serve(listener, routes::router(app)).with_graceful_shutdown(signal).await.context("serving")
}

async fn finish(engine: Engine) -> Result<()> {
    tokio::task::spawn_blocking(move || engine.wait()).await.context("waiting for the engine")?;
    Ok(())
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let on = |kind| signal(kind).context("listening for signals");
        Ok(Signals { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
