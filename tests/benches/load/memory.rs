//! Memory of a server over 2,000 requests by HTTP. The model is small and random, so that what requests leave behind is not lost
//! beside what the model takes.

use std::{
    thread,
    time::{Duration, Instant},
};

use mgraph_runtime::error::{Result, bail, ensure};

use crate::{
    client::{Ask, ask},
    process::Server,
};

/// Before the first look, so that every row has held a request and every buffer has its size.
const WARM: usize = 500;
const REQUESTS: usize = 2_000;
pub const CLIENTS: usize = 8;
const EVERY: usize = 500;
/// What 2,000 requests may leave behind: 4 KiB each.
const ROOM: u64 = 8 << 20;

pub fn flat(who: &str, server: &Server) -> Result<()> {
    requests(server, 0..WARM)?;
    let Some(warm) = server.resident() else {
        println!("{who:10} nothing here says what memory a process holds");
        return Ok(());
    };
    let mut after = Vec::new();
    for begin in (WARM..WARM + REQUESTS).step_by(EVERY) {
        requests(server, begin..begin + EVERY)?;
        after.extend(server.resident());
    }
    let shown: Vec<String> = after.iter().map(|bytes| format!("{:.1}", *bytes as f64 / 1e6)).collect();
    println!("{who:10} {:.1} MB, then {} after every {EVERY} requests", warm as f64 / 1e6, shown.join(", "));
    let end = after.last().copied().unwrap_or(warm);
    ensure!(end < warm + ROOM, "{who}: {REQUESTS} requests left {} bytes behind", end.saturating_sub(warm));
    Ok(())
}

fn requests(server: &Server, which: std::ops::Range<usize>) -> Result<()> {
    let asking = |client: usize| {
        let which = which.clone();
        let server = &server.address;
        move || -> Result<()> {
            for at in which.skip(client).step_by(CLIENTS) {
                let prompt = format!("{at}{}", " and more".repeat(at * 7 % 20));
                let until = Instant::now() + Duration::from_secs(60);
                let answer = ask(&Ask { server, prompt, max_tokens: at % 5 + 1, until })?;
                ensure!(answer.usage.is_some(), "request {at} was not answered within a minute");
            }
            Ok(())
        }
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(asking(client))).collect();
        for client in clients {
            match client.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(())
    })
}
