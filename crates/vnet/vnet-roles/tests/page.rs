//! Tests the web page of a VNO, which shows an operator's networks and nothing of the substrate.

use std::time::Instant;

use carina_vnet::document::{Document, Form};
use carina_vnet::grant::{Grant, Verb};
use carina_vnet::report::Exec;
use carina_vnet_roles::identity::Role;
use carina_vnet_roles::operator::Client;
use carina_vnet_roles::roles::Roles;

use crate::driver::Browser;
use crate::played::{LIMIT, Providers, document, wait_until, wait_until_gone};

#[test]
fn page_of_an_operator_shows_networks_and_no_substrate() {
    let providers = Providers::new();
    let roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let Some(mut browser) = Browser::open(page_of(&roles, "acme")) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    browser.until("document.querySelector('#whose').textContent === 'acme'");
    let operator = providers.operator();
    // The network is made on the page.
    let text = document("ring").write(carina_vnet::document::Form::Toml);
    browser.click("#first");
    browser.click("#text");
    browser.types(&text);
    browser.click("#look");
    browser.until("document.querySelectorAll('#plan [data-action=add]').length === 3");
    browser.click("#do-it");
    wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    browser.until("document.querySelector('#state').textContent === 'ready'");
    browser.until("document.querySelectorAll('#map .node.up').length === 2");
    browser.until("document.querySelector('#facts').innerText.includes('all consoles answer')");
    browser.until("document.querySelector('#events').innerText.includes('it is ready')");
    delegates_are_shown_and_revoked(&mut browser, &operator);
    browser.click("[data-node='a'] .shape");
    browser.until("document.querySelector('#facts').innerText.includes('location')");
    // A network that does not fit shows the reason.
    let large = text
        .replace("\"ring\"", "\"large\"")
        .replace("[node.a]", "[node.a]\ncpus = 99");
    let large = large.replace("queue 2m", "reject");
    browser.click("#open-document");
    browser.until("document.querySelector('#text').value.includes('ring')");
    browser.does("document.querySelector('#text').value = ''");
    browser.click("#text");
    browser.types(&large);
    browser.click("#look");
    browser.until("!document.querySelector('#do-it').disabled");
    browser.click("#do-it");
    browser.until("document.querySelector('#state').textContent === 'refused'");
    browser.until("document.querySelector('#facts').innerText.includes('processors')");
    // The page does not show what it cannot request.
    let hidden = browser.value("document.querySelector('#layers').hidden");
    assert_eq!(hidden, true);
    browser.until("document.querySelectorAll('#network option').length === 2");
    for name in ["large", "ring"] {
        operator.remove(name).unwrap();
        wait_until_gone(&operator, name);
    }
    browser.until("document.querySelector('#state').textContent === 'there is no network'");
    let fetched = browser.fetched();
    assert!(fetched.contains("LinksUp"), "{fetched}");
    let shown = browser
        .value("document.documentElement.outerHTML")
        .to_string();
    has_no_substrate(&[fetched, shown]);
    assert_eq!(browser.complaints(), serde_json::json!([]));
}

/// Grants are shown with their expiry, and disappear when they are withdrawn.
fn delegates_are_shown_and_revoked(browser: &mut Browser, operator: &Client) {
    let hidden = browser.value("document.querySelector('#grants').hidden");
    assert_eq!(hidden, true, "a table without a grant is shown");
    let grant = |may: &[Verb], nodes: &[&str], until: Option<u64>| Grant {
        may: may.iter().copied().collect(),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
        until,
    };
    let some = grant(&[Verb::Exec, Verb::Watch], &["a"], None);
    operator.grant("ring", "bob", Some(&some)).unwrap();
    // 1 January 2100.
    let long = grant(&[Verb::See], &[], Some(4_102_444_800));
    operator.grant("ring", "eve", Some(&long)).unwrap();
    browser.until("document.querySelectorAll('#granted tr').length === 2");
    let row =
        |name: &str| format!("document.querySelector('#granted [data-key={name}]').innerText");
    let bob = row("bob");
    browser.until(&format!("{bob}.includes('exec, watch at a')"));
    browser.until(&format!(
        "{bob}.includes('as long as the network is there')"
    ));
    let eve = row("eve");
    browser.until(&format!(
        "{eve}.includes('see') && /until.*(2100|2099)/.test({eve})"
    ));
    browser.saves("operator-grants");
    // The grants are hidden while a node is selected.
    browser.click("[data-node='b'] .shape");
    browser.until("document.querySelector('#grants').hidden");
    browser.presses("Escape");
    browser.until("!document.querySelector('#grants').hidden");
    browser.click("#granted [data-key=bob] button");
    browser.until("document.querySelectorAll('#granted tr').length === 1");
    let left = operator.grants("ring").unwrap();
    assert_eq!(left.keys().collect::<Vec<_>>(), ["eve"]);
    browser.until(
        "document.querySelector('#events').innerText.includes('takes back what delegate bob may')",
    );
}

