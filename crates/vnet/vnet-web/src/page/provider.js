// The page of a provider: its state, and how it follows changes.

import { ask, wait } from "./ask.js";
import { begin, nextTheme } from "./begin.js";
import { find, html, keyed, notice, quiet, say, set } from "./elements.js";
import { HostMap } from "./hosts.js";
import { Promises } from "./promises.js";

const LOOK = 1000, EVENTS_SHOWN = 200;

let view = null, chosen = null, clock = Date.now();
const events = [];
const map = new HostMap(choose), promises = new Promises(choose);

function choose(part) {
  chosen = part;
  draw();
}

/** There was no answer; what is shown is out of date. */
function fail(error) {
  document.body.classList.add("lost");
  if (!find("notices").textContent.includes(error.message)) notice(error.message, "page");
}

function draw() {
  if (!view) return;
  const silent = view.hosts.filter((it) => !it.is_there).length;
  const failed = view.parts.flatMap((it) => it.nodes)
    .filter((it) => typeof it.state !== "string").length;
  const words = [silent ? `${silent} of ${view.hosts.length} hosts silent` : "all hosts report",
    failed ? `${failed} nodes failed` : ""].filter(Boolean).join(", ");
  say(find("state"), words);
  set(find("state"), { "data-state": silent || failed ? "failed" : "ready" });
  const sum = (of) => view.hosts.map(of).reduce((a, b) =>
    ({ all: a.all + b.all, promised: a.promised + b.promised }), { all: 0, promised: 0 });
  const [cpus, memory] = [sum((it) => it.cpus), sum((it) => it.memory_mib)];
  say(find("sums"), `${cpus.promised} of ${cpus.all} CPUs, ${gib(memory.promised)} of `
    + `${gib(memory.all)} GiB promised`);
  map.show(view, chosen);
  promises.show(view, chosen);
}

const gib = (mib) => (mib / 1024).toFixed(1);

function drawEvents() {
  const shown = events.slice(-EVENTS_SHOWN).reverse();
  if (!shown.length) {
    find("events").replaceChildren(html("li", { class: "hint" }, "Nothing has happened yet."));
    return;
  }
  keyed(find("events"), shown, (it) => it.number, (it) => html("li", {}, [
    html("time", {}, new Date(clock + it.at_ms).toLocaleTimeString()),
    html("span", {}, it.what)]), () => {});
}

async function follow() {
  let since = 0;
  drawEvents();
  for (;;) {
    try {
      const more = await ask("GET", `/v1/provider/events?since=${since}&wait_ms=10000`);
      for (const event of more) {
        since = event.number;
        events.push(event);
      }
      if (events.length > 1000) events.splice(0, events.length - 1000);
      if (more.length) drawEvents();
    } catch {
      // The other request reports the error.
      await wait(2000);
    }
  }
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = 60 / map.window.scale();
  const does = {
    Escape: () => choose(null), "+": () => map.window.zoom(0.8), "=": () => map.window.zoom(0.8),
    "-": () => map.window.zoom(1.25), 0: () => map.window.fit(),
    ArrowLeft: () => map.window.move(-step, 0), ArrowRight: () => map.window.move(step, 0),
    ArrowUp: () => map.window.move(0, -step), ArrowDown: () => map.window.move(0, step),
  };
  if (!(event.key in does)) return;
  does[event.key]();
  event.preventDefault();
}

async function run() {
  if (!await begin(fail)) return;
  let isFollowing = false;
  for (;;) {
    try {
      const seen = await ask("GET", "/v1/provider");
      clock = Date.now() - seen.now_ms;
      view = seen;
      document.body.classList.remove("lost");
      quiet("page");
      draw();
      if (!isFollowing) {
        isFollowing = true;
        follow();
      }
    } catch (error) {
      fail(error);
    }
    await wait(LOOK);
  }
}

find("theme").addEventListener("click", nextTheme);
find("zoom").addEventListener("click", (event) => {
  const { zoom } = event.target.dataset;
  if (zoom === "fit") map.window.fit();
  else if (zoom) map.window.zoom(zoom === "in" ? 0.8 : 1.25);
});
document.addEventListener("keydown", keys);
run();
