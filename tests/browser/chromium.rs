//! A tab of headless Chromium, controlled through the DevTools protocol.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use forebay_tests::wait_for;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tungstenite::{Message, WebSocket, client};

/// A tab, and its browser, which ends with it.
pub struct Tab {
    browser: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    calls: u64,
    /// The page's console messages, exceptions and blocked requests.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Tab {
    /// Opens a page, `width` CSS pixels wide.
    #[track_caller]
    pub fn open(url: &str, width: u32) -> Tab {
        let profile = tempfile::tempdir().expect("a folder");
        let mut browser = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--hide-scrollbars", "--remote-debugging-port=0", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium (scripts/install-tools installs it)");
        let mut lines = BufReader::new(browser.stderr.take().expect("a pipe")).lines();
        let found = lines
            .find_map(|line| line.expect("text").strip_prefix("DevTools listening on ").map(str::to_owned));
        // Chromium continues to write to standard error, so the rest is read and discarded.
        std::thread::spawn(move || lines.for_each(drop));
        let endpoint = found.expect("chromium says where it listens");
        let authority = endpoint["ws://".len()..].split('/').next().expect("an authority").to_owned();
        let stream = TcpStream::connect(authority).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        let (socket, _) = client(&endpoint, stream).expect("it speaks WebSocket");
        let (session, complaints) = (String::new(), Vec::new());
        let mut tab = Tab { browser, socket, session, calls: 0, complaints, _profile: profile };
        let target = tab.call("Target.createTarget", json!({ "url": "about:blank" }));
        let to = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = tab.call("Target.attachToTarget", to);
        tab.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.resize(width, 900);
        tab.call("Page.navigate", json!({ "url": url }));
        tab
    }

    /// Calls a method of the protocol.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": params });
        if !self.session.is_empty() {
            call["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(call.to_string())).expect("the browser is there");
        loop {
            let message = self.socket.read().expect("the browser answers");
            let Ok(text) = message.to_text() else { continue };
            let told: Value = serde_json::from_str(text).unwrap_or_default();
            if told["id"] == self.calls {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
            let complains = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
            if told["method"].as_str().is_some_and(|method| complains.contains(&method)) {
                self.complaints.push(told["params"].to_string());
            }
        }
    }

    /// The value of an expression, which may be a promise.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_until(&mut self, expression: &str) {
        wait_for(expression, || (self.eval(expression) == true).then_some(()));
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "ArrowLeft" => (37, ""),
            _ => panic!("{key} has no code here"),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let params = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Presses Tab until the element of this id has the focus.
    #[track_caller]
    pub fn tab_to(&mut self, id: &str) {
        for _ in 0..60 {
            if self.eval("document.activeElement.id") == id {
                return;
            }
            self.press("Tab");
        }
        panic!("{id} is not reached by the keyboard");
    }

    /// Resizes the page, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the preferred colour scheme: `dark` or `light`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// A picture of the whole page, PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let result = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        BASE64_STANDARD.decode(result["data"].as_str().expect("a picture")).expect("base64")
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
