//! Tests the map of the page in a headless browser, with networks of any size that the test makes
//! up, and with networks of an agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::routing::get;
use carina_vnet::report::VnetState;
use carina_vnet_web::{Kind, PageServer};
use serde_json::{Value, json};

use crate::driver::Browser;
use crate::page::Page;
use crate::waiting::{is_root, wait_until_settled};

/// Opens a page that shows one network; `None` without a browser. The network is what the page
/// gets from now on.
fn open(network: &Arc<Mutex<Value>>) -> Option<Browser> {
    let page = PageServer::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = page.url();
    let shown = Arc::clone(network);
    let report = async move || Json(shown.lock().unwrap().clone());
    let about = json!({ "role": "agent", "title": "h1", "can": ["rates"] });
    let api = Router::new()
        .route("/v1/page", get(async move || Json(about)))
        .route("/v1/vnets", get(async || Json(json!([{ "name": "net" }]))))
        .route("/v1/vnets/net", get(report))
        .route("/v1/vnets/net/events", get(no_events));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        // Ends with this process.
        runtime.block_on(page.of(Kind::Networks, api))
    });
    let browser = Browser::open(&url);
    if browser.is_none() {
        println!("SKIP: the page was not used: there is no chromium");
    }
    browser
}

async fn no_events() -> Json<Value> {
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    Json(json!([]))
}

/// A network of nodes and links that are up.
fn network(nodes: &[String], links: &[(String, String)]) -> Value {
    let mut ports = BTreeMap::<&str, usize>::new();
    let mut interfaces = BTreeMap::<&str, Vec<Value>>::new();
    let mut reports = Vec::new();
    for (number, (a, b)) in links.iter().enumerate() {
        let ends = [a, b].map(|node| {
            let port = ports.entry(node).or_default();
            let name = format!("eth{port}");
            *port += 1;
            let address = format!("10.0.{}.{}/30", number / 64, number % 64 * 4 + 1);
            let interface = json!({ "name": name, "address": address, "mac": "02:00:00:00:00:01",
                "mtu": 1480, "link": number });
            interfaces.entry(node).or_default().push(interface);
            format!("{node}:{name}")
        });
        let passed = json!({ "frames": 0, "bytes": 0, "dropped": 0 });
        reports.push(json!({ "number": number, "ends": ends, "carrier": "ipip",
            "rate": "10Mbps", "state": "up", "passed": [passed, passed] }));
    }
    let nodes = nodes.iter().map(|name| {
        let interfaces = interfaces.get(name.as_str());
        json!({ "name": name, "kind": "namespace", "state": "up", "is_console_ready": true,
            "interfaces": interfaces.cloned().unwrap_or_default() })
    });
    json!({ "name": "net", "vnet": "0", "generation": 1, "state": "ready", "phases": [],
        "nodes": nodes.collect::<Vec<_>>(), "links": reports })
}

/// A tree of `count` nodes with a few links more.
fn grown(count: usize) -> Value {
    let name = |number: usize| format!("n{number}");
    let nodes: Vec<String> = (0..count).map(name).collect();
    let parent = |node: usize| (node.wrapping_mul(2_654_435_761) >> 7) % node;
    let tree = (1..count).map(|node| (name(node), name(parent(node))));
    let more = (0..count / 5).map(|node| (name(node), name((node + 1) % count)));
    network(&nodes, &tree.chain(more).collect::<Vec<_>>())
}

/// What is wrong with the sizes of text and strokes of the map on the screen.
const TOO_SMALL: &str = "[...document.querySelectorAll('#map text')].filter((it) => \
    it.textContent !== '' && it.checkVisibility()).map((it) => [it.textContent, \
    parseFloat(getComputedStyle(it).fontSize) * it.getScreenCTM().a]) \
    .filter(([, size]) => !(size >= 10.99)).map((it) => it.join(' ')).concat( \
    [...document.querySelectorAll('#map .wire, #map .shape')].map(getComputedStyle) \
    .filter((it) => !(parseFloat(it.strokeWidth) >= 1) \
    || it.vectorEffect !== 'non-scaling-stroke').map((it) => it.strokeWidth))";

