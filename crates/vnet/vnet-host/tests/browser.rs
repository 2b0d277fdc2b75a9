//! Tests the web page of an agent in a headless browser, used as a person would.

use carina_vnet::impairment::LinkImpairment;
use carina_vnet::report::VnetState;
use carina_wire::pcapng::{Item, Reader};

use crate::driver::Browser;
use crate::page::Page;
use crate::waiting::{is_root, wait_until_settled};

#[test]
fn networks_are_used_in_a_browser_by_clicks_and_keys() {
    if !is_root() {
        return;
    }
    let page = Page::serve();
    let Some(mut browser) = Browser::open(&page.url) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    browser.until("document.querySelector('#empty').hidden === false");
    make(&mut browser, &page);
    impair(&mut browser, &page);
    capture(&mut browser, &page);
    look_back(&mut browser, &page);
    look_below(&mut browser);
    // The tests of its document.
    browser.click("#test");
    browser.until("document.querySelector('#notices').innerText.includes('ping a b')");
    browser.until("document.querySelector('.notice.good') !== null");
    change_and_remove(&mut browser, &page);
    assert_eq!(browser.complaints(), serde_json::json!([]));
    // The token is in no URL that the page requests.
    let (_, token) = page.url.split_once('#').unwrap();
    let fetched = browser.fetched();
    assert!(fetched.contains("/v1/page") && !fetched.contains(token));
}

const DOCUMENT: &str = "[vnet]\nname = \"seen\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n\
    [node.b]\n[[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n\
    [[test]]\nping = [\"a\", \"b\"]\n";

/// Pastes a document, looks at the plan, and makes the network.
fn make(browser: &mut Browser, page: &Page) {
    browser.click("#first");
    browser.click("#text");
    browser.types("[vnet]\nname = 7\n");
    browser.click("#look");
    browser.until("document.querySelector('#plan .is-down').innerText.includes('line 2')");
    browser.does("document.querySelector('#text').value = ''");
    browser.click("#text");
    browser.types(DOCUMENT);
    browser.click("#look");
    browser.until("document.querySelectorAll('#plan [data-action=add]').length === 3");
    browser.click("#do-it");
    browser.until("document.querySelector('#state').textContent === 'ready'");
    browser.until("document.querySelectorAll('#map [data-node]').length === 2");
    assert_eq!(page.agent.report("seen").unwrap().state, VnetState::Ready);
}

fn impair(browser: &mut Browser, page: &Page) {
    let impairment = || page.agent.report("seen").unwrap().links[0].impairment;
    browser.click("[data-link='0'] .touch");
    browser.until("document.querySelector('#facts h2').innerText.includes('Link a:eth0')");
    browser.click("#impair [name=delay]");
    browser.types("250ms");
    browser.click("#impair .main");
    browser.until("document.querySelector('[data-link=\"0\"]').matches('.impaired')");
    let impaired = impairment();
    for side in [impaired.there, impaired.back] {
        assert!(
            side.is_some_and(|side| side.delay.is_some()),
            "{impaired:?}"
        );
    }
    browser.click("#clear");
    browser.until("!document.querySelector('[data-link=\"0\"]').matches('.impaired')");
    assert_eq!(impairment(), LinkImpairment::default());
    // The page shows a refusal.
    browser.click("#impair [name=loss]");
    browser.types("a lot");
    browser.click("#impair .main");
    browser.until("document.querySelector('#notices').innerText.includes('a lot')");
}

