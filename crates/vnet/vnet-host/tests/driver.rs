//! Drives a headless browser as a person would, by clicks at positions and by keys.
//!
//! Commands go over the browser's pipe, each as JSON followed by a zero byte. (Chrome DevTools
//! Protocol, domains Target, Page, Runtime and Input; `--remote-debugging-pipe`)

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

/// A browser with one page. Dropping it ends all its processes.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    /// ID of the page's session.
    session: Option<String>,
    last: u64,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Opens a page; `None` if no browser is installed.
    pub(crate) fn open(url: &str) -> Option<Browser> {
        let programs = ["chromium-headless-shell", "chromium"];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_installed = |program: &&str| {
            let mut directories = std::env::split_paths(&path);
            directories.any(|directory| directory.join(program).is_file())
        };
        let program = programs.into_iter().find(is_installed)?;
        let mut browser = Browser::start(program);
        let blank = json!({ "url": "about:blank" });
        let target = browser.command("Target.createTarget", blank);
        let target = &target["targetId"];
        let words = json!({ "targetId": target, "flatten": true });
        let attached = browser.command("Target.attachToTarget", words);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.command("Page.enable", json!({}));
        let hook = json!({ "source": HOOK });
        browser.command("Page.addScriptToEvaluateOnNewDocument", hook);
        browser.command("Page.navigate", json!({ "url": url }));
        Some(browser)
    }

    fn start(program: &str) -> Browser {
        let home = tempfile::tempdir().unwrap();
        // The browser reads commands from descriptor 3, and writes answers to descriptor 4.
        let script = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", program, "--remote-debugging-pipe"])
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--window-size=1280,800"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let (answer, answers) = channel();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            loop {
                let mut text = Vec::new();
                if stdout.read_until(0, &mut text).unwrap_or_default() == 0 {
                    return;
                }
                text.pop();
                let message: Value = serde_json::from_slice(&text).unwrap();
                // Events have no number.
                if message["id"].is_u64() && answer.send(message).is_err() {
                    return;
                }
            }
        });
        Browser {
            commands: child.stdin.take().unwrap(),
            child,
            answers,
            session: None,
            last: 0,
            _home: home,
        }
    }

    pub(crate) fn command(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut text = serde_json::to_vec(&message).unwrap();
        text.push(0);
        self.commands.write_all(&text).unwrap();
        let answer = self.answers.recv_timeout(LIMIT).expect(method);
        assert_eq!(answer["id"], self.last, "{answer}");
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The value of a JavaScript expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let answer = self.command("Runtime.evaluate", params);
        answer["result"]["value"].clone()
    }

    pub(crate) fn does(&mut self, statements: &str) {
        self.value(statements);
    }

    /// Waits until an expression is true. An expression that fails counts as not true.
    pub(crate) fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.value(expression) != true {
            if Instant::now() > deadline {
                let page = self.value("document.body.innerText");
                panic!("{expression}: {page}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks into the middle of an element, once it is visible, enabled and does not move.
    pub(crate) fn click(&mut self, selector: &str) {
        let name = json!(selector);
        let middle = format!(
            "(() => {{ const it = document.querySelector({name}); \
             if (it === null || it.disabled) return null; \
             it.scrollIntoView({{ block: 'center' }}); \
             const box = it.getBoundingClientRect(); \
             if (box.width + box.height === 0) return null; \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let deadline = Instant::now() + LIMIT;
        let mut place = Value::Null;
        loop {
            let found = self.value(&middle);
            if !found.is_null() && found == place {
                break;
            }
            assert!(Instant::now() < deadline, "{selector} cannot be clicked");
            place = found;
            std::thread::sleep(Duration::from_millis(20));
        }
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.command("Input.dispatchMouseEvent", params);
        }
    }

    /// Presses the mouse at a position, moves it to another one, and releases it.
    pub(crate) fn drags(&mut self, from: [f64; 2], to: [f64; 2]) {
        let middle = [0, 1].map(|side| f64::midpoint(from[side], to[side]));
        for (kind, [x, y]) in [
            ("mousePressed", from),
            ("mouseMoved", middle),
            ("mouseMoved", to),
            ("mouseReleased", to),
        ] {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": 1,
                "clickCount": 1 });
            self.command("Input.dispatchMouseEvent", params);
        }
    }

    /// Types text into the focused element.
    pub(crate) fn types(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key other than a letter.
    pub(crate) fn presses(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let code = match key {
                "Enter" => 13,
                "Escape" => 27,
                "Tab" => 9,
                _ => 0,
            };
            let mut params = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            if kind == "keyDown" && key == "Enter" {
                params["text"] = json!("\r");
            }
            self.command("Input.dispatchKeyEvent", params);
        }
    }

    /// Types a text key by key, followed by Enter.
    pub(crate) fn types_line(&mut self, text: &str) {
        for letter in text.chars() {
            let letter = letter.to_string();
            let params = json!({ "type": "keyDown", "key": letter, "text": letter });
            self.command("Input.dispatchKeyEvent", params);
            self.command(
                "Input.dispatchKeyEvent",
                json!({ "type": "keyUp", "key": letter }),
            );
        }
        self.presses("Enter");
    }

    /// Saves a screenshot of the page to the directory that `CARINA_PICTURES` names, if it is set.
    pub(crate) fn saves(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("CARINA_PICTURES") else {
            return;
        };
        let picture = self.command("Page.captureScreenshot", json!({ "format": "png" }));
        let data = picture["data"].as_str().unwrap();
        let path = std::path::Path::new(&directory).join(format!("{name}.png.base64"));
        std::fs::write(path, data).unwrap();
    }

    /// The URLs that the page has fetched, including its own files.
    pub(crate) fn fetched(&mut self) -> String {
        self.value("fetched.join('\\n')")
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Errors of the page, and violations of its content security policy.
    pub(crate) fn complaints(&mut self) -> Value {
        self.value("complaints")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Kills the browser together with its child processes.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Records what the page fetches, and its errors.
const HOOK: &str = "window.fetched = []; window.complaints = []; \
    addEventListener('error', (event) => complaints.push(String(event.message))); \
    addEventListener('unhandledrejection', (event) => complaints.push(String(event.reason))); \
    addEventListener('securitypolicyviolation', (event) => \
    complaints.push(event.violatedDirective)); \
    const fetches = window.fetch; window.fetch = async (...what) => { \
    const answer = await fetches(...what); \
    answer.clone().text().then((text) => fetched.push(what[0] + ' ' + text)); \
    return answer; };";

/// Longest time for anything on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);
