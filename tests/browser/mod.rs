//! Headless Chromium, spoken to through its DevTools pipe: JSON messages that end with a zero, on descriptors 3 and 4.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use base64::Engine as _;
use serde_json::{Value, json};

pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    sent: u64,
    events: VecDeque<Value>,
    _profile: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

/// A page that has loaded.
pub struct Page {
    session: String,
    /// Errors, exceptions and warnings of the console.
    pub complaints: Vec<String>,
    /// Addresses asked for, the page's own among them; `data:` asks nobody.
    pub requests: Vec<String>,
}

/// What a browser painted.
pub struct Shot {
    /// As PNG.
    pub file: Vec<u8>,
    width: usize,
    /// Bytes of a pixel.
    samples: usize,
    pixels: Vec<u8>,
}

impl Browser {
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let name = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
        // The shell moves the two pipes to where Chromium expects them. No sandbox: as root and in containers it has none to use.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", &name])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Browser { process, to, from, sent: 0, events: VecDeque::new(), _profile: profile }
    }

    pub fn open(&mut self, file: &Path, scheme: Scheme, width: u32) -> Page {
        self.visit(&format!("file://{}", file.display()), scheme, width)
    }

    pub fn visit(&mut self, address: &str, scheme: Scheme, width: u32) -> Page {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let attached =
            self.call(None, "Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(Some(&session), &format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call(Some(&session), "Emulation.setDeviceMetricsOverride", size);
        let scheme = format!("{scheme:?}").to_lowercase();
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call(Some(&session), "Emulation.setEmulatedMedia", media);
        self.events.clear();
        self.call(Some(&session), "Page.navigate", json!({ "url": address }));
        let (mut complaints, mut requests) = (Vec::new(), Vec::new());
        loop {
            let event = self.events.pop_front().unwrap_or_else(|| self.read());
            let told = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Log.entryAdded" => complaints.push(told["entry"]["text"].to_string()),
                "Runtime.exceptionThrown" => complaints.push(told["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => complaints.push(told["args"].to_string()),
                "Network.requestWillBeSent" => requests.push(told["request"]["url"].as_str().unwrap().to_owned()),
                "Page.loadEventFired" => break,
                _ => {}
            }
        }
        requests.retain(|address| !address.starts_with("data:"));
        Page { session, complaints, requests }
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .expect("the browser takes no message: is Chromium installed?");
        loop {
            let answer = self.read();
            if answer["id"] == json!(self.sent) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser ended: is Chromium installed? `make setup` installs it");
        serde_json::from_slice(&message).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.process.wait();
    }
}

impl Page {
    /// The value of a script's expression; of a promise, what it becomes.
    pub fn seen(&self, browser: &mut Browser, script: &str) -> Value {
        let asked = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let answer = browser.call(Some(&self.session), "Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// The whole page, not only what fits the window.
    pub fn shot(&self, browser: &mut Browser) -> Shot {
        let asked = json!({ "captureBeyondViewport": true });
        let answer = browser.call(Some(&self.session), "Page.captureScreenshot", asked);
        let file = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        Shot { width: info.width as usize, samples: info.color_type.samples(), pixels, file }
    }
}

impl Shot {
    fn at(&self, x: usize, y: usize) -> Option<&[u8]> {
        let begin = (y * self.width + x) * self.samples;
        self.pixels.get(begin..begin + 3)
    }

    /// From 0 to 1.
    pub fn luminance_at(&self, x: usize, y: usize) -> f64 {
        self.at(x, y).unwrap().iter().map(|part| f64::from(*part)).sum::<f64>() / 765.0
    }

    /// How many colours there are in a rectangle `[x, y, width, height]`, as far as the page shows it.
    pub fn colours_within(&self, rectangle: &Value) -> usize {
        let [x, y, wide, high] = [0, 1, 2, 3].map(|at| rectangle[at].as_f64().unwrap() as usize);
        let places = (y..y + high).flat_map(|y| (x..(x + wide).min(self.width)).map(move |x| (x, y)));
        places.filter_map(|(x, y)| self.at(x, y)).collect::<std::collections::BTreeSet<_>>().len()
    }
}