/// Captures echo requests, and uses a console.
fn capture(browser: &mut Browser, page: &Page) {
    browser.click("#capture-start");
    browser.until("!document.querySelector('#capture-stop').hidden");
    // Probes and tests send echo requests over the link.
    page.agent.test("seen").unwrap();
    browser.until("document.querySelector('#packets').innerText.includes('echo request')");
    browser.until("document.querySelector('#packets').innerText.includes('echo reply')");
    browser.saves("agent-link");
    browser.click("#capture-stop");
    browser.until("document.querySelector('#capture-stop').hidden");
    // The saved file is that of the capture.
    browser.does("URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; }");
    browser.click("#capture-save");
    browser.until("window.saved !== undefined && saved.size > 0");
    browser
        .does("saved.arrayBuffer().then((bytes) => { window.bytes = [...new Uint8Array(bytes)] })");
    browser.until("window.bytes !== undefined");
    let bytes: Vec<u8> = serde_json::from_value(browser.value("bytes")).unwrap();
    let mut reader = Reader::new();
    reader.feed(&bytes);
    let (mut packets, mut names) = (0, Vec::new());
    while let Some(item) = reader.poll().unwrap() {
        match item {
            Item::Packet(_) => packets += 1,
            Item::Interface(it) => names.push(it.name.clone()),
            Item::Section => {}
        }
    }
    assert!(packets >= 4, "{packets}");
    names.sort();
    assert_eq!(names, ["a:eth0 -> b:eth0", "b:eth0 -> a:eth0"]);
    // Keys go to the console of the node.
    browser.click("[data-node='b'] .shape");
    browser.click("#console");
    browser.types_line("echo $((40+2)):$CARINA_NODE");
    browser.until("document.querySelector('#console').textContent.includes('42:b')");
    browser.presses("Escape");
    browser.presses("Escape");
    browser.until("document.querySelector('#all-links') !== null");
}

/// The time before the page was opened can be looked at, too.
fn look_back(browser: &mut Browser, page: &Page) {
    browser.command("Page.reload", serde_json::json!({}));
    browser.until("document.querySelector('#state').textContent === 'ready'");
    browser.until("Number(document.querySelector('#time').max) > 2000");
    browser.does(
        "(() => { const time = document.querySelector('#time'); time.value = time.min; \
         time.dispatchEvent(new Event('input')); })()",
    );
    browser.until("document.querySelector('#shown').textContent.endsWith('ago')");
    browser.until("document.querySelector('#state').textContent === 'changing'");
    browser.click("#now");
    browser.until("document.querySelector('#shown').textContent === 'now'");
    browser.until("document.querySelector('#state').textContent === 'ready'");
    // A click on an event shows its time.
    browser.click("#events li:last-child button");
    browser.until("document.body.matches('.past')");
    browser.click("#now");
    browser.until("!document.body.matches('.past')");
    assert_eq!(page.agent.report("seen").unwrap().state, VnetState::Ready);
}

/// Shows the substrate below the network.
fn look_below(browser: &mut Browser) {
    browser.click("[data-layer=all]");
    browser.until("document.querySelectorAll('#map .place').length >= 2");
    let uid = "[...document.querySelectorAll('#map .place title')].some((it) => \
        /in cv-[0-9a-f]+-a$/.test(it.textContent))";
    browser.until(uid);
    browser.until("document.querySelector('#substrate').innerText.includes('no node answers')");
    browser.click("[data-layer=network]");
    browser.until(
        "document.querySelectorAll('#map .place').length === 0 \
        || document.querySelector('#substrate').hidden",
    );
}

/// Changes the network with its own document, and removes it.
fn change_and_remove(browser: &mut Browser, page: &Page) {
    browser.click("#open-document");
    browser.until("document.querySelector('#text').value.includes('1Mbps')");
    browser.does(
        "(() => { const text = document.querySelector('#text'); \
         text.value = text.value.replace('1Mbps', '2Mbps'); })()",
    );
    browser.click("#look");
    browser.until("document.querySelector('#plan').innerText.includes('1Mbps -> 2Mbps')");
    browser.click("#do-it");
    browser.until("document.querySelector('#map .link title').textContent.includes('2Mbps')");
    wait_until_settled(&page.agent, "seen");
    browser.click("#open-document");
    browser.click("#remove");
    browser.click("#remove");
    browser.until("document.querySelector('#state').textContent === 'there is no network'");
    browser.until("document.querySelectorAll('#map [data-node]').length === 0");
    assert!(page.agent.list().is_empty());
}
