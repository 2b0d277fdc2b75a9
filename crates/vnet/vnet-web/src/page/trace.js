// The path from a node to another: a row for each port that echo requests have passed, and where
// they were lost.

import { ask, of } from "./ask.js";
import { act, html, say } from "./elements.js";

const ECHOES = 3;

/** The part of the page for paths from a node to others. */
export function trace(network, from, others) {
  const to = html("select", { id: "trace-to", "aria-label": "The node at the end of the way" },
    others.map((name) => html("option", { value: name }, name)));
  const start = html("button", { id: "trace-start" }, "Trace");
  const way = html("div", { id: "way", "aria-live": "polite" });
  start.addEventListener("click", async () => {
    start.disabled = true;
    say(start, "Tracing…");
    const body = { from, to: to.value, echoes: ECHOES };
    const found = await act(() => ask("POST", of(network, "/trace"), body));
    if (found) way.replaceChildren(...shown(found));
    start.disabled = false;
    say(start, "Trace");
  });
  return html("div", {}, [html("h2", {}, "Way to"), html("p", { class: "buttons" }, [to, start]),
    way]);
}

function shown(way) {
  const isWhole = way.answered === way.asked;
  const rtt = way.rtt_ns ? `, at best after ${(way.rtt_ns / 1e6).toFixed(3)} ms` : "";
  const words = `${way.answered} of ${way.asked} echos to ${way.address} answered${rtt}`;
  const most = Math.max(...way.places.map((it) => it.seen), 1);
  const head = html("tr", {}, ["", "where", "seen", "after"].map((it) => html("th", {}, it)));
  const rows = way.places.map((place) => {
    const after = place.after_us === undefined ? "–" : (place.after_us / 1000).toFixed(3) + " ms";
    return html("tr", { class: place.seen < most ? "is-down" : "" }, [
      html("td", {}, place.way === "there" ? "→" : "←"),
      html("td", {}, `${place.end} ${place.act}`
        + (place.is_expected ? "" : ", off the routes")),
      html("td", { class: "number" }, String(place.seen)),
      html("td", { class: "number" }, after)]);
  });
  const findings = (way.findings ?? []).map((text) => html("p", { class: "is-down" }, text));
  return [html("p", { class: isWhole ? "is-up" : "is-down" }, words), ...findings,
    html("table", {}, [head, ...rows])];
}
