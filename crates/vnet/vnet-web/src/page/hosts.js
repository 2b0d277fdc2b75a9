// The map of a provider: its hosts with their usage, the nodes on them, and the links between
// hosts. Elements whose content is unchanged are kept, so that they keep the focus.

import { find, keyed, say, set, svg } from "./elements.js";
import { layout } from "./layout.js";
import { bits, lookOf, stateOf } from "./network.js";
import { Window } from "./window.js";

const WIDTH = 196, HEAD = 74, ROW = 18, IN_ROW = 10, NODES_MAX = 40, LENGTH = 250;

/** The colour of a network, derived from its uid. */
export function hueOf(vnet) {
  let hash = 0;
  for (const char of String(vnet)) hash = (hash * 31 + char.charCodeAt(0)) % 99991;
  // Successive colours are a golden angle apart.
  return `hsl(${hash * 137.5 % 360} 60% 50%)`;
}

export class HostMap {
  /** `choose` is called with the selected part, `{ kind, key }`, or null. */
  constructor(choose) {
    this.svg = find("map");
    this.links = svg("g");
    this.hosts = svg("g", { class: "nodes" });
    this.svg.append(this.links, this.hosts);
    this.key = null;
    this.at = new Map();
    const partOf = (target) => {
      const group = target.closest("[data-host]");
      return group ? { kind: "host", key: group.dataset.host } : null;
    };
    this.window = new Window(this.svg, (event) => {
      let isDrawn = false;
      const part = partOf(event.target);
      return {
        move: (to, now) => {
          const far = Math.hypot(now.clientX - event.clientX, now.clientY - event.clientY);
          isDrawn = isDrawn || far > 4;
          return false;
        },
        up: (isDone) => { if (isDone && !isDrawn) choose(part); },
      };
    });
    this.svg.addEventListener("keydown", (event) => {
      const part = partOf(event.target);
      if (!part || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      choose(part);
    });
  }

  show(view, chosen) {
    const on = new Map(view.hosts.map((host) => [host.name, []]));
    for (const part of view.parts) {
      for (const node of part.nodes) on.get(node.host)?.push({ part, node });
    }
    const hosts = view.hosts.map((host) => {
      const rows = Math.ceil(Math.min(on.get(host.name).length, NODES_MAX) / IN_ROW);
      const size = { width: WIDTH, height: HEAD + Math.max(rows, 1) * ROW + 8 };
      return { name: host.name, host, nodes: on.get(host.name), size };
    });
    const outside = view.links.filter((link) => link.hosts.length === 1).map((link) => ({
      name: "border " + link.name, border: link.name,
      size: { width: Math.max(90, link.name.length * 7 + 26), height: 34 } }));
    const all = [...hosts, ...outside];
    const lines = view.links.map((link) => ({ link,
      ends: link.hosts.length === 2 ? link.hosts : [link.hosts[0], "border " + link.name] }));
    const key = JSON.stringify([all.map((it) => [it.name, it.size]), lines.map((it) => it.ends)]);
    if (key !== this.key) {
      this.key = key;
      const shape = (this.svg.clientWidth || 4) / (this.svg.clientHeight || 3);
      const pairs = lines.map((it) => it.ends).filter(([a, b]) => a !== b);
      this.at = layout(all, pairs, shape, LENGTH);
    }
    this.sizes = new Map(all.map((it) => [it.name, it.size]));
    this.drawLinks(lines);
    this.drawHosts(all, chosen);
    this.window.holds(this.extent(all));
  }

  extent(all) {
    if (!all.length) return { x: 0, y: 0, width: 0, height: 0 };
    const sides = all.map((it) => ({ ...this.at.get(it.name), ...it.size }));
    const x = Math.min(...sides.map((it) => it.x - it.width / 2));
    const y = Math.min(...sides.map((it) => it.y - it.height / 2));
    return { x, y, width: Math.max(...sides.map((it) => it.x + it.width / 2)) - x,
      height: Math.max(...sides.map((it) => it.y + it.height / 2)) - y };
  }

  drawLinks(lines) {
    keyed(this.links, lines, (it) => it.link.name, () => svg("g", { class: "link up" },
      [svg("title"), svg("path", { class: "wire" }), svg("text", { class: "label" })]),
    (group, { link, ends }) => {
      const [a, b] = this.between(...ends);
      const [title, wire, label] = group.children;
      const { all, promised } = link.rate_bps;
      set(wire, { d: `M${a.x} ${a.y} L${b.x} ${b.y}` });
      wire.style.setProperty("--width", (1.5 + 5 * promised / Math.max(all, 1)) + "px");
      set(label, { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
      const percent = 100 * promised / Math.max(all, 1);
      say(label, percent > 0 && percent < 1 ? "<1 %" : percent.toFixed(0) + " %");
      say(title, `${link.name}: ${bits(promised)} of ${bits(all)} promised`);
    });
  }

  /** The points where a line between two boxes meets their borders. */
  between(one, other) {
    const [a, b] = [this.at.get(one), this.at.get(other)];
    const x = b.x - a.x, y = b.y - a.y;
    const out = ({ width, height }) =>
      Math.min(width / 2 / Math.max(Math.abs(x), 1), height / 2 / Math.max(Math.abs(y), 1), 0.5);
    const [from, to] = [out(this.sizes.get(one)), 1 - out(this.sizes.get(other))];
    return [{ x: a.x + x * from, y: a.y + y * from }, { x: a.x + x * to, y: a.y + y * to }];
  }

  drawHosts(all, chosen) {
    keyed(this.hosts, all, (it) => it.name, (it) => it.border === undefined ? hostOf(it)
      : svg("g", { class: "node border unknown" }), (group, it) => {
      const { x, y } = this.at.get(it.name);
      set(group, { transform: `translate(${x} ${y})` });
      if (it.border !== undefined) {
        if (!group.firstChild) group.append(...borderOf(it));
        return;
      }
      const isChosen = chosen && chosen.kind === "host" && chosen.key === it.name;
      const network = chosen && chosen.kind === "part" ? chosen.key : null;
      const look = it.host.is_there ? "up" : "down";
      set(group, { class: `node ${look}${isChosen ? " chosen" : ""}` });
      const key = JSON.stringify([it.host, it.size, network,
        it.nodes.map(({ part, node }) => [part.vnet, node.name, node.state])]);
      if (group.shownKey === key) return;
      group.shownKey = key;
      group.replaceChildren(...inside(it, network));
    });
  }
}

function hostOf({ name }) {
  return svg("g", { tabindex: "0", role: "button", "data-host": name,
    "aria-label": "Host " + name });
}

function borderOf({ border, size }) {
  const { width, height } = size;
  return [svg("title", {}, "Border to another provider: " + border),
    svg("rect", { class: "shape", x: -width / 2, y: -height / 2, width, height, rx: height / 2 }),
    svg("text", { y: -2 }, cut(border, 22)), svg("text", { class: "small", y: 11 }, "border")];
}

/** A host: its name, a bar for processors and one for memory, and a square for each node. */
function inside({ host, nodes, size }, network) {
  const left = -size.width / 2 + 12, top = -size.height / 2, wide = size.width - 24;
  const parts = [
    svg("title", {}, `${host.name}, ${host.location || "no location"}, ${host.address}`),
    svg("rect", { class: "shape", x: -size.width / 2, y: top, ...size, rx: 8 }),
    svg("text", { class: "start", x: left, y: top + 20 }, cut(host.name, 18)),
    svg("text", { class: "small end", x: -left, y: top + 20 },
      host.is_there ? cut(host.location, 12) : "silent"),
  ];
  [["cpu", host.cpus], ["mem", host.memory_mib]].forEach(([word, share], row) => {
    const y = top + 32 + row * 17, from = left + 30, length = wide - 30;
    const width = (amount) => length * Math.min(amount / Math.max(share.all, 1), 1);
    parts.push(svg("text", { class: "small start", x: left, y: y + 8 }, word),
      svg("rect", { class: "bar", x: from, y, width: length, height: 9, rx: 2 }),
      svg("rect", { class: "bar held", x: from, y, width: width(share.promised), height: 9,
        rx: 2 }),
      svg("rect", { class: "bar used", x: from, y, width: width(share.used), height: 9, rx: 2 }));
  });
  nodes.slice(0, NODES_MAX).forEach(({ part, node }, number) => {
    const x = left + (number % IN_ROW) * (wide / IN_ROW);
    const y = top + HEAD - 4 + Math.floor(number / IN_ROW) * ROW;
    const faded = network !== null && network !== part.vnet ? " faded" : "";
    parts.push(svg("rect", { class: `guest ${lookOf(node.state)}${faded}`, x, y, width: 13,
      height: 13, rx: node.kind === "namespace" ? 6.5 : 2, fill: hueOf(part.vnet) }, [
      svg("title", {}, `${node.name} of ${part.name}: ${stateOf(node.state)}`)]));
  });
  if (nodes.length > NODES_MAX) {
    parts.push(svg("text", { class: "small end", x: -left, y: top + HEAD - 8 },
      `and ${nodes.length - NODES_MAX} more`));
  } else if (!nodes.length) {
    parts.push(svg("text", { class: "small start", x: left, y: top + HEAD + 7 }, "no nodes"));
  }
  return parts;
}

const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