/// The URL of a role's page.
fn page_of<'a>(roles: &'a Roles, name: &str) -> &'a str {
    let mut pages = roles.pages().iter();
    &pages.find(|(party, _)| party.name == name).unwrap().1
}

fn has_no_substrate(texts: &[String]) {
    for text in texts {
        for name in ["secret", "172.31", "border", "\"uk.db\"", "de.db", "cv-"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
}

/// Nodes and links on a host that has made them: rates, impairments, captures, a console and
/// history, all without the name of that host.
#[test]
fn page_of_an_operator_looks_into_nodes_and_links() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: network namespaces are made by root");
        return;
    }
    let providers = Providers::new();
    let roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let (host, _service) = providers.real_agent();
    let Some(mut browser) = Browser::open(page_of(&roles, "acme")) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    let operator = providers.operator();
    let text = "[vnet]\nname = \"seen\"\non_insufficient = \"queue 2m\"\n\
        [defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n[node.c]\n\
        [[link]]\nends = [\"a\", \"b\"]\nrate = \"10Mbps\"\ndelay_max = \"1s\"\n\
        [[link]]\nends = [\"b\", \"c\"]\nrate = \"10Mbps\"\n\
        [[test]]\nping = [\"a\", \"c\"]\n";
    operator
        .create(&Document::read(text, Form::Toml).unwrap())
        .unwrap();
    wait_until(&operator, "seen", |seen| seen.standing.is_ready());
    browser.until("document.querySelector('#state').textContent === 'ready'");
    browser.until("document.querySelectorAll('#map .node.up').length === 3");
    browser.until("document.querySelectorAll('#map .link.up').length === 2");
    look_at_a_link(&mut browser, &operator);
    look_into_a_node(&mut browser);
    let events = "document.querySelector('#events').innerText";
    for what in [
        "impairs what it sends",
        "captures at eth0",
        "watches the console",
    ] {
        browser.until(&format!("{events}.includes('{what}')"));
    }
    assert_eq!(host.agent.list().len(), 1);
    let fetched = browser.fetched();
    let shown = browser.value("document.documentElement.outerHTML");
    has_no_substrate(&[fetched, shown.to_string()]);
    assert_eq!(browser.complaints(), serde_json::json!([]));
    operator.remove("seen").unwrap();
    wait_until_gone(&operator, "seen");
}

/// Impairs and captures a link, and shows its rates.
fn look_at_a_link(browser: &mut Browser, operator: &Client) {
    // The requirements of the link are shown, too.
    browser.click("[data-link='0'] .touch");
    browser.until("document.querySelector('#facts').innerText.includes('1s')");
    browser.click("#impair [name=delay]");
    browser.types("5ms");
    browser.click("#impair .main");
    browser.until("document.querySelector('#facts').innerText.includes('delay=5ms')");
    browser.until("document.querySelectorAll('#map .link.impaired').length === 1");
    // Captured packets are described while they pass, and rates are shown.
    browser.click("#capture-start");
    browser.until("!document.querySelector('#capture-stop').hidden");
    browser.click("#test");
    browser.until("document.querySelector('#packets').innerText.includes('echo request')");
    browser.until("document.querySelector('#packets').innerText.includes('a:eth0 -> b:eth0')");
    browser.until("/a c: [0-9.]+ ms/.test(document.querySelector('#notices').innerText)");
    let ping = Exec {
        node: "a".to_owned(),
        command: "ping -i 0.2 -c 500 -s 1000 10.0.0.2 > /dev/null 2>&1 &".to_owned(),
        limit_ms: 10_000,
    };
    operator.exec("seen", &ping).unwrap();
    browser.until("/From a\\s+[1-9][0-9.]+ kbit/.test(document.querySelector('#facts').innerText)");
    browser.click("#capture-stop");
    browser.until("document.querySelector('#capture-stop').hidden");
    browser.saves("operator-link");
    browser.click("#clear");
    browser.until("document.querySelectorAll('#map .link.impaired').length === 0");
}

