//! A browser that is driven as a person would: by clicks at places and by keys.
//!
//! Commands go over the browser's pipe, as JSON with a zero byte behind each. (Chrome DevTools
//! Protocol, domains Target, Runtime and Input; `--remote-debugging-pipe`)

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use carina_vnet_host::impairment::LinkImpairment;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::page::Page;
use crate::waiting::{LIMIT, is_root};

#[test]
fn links_are_impaired_and_consoles_used_in_a_browser() {
    if !is_root() {
        return;
    }
    let page = Page::serve();
    page.make_network();
    let Some(mut browser) = Browser::open(&page.url) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    browser.until("find('state').textContent === 'ready'");
    browser.until("document.querySelectorAll('[data-node]').length === 2");
    browser.click("[data-link='0'] .touch");
    browser.until("document.querySelector('#facts h2').textContent.startsWith('Link a:eth0')");
    browser.click("#impair [name=delay]");
    browser.types("250ms");
    browser.click("#impair button");
    browser.until("document.querySelector('[data-link=\"0\"]').matches('.impaired')");
    let impaired = impairment(&page);
    for side in [impaired.there, impaired.back] {
        assert!(
            side.is_some_and(|side| side.delay.is_some()),
            "{impaired:?}"
        );
    }
    browser.click("#clear");
    browser.until("!document.querySelector('[data-link=\"0\"]').matches('.impaired')");
    assert_eq!(impairment(&page), LinkImpairment::default());
    // What is refused is shown.
    browser.click("#impair [name=loss]");
    browser.types("a lot");
    browser.click("#impair button");
    browser.until("find('wrong').textContent.includes('a lot')");
    browser.click("[data-node='b'] rect");
    browser.click("#line");
    browser.types("echo $((40+2)):$CARINA_NODE");
    browser.presses_enter();
    browser.until("find('console').textContent.includes('42:b')");
    // What was there some seconds ago, and now again.
    browser.until("history.length > 3");
    browser.does("find('time').value = 0; find('time').dispatchEvent(new Event('input'))");
    browser.until("find('shown').textContent !== 'now'");
    browser.does("find('time').value = find('time').max");
    browser.does("find('time').dispatchEvent(new Event('input'))");
    browser.until("find('shown').textContent === 'now'");
    // A network that goes, goes from the page.
    page.agent.remove("seen").unwrap();
    browser.until("find('state').textContent === 'there is no network'");
    browser.until("document.querySelectorAll('[data-node]').length === 0");
}

fn impairment(page: &Page) -> LinkImpairment {
    page.agent.report("seen").unwrap().links[0].impairment
}

/// A browser with one page. It ends with this value, with all its processes.
struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    /// The page's.
    session: Option<String>,
    last: u64,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Opens a page; nothing where there is no browser.
    fn open(url: &str) -> Option<Browser> {
        let programs = ["chromium-headless-shell", "chromium"];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |program: &&str| {
            let mut directories = std::env::split_paths(&path);
            directories.any(|directory| directory.join(program).is_file())
        };
        let program = programs.into_iter().find(is_there)?;
        let mut browser = Browser::start(program);
        let target = browser.command("Target.createTarget", json!({ "url": url }));
        let target = &target["targetId"];
        let words = json!({ "targetId": target, "flatten": true });
        let attached = browser.command("Target.attachToTarget", words);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        Some(browser)
    }

    fn start(program: &str) -> Browser {
        let home = tempfile::tempdir().unwrap();
        // The browser reads commands from descriptor 3, and writes answers to 4.
        let script = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", program, "--remote-debugging-pipe"])
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--window-size=1280,1000"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let (answer, answers) = channel();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            loop {
                let mut text = Vec::new();
                if said.read_until(0, &mut text).unwrap_or_default() == 0 {
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

    fn command(&mut self, method: &str, params: Value) -> Value {
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

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let answer = self.command("Runtime.evaluate", params);
        answer["result"]["value"].clone()
    }

    fn does(&mut self, statements: &str) {
        self.value(statements);
    }

    /// Waits until an expression is true. One that fails is not true yet.
    fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.value(expression) != true {
            if Instant::now() > deadline {
                let page = self.value("document.body.innerText");
                panic!("{expression}: {page}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks into the middle of an element.
    fn click(&mut self, selector: &str) {
        let selector = json!(selector);
        self.until(&format!("document.querySelector({selector}) !== null"));
        let place = self.value(&format!(
            "(() => {{ const it = document.querySelector({selector}); \
             it.scrollIntoView({{ block: 'center' }}); \
             const box = it.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.command("Input.dispatchMouseEvent", params);
        }
    }

    /// Types into what has the focus.
    fn types(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text }));
    }

    fn presses_enter(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({
                "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13,
            });
            if kind == "keyDown" {
                params["text"] = json!("\r");
            }
            self.command("Input.dispatchKeyEvent", params);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // With the processes that it has started.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
