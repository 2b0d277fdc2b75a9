// The page of networks: its state, and how it follows changes.

import { ask, of, wait } from "./ask.js";
import { begin, nextTheme } from "./begin.js";
import { Details } from "./details.js";
import { DocumentDialog, test } from "./document.js";
import { Drawing } from "./drawing.js";
import { act, find, html, keyed, notice, quiet, say, set } from "./elements.js";
import { Grants } from "./grants.js";
import * as layers from "./layers.js";
import { NetworkMap } from "./map.js";
import { ofOperator, rates } from "./network.js";
import { savePng, saveSvg } from "./picture.js";
import { Timeline } from "./time.js";

const LOOK = 1000, LIST = 3000, EVENTS_MAX = 1000, EVENTS_SHOWN = 60;

/** The state of the page. */
const view = {
  can: new Set(), role: null, names: [], name: null, chosen: null, events: [],
  // The current network with its rates, and the same of an earlier moment while that is shown.
  live: null, liveRates: new Map(), moment: null, momentRates: new Map(),
  isLayered: false, substrate: null,
  get isPast() { return timeline.isPast; },
  get isOperator() { return this.role === "vno"; },
};
window.view = view;

const map = new NetworkMap(choose);
const details = new Details(view, choose, refresh);
const timeline = new Timeline((moment) => {
  view.moment = moment && moment.report;
  view.momentRates = moment ? new Map(moment.report.links.map((link, number) =>
    [link.number, moment.rates[number]])) : new Map();
  draw();
}, (error) => notice(error.message, "time"));
const grants = new Grants(view);
const documents = new DocumentDialog(view, (name) => {
  view.wanted = name;
  list().catch(fail);
});

const drawing = new Drawing(view, documents, map);

function choose(part) {
  view.chosen = part;
  draw();
}

/** Updates at once; with `isKnown`, draws what is already known. */
async function refresh(isKnown = false) {
  if (isKnown !== true) await look();
  draw();
}

/** There was no answer; what is shown is out of date. */
function fail(error) {
  document.body.classList.add("lost");
  if (!find("notices").textContent.includes(error.message)) notice(error.message, "page");
}

function recovered() {
  document.body.classList.remove("lost");
  quiet("page");
}

function draw() {
  const report = view.moment ?? view.live;
  find("empty").hidden = Boolean(view.name) || view.role === null;
  if (!report) {
    map.clear();
    details.clear();
    grants.clear();
    const state = find("state");
    say(state, view.name || view.role === null ? "" : "there is no network");
    set(state, { "data-state": "" });
    find("events").replaceChildren();
    return;
  }
  const shownRates = view.moment ? view.momentRates : view.liveRates;
  const state = find("state");
  say(state, report.state);
  set(state, { "data-state": report.state });
  details.show(report, shownRates, view.chosen);
  grants.draw();
  map.show(report, shownRates, view.chosen, details.found);
  drawLayers(report);
  drawEvents();
}

function drawLayers(report) {
  const isOn = view.isLayered && view.substrate !== null;
  map.links.classList.toggle("off", isOn);
  for (const group of [map.hulls, map.links, map.nodes]) group.style.display = isOn ? "none" : "";
  map.layers.style.display = isOn ? "" : "none";
  find("substrate").hidden = !isOn;
  find("legend").hidden = isOn;
  if (!isOn) return;
  const key = JSON.stringify([view.substrate, report.nodes, report.links.map((it) =>
    [it.ends, it.state])]);
  if (map.layersKey !== key) {
    map.layersKey = key;
    map.layersExtent = layers.draw(map.layers, report, map.at, view.substrate);
    find("substrate").replaceChildren(...layers.tables(view.substrate, report.name));
  }
  map.window.holds(map.layersExtent);
}

function drawEvents() {
  const until = view.isPast ? timeline.time + 500 : Infinity;
  const shown = view.events.filter((event) => event.at_ms <= until).slice(-EVENTS_SHOWN);
  keyed(find("events"), shown.reverse(), (event) => event.number, (event) => {
    const at = html("button", { class: "plain", title: "Show the network at this time" });
    at.addEventListener("click", () => timeline.go(event.at_ms + 1));
    at.disabled = !view.can.has("history");
    return html("li", {}, [at, html("span", {}, event.what)]);
  }, (line, event) => {
    say(line.firstChild, view.can.has("history") ? timeline.clockAt(event.at_ms)
      : (event.at_ms / 1000).toFixed(1) + " s");
  });
}

/** Fetches the list of networks. */
async function list() {
  const all = await ask("GET", "/v1/vnets");
  recovered();
  view.names = all.map((it) => it.name);
  const select = find("network");
  keyed(select, view.names, (name) => name, (name) => html("option", { value: name }, name),
    () => {});
  select.disabled = view.names.length === 0;
  if (view.wanted && view.names.includes(view.wanted)) {
    change(view.wanted);
    view.wanted = null;
  } else if (!view.names.includes(view.name)) change(view.names[0] ?? null);
  select.value = view.name ?? "";
  return all;
}

