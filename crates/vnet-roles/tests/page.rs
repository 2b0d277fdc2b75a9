//! The page of a VNO: what its operator sees of networks, and nothing of what carries them.

use carina_vnet_roles::identity::Role;

use crate::driver::Browser;
use crate::played::{Providers, document, wait_until, wait_until_gone};

#[test]
fn page_of_an_operator_shows_networks_and_no_substrate() {
    let providers = Providers::new();
    let roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let [(party, url)] = roles.pages() else {
        panic!("the VNO has a page: {:?}", roles.pages());
    };
    assert_eq!(party.name, "acme");
    let Some(mut browser) = Browser::open(url) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    browser.until("document.querySelector('#whose').textContent === 'acme'");
    let operator = providers.operator();
    // It is made on the page.
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
    browser.click("[data-node='a'] .shape");
    browser.until("document.querySelector('#facts').innerText.includes('location')");
    // A network that does not fit shows why.
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
    // What it cannot ask for it does not show.
    for hidden in ["#layers", "#test", "footer"] {
        let expression = format!("document.querySelector('{hidden}').hidden");
        assert_eq!(browser.value(&expression), true, "{hidden}");
    }
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
    for text in [fetched, shown] {
        for name in ["secret", "172.31", "border", "\"uk.db\"", "de.db"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
    assert_eq!(browser.complaints(), serde_json::json!([]));
}
