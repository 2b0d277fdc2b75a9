// The map of a network. Elements whose content is unchanged are kept, so that they keep the focus.

import { find, keyed, say, set, svg } from "./elements.js";
import { layout, sizeOf } from "./layout.js";
import { bits, bpsOf, isImpaired, lookOf, nodeOf, stateOf } from "./network.js";
import { Window } from "./window.js";

const ROOMY_LINKS = 30;

export class NetworkMap {
  /** `choose` is called with the selected part, `{ kind, key }`, or null. */
  constructor(choose) {
    this.svg = find("map");
    this.choose = choose;
    this.key = null;
    this.at = new Map();
    this.links = svg("g");
    this.nodes = svg("g", { class: "nodes" });
    this.layers = svg("g");
    this.svg.append(this.links, this.nodes, this.layers);
    this.window = new Window(this.svg, (event, place) => this.pressed(event, place));
    this.window.onshow = () => this.thin();
    this.svg.addEventListener("keydown", (event) => {
      const group = event.target.closest(".node, .link");
      if (!group || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      this.choose(partOf(group));
    });
  }

  /** Selects what is pressed; a node that is dragged follows the pointer. */
  pressed(event, place) {
    const group = event.target.closest(".node, .link");
    const part = group && partOf(group);
    const isFar = (now) =>
      Math.hypot(now.clientX - event.clientX, now.clientY - event.clientY) > 4;
    let isDrawn = false;
    if (!part) {
      return {
        // The map itself is moved.
        move: (to, now) => {
          isDrawn = isDrawn || isFar(now);
          return false;
        },
        up: (isDone) => { if (isDone && !isDrawn) this.choose(null); },
      };
    }
    const at = part.kind === "node" ? this.at.get(part.key) : null;
    const off = at && { x: at.x - place.x, y: at.y - place.y };
    return {
      move: (to, now) => {
        isDrawn = isDrawn || isFar(now);
        if (at && isDrawn) {
          at.x = to.x + off.x;
          at.y = to.y + off.y;
          this.again();
        }
        return true;
      },
      up: (isDone) => { if (isDone && !isDrawn) this.choose(part); },
    };
  }

  /** Clears the map and forgets the nodes' positions. */
  clear() {
    this.key = null;
    this.shown = null;
    this.window.seen = null;
    for (const group of [this.links, this.nodes, this.layers]) group.replaceChildren();
  }

  /** Shows a network with the rates of its links, and highlights `chosen` and `found`. */
  show(report, rates, chosen, found) {
    this.shown = [report, rates, chosen, found];
    const near = new Set(report.nodes.map((node) => node.name));
    // The far ends of links to other hosts are shown, too.
    const far = new Set(report.links.flatMap((link) => link.ends.map(nodeOf))
      .filter((name) => !near.has(name)));
    const all = [...report.nodes, ...[...far].map((name) => ({ name, kind: "", isFar: true }))];
    const pairs = report.links.map((link) => link.ends.map(nodeOf));
    const key = JSON.stringify([all.map((it) => it.name), pairs]);
    if (key !== this.key) {
      const shape = (this.svg.clientWidth || 4) / (this.svg.clientHeight || 3);
      this.at = layout(all, pairs.filter(([a, b]) => a !== b), shape);
      this.key = key;
    }
    this.all = all;
    this.drawLinks(report, rates, chosen, found);
    this.drawNodes(all, chosen, found);
    this.window.holds(this.extent(all));
  }

  again() {
    if (this.shown) this.show(...this.shown);
  }

  extent(all) {
    if (all.length === 0) return { x: 0, y: 0, width: 0, height: 0 };
    const boxes = all.map((node) => ({ ...this.at.get(node.name), ...sizeOf(node) }));
    const least = (side, size) => Math.min(...boxes.map((it) => it[side] - it[size] / 2));
    const most = (side, size) => Math.max(...boxes.map((it) => it[side] + it[size] / 2));
    const [x, y] = [least("x", "width"), least("y", "height")];
    return { x, y, width: most("x", "width") - x, height: most("y", "height") - y };
  }

  drawLinks(report, rates, chosen, found) {
    const nth = new Map();
    const placed = report.links.map((link) => {
      const [a, b] = link.ends.map(nodeOf);
      const pair = [a, b].sort().join(" ");
      nth.set(pair, (nth.get(pair) ?? -1) + 1);
      return { link, nth: nth.get(pair), isTurned: a > b, count: () => nth.get(pair) + 1 };
    });
    keyed(this.links, placed, (it) => it.link.number, (it) => {
      const group = svg("g", { tabindex: "0", role: "button", "data-link": it.link.number });
      const line = (kind) => svg("path", { class: kind });
      const label = (kind) => svg("text", { class: kind });
      group.append(svg("title"), line("wire"), line("flow"), line("touch"),
        label("label rate"), label("label small"));
      return group;
    }, (group, it) => {
      const { link } = it, [there, back] = rates.get(link.number) ?? [{ bps: 0 }, { bps: 0 }];
      const total = there.bps + back.bps, capacity = bpsOf(link.rate);
      const isChosen = chosen && chosen.kind === "link" && chosen.key === String(link.number);
      const classes = ["link", lookOf(link.state), isImpaired(link) && "impaired",
        isChosen && "chosen", found.has("link " + link.number) && "found",
        total >= 1 && "busy", back.bps > there.bps && "back"];
      const words = link.ends.join(" — ") + ", " + stateOf(link.state)
        + (isImpaired(link) ? ", impaired" : "") + ", " + bits(total) + " of " + link.rate;
      set(group, { class: classes.filter(Boolean).join(" "), "aria-label": "Link " + words });
      const share = capacity > 0 ? Math.min(Math.max(there.bps, back.bps) / capacity, 1) : 0;
      const { path, middle } = this.line(link, it);
      const [title, wire, flow, touch, rate, limit] = group.children;
      say(title, words);
      for (const line of [wire, flow, touch]) set(line, { d: path });
      wire.style.setProperty("--width", (2.5 + 4.5 * Math.sqrt(share)).toFixed(1) + "px");
      set(rate, { x: middle.x, y: middle.y - 5 });
      say(rate, total >= 1 ? bits(total) : "");
      set(limit, { x: middle.x, y: middle.y + 13 });
      say(limit, String(link.rate));
    });
  }

  /** The path of a link, and the position of its label. Parallel links are bent. */
  line(link, { nth, isTurned, count }) {
    const [a, b] = link.ends.map((end) => this.at.get(nodeOf(end)));
    if (a === b) {
      const path = `M${a.x - 10} ${a.y - 18} C${a.x - 50} ${a.y - 80} ${a.x + 50} ${a.y - 80} `
        + `${a.x + 10} ${a.y - 18}`;
      return { path, middle: { x: a.x, y: a.y - 70 } };
    }
    const bend = (nth - (count() - 1) / 2) * 76 * (isTurned ? -1 : 1);
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const off = { x: -(b.y - a.y) / length * bend, y: (b.x - a.x) / length * bend };
    const middle = { x: (a.x + b.x) / 2 + off.x / 2, y: (a.y + b.y) / 2 + off.y / 2 };
    const via = { x: (a.x + b.x) / 2 + off.x, y: (a.y + b.y) / 2 + off.y };
    const point = ({ x, y }) => x.toFixed(1) + " " + y.toFixed(1);
    const path = bend === 0 ? `M${point(a)} L${point(b)}`
      : `M${point(a)} Q${point(via)} ${point(b)}`;
    return { path, middle };
  }

  drawNodes(all, chosen, found) {
    keyed(this.nodes, all, (it) => it.name, (node) => {
      const kind = node.isFar ? {} : { tabindex: "0", role: "button", "data-node": node.name };
      return svg("g", kind, [svg("title"), svg("rect", { class: "shape" }), svg("text"),
        svg("text", { class: "small" })]);
    }, (group, node) => {
      const { x, y } = this.at.get(node.name), { width, height } = sizeOf(node);
      const isChosen = chosen && chosen.kind === "node" && chosen.key === node.name;
      const look = node.isFar ? "unknown place" : lookOf(node.state);
      const isFound = found.has("node " + node.name);
      const classes = ["node", look, isChosen && "chosen", isFound && "found"];
      const words = node.isFar ? node.name + ", elsewhere"
        : `${node.name}, ${node.kind}, ${stateOf(node.state)}`;
      set(group, { class: classes.filter(Boolean).join(" "), "aria-label": "Node " + words,
        transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
      const [title, shape, name, kind] = group.children;
      say(title, words);
      set(shape, { x: -width / 2, y: -height / 2, width, height,
        rx: node.kind === "namespace" ? height / 2 : 5 });
      say(name, node.name);
      set(name, { y: 0 });
      say(kind, node.isFar ? "elsewhere"
        : lookOf(node.state) === "up" ? node.kind : stateOf(node.state));
      set(kind, { y: 13 });
    });
  }

  /** If there are many links, labels are only shown when zoomed in. */
  thin() {
    const count = this.links.children.length;
    const isDense = count > ROOMY_LINKS && this.window.scale() < 1.4;
    this.svg.classList.toggle("dense", isDense || this.window.scale() < 0.55);
    this.svg.classList.toggle("distant", this.window.scale() < 0.72);
  }
}

function partOf(group) {
  const { node, link } = group.dataset;
  if (node !== undefined) return { kind: "node", key: node };
  return link !== undefined ? { kind: "link", key: link } : null;
}