/// The positions of all nodes and clusters of the map.
const POSITIONS: &str = "Object.fromEntries([...document.querySelectorAll('#map .nodes > g')] \
    .map((it) => [it.dataset.key, it.getAttribute('transform').split(' scale')[0]]))";

#[test]
fn thousand_nodes_are_legible_clusters() {
    let shown = Arc::new(Mutex::new(grown(1000)));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map .cluster').length >= 10");
    let after = browser.value("Math.round(performance.now())");
    println!("1000 nodes: clusters on the map {after} ms after the page was opened");
    let count = browser.value("document.querySelectorAll('#map .nodes > g').length");
    assert!(count.as_u64().unwrap() <= 60, "{count}");
    let sum = "[...document.querySelectorAll('#map .nodes > g')].reduce((sum, it) => \
        sum + Number(/(\\d+) nodes/.exec(it.ariaLabel ?? '')?.[1] ?? 1), 0)";
    assert_eq!(browser.value(sum), 1000);
    assert_eq!(browser.value(TOO_SMALL), json!([]));
    browser.saves("map-1000");
    // A cluster opens and closes; what it shows is as legible.
    let before = browser.value(POSITIONS);
    browser.click("#map .cluster");
    browser.until("document.querySelectorAll('#map [data-node]').length > 3");
    assert_eq!(browser.value(TOO_SMALL), json!([]));
    browser.saves("map-1000-open");
    browser.does(
        "document.querySelector('#map .hull').dispatchEvent(new KeyboardEvent('keydown', \
         { key: 'Enter', bubbles: true }))",
    );
    browser.until("document.querySelectorAll('#map .hull').length === 0");
    assert_eq!(browser.value(POSITIONS), before);
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn star_of_a_thousand_falls_into_clusters() {
    let name = |number: usize| format!("n{number}");
    let nodes: Vec<String> = (0..1000).map(name).collect();
    let links: Vec<_> = (1..1000).map(|node| (name(node), name(0))).collect();
    let shown = Arc::new(Mutex::new(network(&nodes, &links)));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map .cluster').length >= 8");
    let sizes = "[...document.querySelectorAll('#map .nodes > g')].map((it) => \
        Number(/(\\d+) nodes/.exec(it.ariaLabel ?? '')?.[1] ?? 1))";
    let sizes: Vec<usize> = serde_json::from_value(browser.value(sizes)).unwrap();
    assert_eq!(sizes.iter().sum::<usize>(), 1000);
    assert!(
        sizes.len() <= 60 && sizes.iter().all(|size| *size <= 130),
        "{sizes:?}"
    );
    assert_eq!(browser.value(TOO_SMALL), json!([]));
}

#[test]
fn positions_stay_over_changes_and_reloads() {
    let shown = Arc::new(Mutex::new(grown(7)));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map [data-node]').length === 7");
    assert_eq!(browser.value(TOO_SMALL), json!([]));
    browser.saves("map-7");
    let before = browser.value(POSITIONS);
    *shown.lock().unwrap() = grown(9);
    browser.until("document.querySelectorAll('#map [data-node]').length === 9");
    let after = browser.value(POSITIONS);
    for (name, place) in before.as_object().unwrap() {
        assert_eq!(after[name], *place, "{name}");
    }
    browser.command("Page.reload", json!({}));
    browser.until("document.querySelectorAll('#map [data-node]').length === 9");
    assert_eq!(browser.value(POSITIONS), after);
    // The button computes other positions.
    browser.click("#arrange");
    browser.until(&format!(
        "JSON.stringify({POSITIONS}) !== JSON.stringify({after})"
    ));
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn coordinates_of_graphml_are_taken() {
    let shown = Arc::new(Mutex::new(grown(4)));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map [data-node]').length === 4");
    let places = [
        ("N 0", 50.0, 0.0),
        ("n1", 50.0, 10.0),
        ("n2", 40.0, 0.0),
        ("n3", 40.0, 10.0),
    ];
    let nodes: String = places
        .iter()
        .map(|(label, latitude, longitude)| {
            format!(
                "<node id=\"{label}!\"><data key=\"a\">{latitude}</data>\
                 <data key=\"o\">{longitude}</data><data key=\"l\">{label}</data></node>"
            )
        })
        .collect();
    let file = format!(
        "<graphml><key id=\"a\" attr.name=\"Latitude\"/><key id=\"o\" attr.name=\"Longitude\"/>\
         <key id=\"l\" attr.name=\"label\"/><graph>{nodes}</graph></graphml>"
    );
    let drops = format!(
        "(() => {{ const data = new DataTransfer(); \
         data.items.add(new File([{}], 'net.graphml')); document.querySelector('#map') \
         .dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true }})); }})()",
        json!(file)
    );
    browser.does(&drops);
    browser.until(&format!("{POSITIONS}.n0 === 'translate(0.0 0.0)'"));
    let at = browser.value(&format!(
        "Object.fromEntries(Object.entries({POSITIONS}).map(([name, it]) => \
         [name, it.match(/[-0-9.]+/g).map(Number)]))"
    ));
    let at: BTreeMap<String, [f64; 2]> = serde_json::from_value(at).unwrap();
    // North is up, east is right, and a degree of longitude is shorter than one of latitude.
    let ([east, north], [west, south]) = (at["n1"], at["n2"]);
    assert_eq!((north, west), (0.0, 0.0), "{at:?}");
    assert!(
        at["n3"] == [east, south] && east < south && east > 0.5 * south,
        "{at:?}"
    );
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn nodes_are_where_their_document_places_them() {
    let mut report = grown(4);
    for (number, position) in ["0 0", "20.5 0", "0 10", "20.5 10"].iter().enumerate() {
        report["nodes"][number]["position"] = json!(position);
    }
    let shown = Arc::new(Mutex::new(report));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map [data-node]').length === 4");
    let at = browser.value(&format!(
        "Object.fromEntries(Object.entries({POSITIONS}).map(([name, it]) => \
         [name, it.match(/[-0-9.]+/g).map(Number)]))"
    ));
    let at: BTreeMap<String, [f64; 2]> = serde_json::from_value(at).unwrap();
    let ([right, top], [left, low]) = (at["n1"], at["n2"]);
    assert_eq!((top, left, at["n0"]), (0.0, 0.0, [0.0; 2]), "{at:?}");
    assert_eq!(at["n3"], [right, low], "{at:?}");
    assert!((right / low - 2.05).abs() < 0.05, "{at:?}");
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn fat_tree_is_drawn_in_tiers() {
    let name = |tier: &str, number: usize| format!("{tier}{number}");
    let (mut nodes, mut links) = (Vec::new(), Vec::new());
    for (tier, count) in [("core", 4), ("agg", 8), ("edge", 8), ("host", 16)] {
        nodes.extend((0..count).map(|number| name(tier, number)));
    }
    for number in 0..8 {
        for other in 0..2 {
            let (pod, place) = (number / 2 * 2, number % 2 * 2);
            links.push((name("agg", number), name("core", place + other)));
            links.push((name("agg", number), name("edge", pod + other)));
            links.push((name("edge", number), name("host", number * 2 + other)));
        }
    }
    let shown = Arc::new(Mutex::new(network(&nodes, &links)));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map [data-node]').length === 36");
    let heights = "['core', 'agg', 'edge'].map((tier) => [...new Set([...document \
        .querySelectorAll(`#map [data-node^=${tier}]`)].map((it) => \
        Number(/ ([-0-9.]+)\\)/.exec(it.getAttribute('transform'))[1])))])";
    let heights = browser.value(heights);
    let rows: Vec<Vec<f64>> = serde_json::from_value(heights).unwrap();
    assert!(rows.iter().all(|row| row.len() == 1), "{rows:?}");
    assert!(
        rows[0][0] < rows[1][0] && rows[1][0] < rows[2][0],
        "{rows:?}"
    );
    assert_eq!(browser.value(TOO_SMALL), json!([]));
    browser.saves("map-fat-tree");
}

#[test]
fn pictures_need_no_style_sheet() {
    let shown = Arc::new(Mutex::new(grown(7)));
    let Some(mut browser) = open(&shown) else {
        return;
    };
    browser.until("document.querySelectorAll('#map [data-node]').length === 7");
    browser.does("URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; }");
    browser.click("#picture");
    browser.click("#save-svg");
    browser.until("window.saved?.type === 'image/svg+xml'");
    browser.does("saved.text().then((text) => { window.svgText = text; })");
    browser.until("window.svgText !== undefined");
    let parsed = "(() => { const it = new DOMParser().parseFromString(svgText, 'image/svg+xml'); \
        return [it.querySelectorAll('parsererror').length, it.documentElement.namespaceURI, \
        [...it.querySelectorAll('text')].filter((it) => /^n[0-6]$/.test(it.textContent)).length, \
        it.querySelectorAll('[class], [style]').length]; })()";
    assert_eq!(
        browser.value(parsed),
        json!([0, "http://www.w3.org/2000/svg", 7, 0])
    );
    browser.click("#save-png");
    browser.until("window.saved?.type === 'image/png' && saved.size > 1000");
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn drawn_network_is_planned_and_made() {
    if !is_root() {
        return;
    }
    let page = Page::serve();
    let Some(mut browser) = Browser::open(&page.url) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    browser.click("#draw-first");
    browser.until("document.querySelector('#canvas').clientWidth > 500");
    let corner = "(() => { const it = document.querySelector('#canvas').getBoundingClientRect(); \
        return [it.x, it.y]; })()";
    let corner: [f64; 2] = serde_json::from_value(browser.value(corner)).unwrap();
    let at = |x: f64, y: f64| [corner[0] + x, corner[1] + y];
    browser.drags(at(120.0, 120.0), at(120.0, 120.0));
    browser.drags(at(420.0, 180.0), at(420.0, 180.0));
    browser.until("document.querySelectorAll('#canvas .node').length === 2");
    browser.drags(at(120.0, 120.0), at(420.0, 180.0));
    browser.until("document.querySelectorAll('#canvas .link').length === 1");
    browser.does(
        "(() => { const name = document.querySelector('#drawing-name'); name.value = 'seen'; \
         name.dispatchEvent(new Event('input')); })()",
    );
    browser.click("#drawing-plan");
    browser.until("document.querySelectorAll('#plan [data-action=add]').length === 3");
    browser.click("#do-it");
    browser.until("document.querySelectorAll('#map [data-node]').length === 2");
    let report = wait_until_settled(&page.agent, "seen");
    assert_eq!(report.state, VnetState::Ready);
    assert_eq!(report.links[0].ends, ["r1:eth0", "r2:eth0"]);
    // The map begins with the positions of the drawing.
    let places = browser.value(POSITIONS);
    assert_eq!(places["r1"], "translate(120.0 120.0)", "{places}");
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn console_in_a_window_takes_the_keyboard() {
    if !is_root() {
        return;
    }
    let page = Page::serve();
    page.make_network();
    let (address, token) = page.url.split_once("/#").unwrap();
    let url = format!("{address}/console#{token}/seen/b");
    let Some(mut browser) = Browser::open(&url) else {
        println!("SKIP: the page was not used: there is no chromium");
        return;
    };
    // Nothing is clicked before.
    browser.until("document.activeElement?.id === 'console'");
    browser.types_line("echo $((40+2)):$CARINA_NODE");
    browser.until("document.querySelector('#console').textContent.includes('42:b')");
    browser.presses("Escape");
    browser.presses("Tab");
    browser.until("document.activeElement?.id === 'console'");
    let is_large = "document.querySelector('#console').clientHeight > innerHeight * 0.8";
    browser.until(is_large);
    assert_eq!(browser.complaints(), json!([]));
}
