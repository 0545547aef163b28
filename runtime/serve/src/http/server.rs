//! The server's life: bind, serve, and on SIGTERM or SIGINT finish what runs and end. A second signal ends at once.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::{net::TcpListener, sync::oneshot};

use super::{
    App,
    connections::{self, Limits},
    routes,
};

/// Exit code of a process that a second signal ended.
const INTERRUPTED: i32 = 130;

/// What connections have to end once every answer is complete: one that never sends its request would hold the process.
const GRACE: Duration = Duration::from_secs(5);

/// How often what was measured is summed up, whether or not somebody reads it: until then each number is held.
const UPKEEP: Duration = Duration::from_secs(5);

/// Binds, then makes the engine and serves it until a signal. `tell` hears the address once it is bound.
pub async fn serve(
    address: SocketAddr,
    limits: Limits,
    tell: impl FnOnce(SocketAddr),
    app: impl FnOnce() -> Result<App>,
) -> Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listening on {address} (--host, --port)"))?;
    let mut stop = Signals::new()?;
    let app = Arc::new(app()?);
    tell(listener.local_addr().context("the address that is listened on")?);
    let metrics = app.metrics.clone();
    tokio::spawn(repeat(UPKEEP, move || metrics.run_upkeep()));
    let engine = app.engine.clone();
    let last = engine.clone();
    let (told, signalled) = oneshot::channel();
    let drain = engine.clone();
    let signal = async move {
        stop.next().await;
        tracing::info!("shutting down: requests that run are finished; a second signal ends at once");
        drain.drain();
        // Nobody hears it where the server ended by itself.
        let _ = told.send(());
        tokio::spawn(async move {
            stop.next().await;
            at_once(INTERRUPTED);
        });
    };
    let finished = async move {
        // Without a signal this side waits for as long as the other serves.
        if signalled.await.is_err() {
            std::future::pending::<()>().await;
        }
        let ended = tokio::task::spawn_blocking(move || engine.wait()).await;
        tokio::time::sleep(GRACE).await;
        ended
    };
    tokio::select! {
        () = connections::serve(listener, routes::router(app), limits, signal) => {}
        ended = finished => {
            tracing::warn!("some connections did not end; they are dropped");
            ended.context("waiting for the engine")?;
        }
    }
    // Every answer is complete. What is still under way is for nobody: a model that is being loaded, a step.
    match tokio::time::timeout(GRACE, tokio::task::spawn_blocking(move || last.wait())).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Err(error)) => Err(error).context("waiting for the engine"),
        Ok(Ok(false)) | Err(_) => at_once(0),
    }
}

/// Until the runtime ends.
async fn repeat(period: Duration, mut what: impl FnMut()) {
    let mut times = tokio::time::interval(period);
    loop {
        times.tick().await;
        what();
    }
}

/// Ends without the destructors of libraries, which would pull the ground from under a thread that still computes.
fn at_once(code: i32) -> ! {
    // SAFETY: `_exit` has no condition; what is written is written without buffers of this process.
    unsafe { libc::_exit(code) }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::repeat;

    #[test]
    fn what_is_repeated_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let three = async {
            tokio::spawn(repeat(Duration::from_millis(1), move || tell.send(()).unwrap_or_default()));
            for _ in 0..3 {
                told.recv().await.expect("another time");
            }
        };
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), three).await }).expect("in time");
    }
}