/// The path to another node, a console, and an earlier state.
fn look_into_a_node(browser: &mut Browser) {
    // The path to a node, hop by hop.
    browser.click("[data-node='a'] .shape");
    browser.until("document.querySelector('#trace-to') !== null");
    browser.does("document.querySelector('#trace-to').value = 'c'");
    let trace = "document.querySelector('#way').innerText";
    let begin = Instant::now();
    // On a busy machine a reply may come too late.
    while browser.value(&format!("{trace}.includes('3 of 3')")) != true {
        assert!(begin.elapsed() < LIMIT, "{}", browser.value(trace));
        browser.does("document.querySelector('#way').replaceChildren()");
        browser.click("#trace-start");
        browser.until(&format!("{trace}.includes('of 3')"));
    }
    // The console opens on request, and keys go to it.
    browser.click("#open-console");
    browser.until("document.querySelector('#console') !== null");
    browser.click("#console");
    browser.types_line("echo $((40+2)):$CARINA_NODE");
    browser.until("document.querySelector('#console').textContent.includes('42:a')");
    browser.saves("operator-console");
    browser.presses("Escape");
    // An earlier state is shown.
    browser.until("Number(document.querySelector('#time').max) > 2000");
    browser.does(
        "(() => { const time = document.querySelector('#time'); time.value = time.min; \
         time.dispatchEvent(new Event('input')); })()",
    );
    browser.until("document.querySelector('#shown').textContent.endsWith('ago')");
    browser.click("#now");
    browser.until("document.querySelector('#shown').textContent === 'now'");
}

#[test]
fn page_of_a_provider_shows_hosts_and_what_is_on_them() {
    let providers = Providers::new();
    let roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let Some(mut browser) = Browser::open(page_of(&roles, "uk")) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    // No host has reported yet, so that none is present.
    browser.until("document.querySelector('#whose').textContent === 'uk'");
    browser.until("document.querySelector('#state').textContent === '1 of 1 hosts silent'");
    browser.until("document.querySelector('#details').innerText.includes('no network here')");
    browser.saves("provider-empty");
    let _agents = [0, 1].map(|number| providers.agent(number));
    browser.until("document.querySelector('#state').textContent === 'all hosts report'");
    browser.until("document.querySelector('#events').innerText.includes('host secret-a reports')");
    let operator = providers.operator();
    operator.create(&document("ring")).unwrap();
    wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    // The map has a square for the node on this host, and none for nodes of other providers.
    browser.until("document.querySelectorAll('#map .guest.up').length === 1");
    browser.until("document.querySelector('#map .label').textContent === '<1 %'");
    let line = "document.querySelector('#map .link title').textContent";
    browser.until(&format!(
        "{line}.endsWith('1.00 Mbit/s of 1.00 Gbit/s promised')"
    ));
    browser.until("document.querySelector('#sums').textContent.startsWith('1 of 8 CPUs')");
    // Names that others have chosen are shown as text, and not executed.
    browser.click("[data-host='secret-a'] .shape");
    let details = "document.querySelector('#details').innerText";
    browser.until(&format!(
        "{details}.includes('rack=<img src=x onerror=alert(1)>')"
    ));
    browser.until(&format!("{details}.includes('1 used, of 8')"));
    browser.saves("provider-host");
    browser.presses("Escape");
    browser.click("[data-goes^='part ']");
    browser.until(&format!(
        "{details}.includes('unless its VNP names it again')"
    ));
    browser.until(&format!(
        "{details}.includes('a:eth0 — border secret-border')"
    ));
    browser.saves("provider-network");
    operator.remove("ring").unwrap();
    wait_until_gone(&operator, "ring");
    for what in [
        "ring of net is committed",
        "node a is up",
        "ring of net has gone",
    ] {
        browser.until(&format!(
            "document.querySelector('#events').innerText.includes('{what}')"
        ));
    }
    browser.until("document.querySelectorAll('#map .guest').length === 0");
    // When its process ends, the page says so.
    drop(roles);
    browser.until("document.body.matches('.lost')");
    browser.until("document.querySelector('#notices').innerText.includes('There is no answer')");
    assert_eq!(browser.complaints(), serde_json::json!([]));
}