/** Shows another network. */
function change(name) {
  if (name === view.name) return;
  Object.assign(view, { name, chosen: null, events: [], live: null, liveRates: new Map(),
    moment: null, substrate: null });
  find("events").replaceChildren();
  timeline.clear(name);
  grants.clear();
  map.clear();
  map.layersKey = null;
  find("test").hidden = name === null || !view.can.has("test");
  draw();
  if (name !== null) {
    follow(name);
    look().then(draw).catch(fail);
  }
}

/** Fetches the current state of the network. */
async function look() {
  const { name } = view;
  if (name === null) return;
  let report;
  if (view.isOperator) {
    const seen = await ask("GET", of(name, "/report"));
    const known = view.live;
    const document = known && known.name === name && known.generation === seen.generation
      ? known.document : await ask("GET", of(name, "/document"));
    report = ofOperator(seen, document);
  } else report = await ask("GET", of(name));
  if (name !== view.name) return;
  const now = performance.now(), before = view.live;
  const seconds = (now - view.livedAt) / 1000;
  // Two states that are too close together give no reliable rates.
  if (view.can.has("rates") && (!before || seconds > 0.5)) {
    view.liveRates = rates(report, view.rated, seconds);
    view.rated = report;
    view.livedAt = now;
  }
  view.live = report;
  if (view.can.has("history")) await timeline.learn();
  if (view.can.has("grants")) await grants.learn(name);
  if (view.isLayered) view.substrate = await ask("GET", "/v1/substrate");
}

/** Follows the events of a network. */
async function follow(name) {
  let since = 0;
  while (name === view.name) {
    try {
      const events = await ask("GET", of(name, `/events?since=${since}&wait_ms=10000`));
      if (name !== view.name) return;
      for (const event of events) {
        since = event.number;
        view.events.push(event);
        timeline.happened(event);
      }
      if (view.events.length > EVENTS_MAX) view.events.splice(0, view.events.length - EVENTS_MAX);
      if (events.length) drawEvents();
    } catch {
      // The network or the agent is gone; the request for networks reports that.
      await wait(2000);
    }
  }
}

function setLayers(isOn) {
  view.isLayered = isOn;
  for (const button of find("layers").children) {
    set(button, { "aria-pressed": String((button.dataset.layer === "all") === isOn) });
  }
  map.layersKey = null;
  map.window.fit();
  act(() => refresh());
}

function keys(event) {
  const isTyping = event.target.closest("input:not([type=range]), textarea, select, pre");
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (isTyping) event.target.blur();
    else choose(null);
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const isSliding = event.target.matches("input[type=range]");
  const step = 60 / map.window.scale();
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step],
    ArrowDown: [0, step] };
  const does = {
    "+": () => map.window.zoom(0.8), "=": () => map.window.zoom(0.8),
    "-": () => map.window.zoom(1.25), 0: () => map.window.fit(),
    "[": () => timeline.step(-1), "]": () => timeline.step(1), n: () => timeline.go(Infinity),
    l: () => { if (view.can.has("substrate")) setLayers(!view.isLayered); },
    d: () => documents.open(), e: () => drawing.open(), a: () => map.arrange(),
    p: () => find("pictures").showModal(), "?": () => find("help").showModal(),
    "/": () => {
      choose(null);
      const field = document.getElementById("find");
      if (field) {
        field.hidden = false;
        field.focus();
      }
    },
  };
  if (event.key in moves && !isSliding) map.window.move(...moves[event.key]);
  else if (event.key in does) does[event.key]();
  else return;
  event.preventDefault();
}

find("network").addEventListener("change", (event) => change(event.target.value));
find("test").addEventListener("click", () => test(view.name));
find("theme").addEventListener("click", nextTheme);
find("open-help").addEventListener("click", () => find("help").showModal());
find("layers").addEventListener("click", (event) => {
  const { layer } = event.target.dataset;
  if (layer) setLayers(layer === "all");
});
find("arrange").addEventListener("click", () => map.arrange());
find("picture").addEventListener("click", () => find("pictures").showModal());
find("save-svg").addEventListener("click", () => saveSvg(map.svg, view.name ?? "map"));
find("save-png").addEventListener("click", () => act(() => savePng(map.svg, view.name ?? "map")));
find("zoom").addEventListener("click", (event) => {
  const { zoom } = event.target.dataset;
  if (zoom === "fit") map.window.fit();
  else if (zoom) map.window.zoom(zoom === "in" ? 0.8 : 1.25);
});
document.addEventListener("keydown", keys);

async function run() {
  const page = await begin(fail);
  if (!page) return;
  view.role = page.role;
  view.can = new Set(page.can);
  find("layers").hidden = !view.can.has("substrate");
  find("time").closest("footer").hidden = !view.can.has("history");
  let listed = -Infinity;
  for (;;) {
    try {
      if (performance.now() - listed >= LIST || view.name === null) {
        await list();
        listed = performance.now();
      }
      await look();
      recovered();
      draw();
    } catch (error) {
      // A removed network is not in the next list.
      listed = -Infinity;
      if (error.status !== 404) fail(error);
    }
    await wait(LOOK);
  }
}
run();
