// The map of a network. Elements whose content is unchanged are kept, so that they keep the focus.

import { coordinatesIn, matched } from "./coordinates.js";
import { act, find, keyed, say, set, svg } from "./elements.js";
import { CLUSTER_BOX, boxOf, course, dotOf, drawLink, drawNode } from "./figures.js";
import { makeLink, makeNode, titleOf, widthOf } from "./figures.js";
import { bpsOf, lookOf, nodeOf } from "./network.js";
import { CLUSTER, Places } from "./places.js";
import { roleOf } from "./roles.js";
import { Room } from "./room.js";
import { MARGIN, Window } from "./window.js";

const LARGEST = 1.5, PORTS_FROM = 230, UNIFORM_FROM = 24, NEAR = 1.35;

export class NetworkMap {
  /** `choose` is called with the selected part, `{ kind, key }`, or null. */
  constructor(choose) {
    this.svg = find("map");
    this.choose = choose;
    this.items = new Map();
    this.places = new Places((name) => {
      const item = this.items.get(name);
      return item ? boxOf(item) : CLUSTER_BOX;
    });
    this.at = new Map();
    this.hulls = svg("g");
    this.links = svg("g");
    this.nodes = svg("g", { class: "nodes" });
    this.layers = svg("g");
    this.svg.append(this.hulls, this.links, this.nodes, this.layers);
    this.window = new Window(this.svg, (event, place) => this.pressed(event, place));
    this.window.onshow = () => {
      if (this.shownScale !== this.window.scale()) this.scaled();
    };
    this.svg.addEventListener("keydown", (event) => {
      const group = event.target.closest(".node, .link, .hull");
      if (!group || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      this.pick(partOf(group));
    });
    for (const kind of ["pointerover", "focusin"]) {
      this.svg.addEventListener(kind, (event) => this.point(event.target.closest(".node, .link")));
    }
    this.svg.addEventListener("dragover", (event) => event.preventDefault());
    this.svg.addEventListener("drop", (event) => {
      const [file] = event.dataTransfer.files;
      event.preventDefault();
      if (file && this.shown) act(() => this.dropped(file));
    });
    this.svg.addEventListener("pointerleave", () => this.point(null));
  }

  /** Moves the nodes to the coordinates in a dropped GraphML or GML file. */
  async dropped(file) {
    const names = [...this.items.values()].filter((it) => !it.members).map((it) => it.name);
    const at = matched(coordinatesIn(await file.text()), names);
    if (!at.size) {
      throw new Error(`${file.name} has coordinates of no node of this network: it must be the `
        + "GraphML or GML file of which the network was made");
    }
    this.places.put(at, this.area());
    this.window.seen = null;
    this.again();
  }

  /** Selects a part; opens or closes a cluster. */
  pick(part) {
    if (part && part.kind === "cluster") {
      this.places.toggle(part.key);
      this.again();
    } else this.choose(part);
  }

  /** Shows the labels of what the pointer is on. */
  point(group) {
    const name = group ? group.dataset.key : null;
    if (name === this.pointed) return;
    this.pointed = name;
    clearTimeout(this.pointing);
    this.pointing = setTimeout(() => this.label(), 60);
  }

  /** Selects what is pressed; a node that is dragged follows the pointer. */
  pressed(event, place) {
    const group = event.target.closest(".node, .link, .hull");
    const part = group && partOf(group);
    const isFar = (now) =>
      Math.hypot(now.clientX - event.clientX, now.clientY - event.clientY) > 4;
    let isDrawn = false, last = place;
    const name = part && { node: part.key, cluster: CLUSTER + part.key }[part.kind];
    const isMovable = name && (this.places.base.has(name) || this.places.inner.has(name));
    return {
      move: (to, now) => {
        isDrawn = isDrawn || isFar(now);
        if (isMovable && isDrawn) {
          this.places.move(name, to.x - last.x, to.y - last.y);
          last = to;
          this.again();
        }
        // A movement that begins beside all parts moves the map.
        return Boolean(part);
      },
      up: (isDone) => {
        if (isMovable && isDrawn) this.places.save();
        if (isDone && !isDrawn) this.pick(part);
      },
    };
  }

  /** Clears the map. The nodes' positions are kept for the next time. */
  clear() {
    this.shown = null;
    this.at = new Map();
    this.places.clear();
    this.window.seen = null;
    for (const group of [this.hulls, this.links, this.nodes, this.layers]) group.replaceChildren();
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
    this.collect(all, pairs);
    const names = all.map((it) => it.name);
    const title = `${find("whose").textContent} ${report.name}`;
    if (this.places.take(names, pairs, this.area(), title)) {
      this.collect(all, pairs);
      this.placeByDocument(report);
    }
    const { at, hulls } = this.places.visible();
    this.at = at;
    this.drawHulls(hulls);
    this.drawLinks(report, rates, chosen, found);
    this.drawNodes(chosen, found);
    // The layers below want the position of every node.
    for (const name of names) {
      if (!at.has(name)) at.set(name, at.get(this.places.seenAs(name)));
    }
    this.window.holds(this.extent(hulls));
    this.scaled();
  }

  /** Moves the nodes to the positions that their document gives, unless the browser knows others. */
  placeByDocument(report) {
    const at = report.nodes.filter((it) => it.position).map(({ name, position }) => {
      const [x, y] = position.split(" ").map(Number);
      return [name, { x, y }];
    });
    if (at.length && this.places.isFresh) this.places.put(new Map(at), this.area());
  }

  /** The nodes and clusters by name. */
  collect(all, pairs) {
    const degree = new Map();
    for (const name of pairs.flat()) degree.set(name, (degree.get(name) ?? 0) + 1);
    this.items = new Map(all.map((node) =>
      [node.name, { ...node, role: roleOf(node, degree.get(node.name) ?? 0) }]));
    for (const [lead, names] of this.places.members) {
      const members = names.map((name) => this.items.get(name)).filter(Boolean);
      const looks = members.map((it) => it.isFar ? "up" : lookOf(it.state));
      this.items.set(CLUSTER + lead, { lead, members, name: CLUSTER + lead,
        title: this.places.titles.get(lead),
        down: looks.filter((look) => look !== "up").length, isDown: looks.includes("down") });
    }
  }

  /** The area of the screen for a network, in pixels. */
  area() {
    const { clientWidth, clientHeight } = this.svg;
    return { width: Math.max((clientWidth || 800) - 2 * MARGIN.x, 160),
      height: Math.max((clientHeight || 600) - MARGIN.top - MARGIN.bottom, 160) };
  }

  arrange() {
    if (!this.shown) return;
    this.places.arrange(this.area());
    this.window.seen = null;
    this.again();
  }

  again() {
    if (this.shown) this.show(...this.shown);
  }

  extent(hulls) {
    const boxes = [...[...this.visibleItems()].map((item) => ({ ...this.at.get(item.name),
      ...boxOf(item) })), ...hulls];
    if (boxes.length === 0) return { x: 0, y: 0, width: 0, height: 0 };
    // Boxes are as large on the screen at any zoom: in the extent they count little.
    const [x, y] = [Math.min(...boxes.map((it) => it.x)), Math.min(...boxes.map((it) => it.y))];
    const width = Math.max(...boxes.map((it) => it.x)) - x;
    const height = Math.max(...boxes.map((it) => it.y)) - y;
    const least = hulls.reduce((all, it) => ({ x: Math.min(all.x, it.x - it.width / 2),
      y: Math.min(all.y, it.y - it.height / 2), right: Math.max(all.right, it.x + it.width / 2),
      low: Math.max(all.low, it.y + it.height / 2) }),
    { x, y, right: x + width, low: y + height });
    return { x: least.x, y: least.y, width: least.right - least.x, height: least.low - least.y };
  }

  * visibleItems() {
    for (const [name, item] of this.items) {
      if (item.members ? !this.places.open.has(item.lead)
        : this.places.seenAs(name) === name) yield item;
    }
  }

  drawHulls(hulls) {
    keyed(this.hulls, hulls, (it) => it.cluster, (it) => svg("g", { class: "hull", tabindex: "0",
      role: "button", "data-cluster": it.cluster }, [svg("title"), svg("rect"), svg("text")]),
    (group, it) => {
      const item = this.items.get(CLUSTER + it.cluster);
      const words = `${titleOf(item)}, ${item.members.length} nodes ✕`;
      set(group, { "aria-label": "Close cluster " + words });
      const [title, rect, text] = group.children;
      say(title, "Click to close the cluster");
      set(rect, { x: it.x - it.width / 2, y: it.y - it.height / 2, width: it.width,
        height: it.height, rx: 18 });
      say(text, words);
      group.at = { x: it.x, y: it.y - it.height / 2 };
    });
  }

  drawLinks(report, rates, chosen, found) {
    const lines = this.lines(report, rates);
    const chosenKey = chosen && chosen.kind === "link" ? chosen.key : null;
    const ofNode = chosen && chosen.kind === "node" ? chosen.key : null;
    const [first] = report.links;
    this.isUniform = report.links.length > UNIFORM_FROM
      && report.links.every((it) => it.rate === first.rate);
    say(find("figure"), this.isUniform ? `every link: rate ${first.rate}`
      : "figure at a link: its rate");
    keyed(this.links, lines, (it) => it.key, makeLink, (group, it) => {
      drawLink(group, it, { isChosen: it.links.some((link) => String(link.number) === chosenKey),
        isFound: it.links.some((link) => found.has("link " + link.number)),
        isBeside: ofNode !== null && it.ends.includes(ofNode) });
      const [a, b] = it.ends.map((name) => this.at.get(name));
      group.course = course(a, b, it);
      group.line = it;
      for (const path of [...group.children].slice(1, 4)) set(path, { d: group.course.path });
      if (it.link) {
        it.link.ends.forEach((end, side) => say(group.children[6 + side], this.portWords(end)));
      }
    });
  }

  /** The links that are visible; those between the same two parts of which one is a cluster are
   *  one line. */
  lines(report, rates) {
    const bundles = new Map(), nth = new Map();
    for (const link of report.links) {
      const ends = link.ends.map((end) => this.places.seenAs(nodeOf(end)));
      if (ends[0] === ends[1] && ends[0].startsWith(CLUSTER)) continue;
      const isBundle = ends.some((name) => name.startsWith(CLUSTER));
      const key = isBundle ? "bundle " + ends.slice().sort().join("—") : String(link.number);
      if (!bundles.has(key)) bundles.set(key, { key, ends, links: [] });
      bundles.get(key).links.push(link);
    }
    const lines = [...bundles.values()];
    for (const line of lines) {
      if (line.links.length === 1) [line.link] = line.links;
      const pair = line.ends.slice().sort().join(" — ");
      line.nth = nth.get(pair) ?? 0;
      nth.set(pair, line.nth + 1);
      line.isTurned = line.ends[0] > line.ends[1];
      line.pair = pair;
      Object.assign(line, use(line.links, rates));
    }
    for (const line of lines) line.count = nth.get(line.pair);
    return lines;
  }

  /** The interface at an end of a link, with its address. */
  portWords(end) {
    const node = this.items.get(nodeOf(end)), name = end.split(":")[1] ?? "";
    const port = node && (node.interfaces ?? []).find((it) => it.name === name);
    return port && port.address ? `${name} ${port.address}` : name;
  }

  drawNodes(chosen, found) {
    const items = [...this.visibleItems()];
    const isChosen = (item) => chosen && chosen.kind === "node"
      && this.places.seenAs(chosen.key) === item.name;
    const isFound = (item) => item.members
      ? item.members.some((it) => found.has("node " + it.name)) : found.has("node " + item.name);
    keyed(this.nodes, items, (it) => it.name, makeNode, (group, item) => {
      group.item = item;
      group.marks = { isChosen: isChosen(item), isFound: isFound(item) };
    });
  }

  /** Scales nodes and labels against the zoom, and selects the labels that fit. */
  scaled() {
    const scale = this.window.scale();
    this.shownScale = scale;
    if (!scale || !this.shown) return;
    this.factor = Math.min(Math.max(scale, 1), LARGEST) / scale;
    this.isDotted = this.overlaps();
    this.svg.classList.toggle("dotted", this.isDotted);
    for (const group of this.nodes.children) {
      const { x, y } = this.at.get(group.item.name);
      drawNode(group, group.item, { ...group.marks, isDot: this.isDotted });
      set(group, { transform: this.transform(x, y) });
    }
    this.label();
  }

  transform(x, y) {
    return `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${this.factor.toFixed(4)})`;
  }

  /** A box of the screen around a point of the map. */
  screen({ x, y }, { width, height }, offY = 0) {
    const scale = this.shownScale, large = this.factor * scale;
    return { x: x * scale, y: y * scale + offY * large, width: width * large,
      height: height * large };
  }

  /** Whether nodes as boxes would cover one another. */
  overlaps() {
    const room = new Room();
    let covered = 0;
    const items = [...this.visibleItems()];
    for (const item of items) {
      if (!room.claim(this.screen(this.at.get(item.name), boxOf(item)))) covered += 1;
    }
    return covered > items.length / 25;
  }

  /** Shows the labels for which the screen has room: of what is chosen or pointed at first. */
  label() {
    if (!this.shown || !this.shownScale) return;
    const room = new Room();
    const isForced = (group) => group.matches(".chosen") || group.dataset.key === this.pointed;
    const marks = (group) => 2 * Number(isForced(group))
      + Number(group.matches(".found, .beside"));
    const nodes = [...this.nodes.children];
    for (const group of nodes) {
      const box = this.isDotted ? dotOf(group.item) : boxOf(group.item);
      room.take(this.screen(this.at.get(group.item.name), box));
    }
    const degree = ({ item }) => item.members ? item.members.length * 100
      : item.interfaces ? item.interfaces.length : 0;
    nodes.sort((a, b) => marks(b) - marks(a) || degree(b) - degree(a));
    for (const group of nodes) {
      const words = titleOf(group.item), { height } = dotOf(group.item);
      const isShown = !this.isDotted || room.claim(this.screen(this.at.get(group.item.name),
        { width: widthOf(words) + 4, height: 15 }, height / 2 + 9)) || isForced(group);
      group.children[4].classList.toggle("off", !isShown);
    }
    for (const group of this.hulls.children) {
      const text = group.children[2];
      set(text, { transform: this.transform(group.at.x, group.at.y), y: -7 });
    }
    const links = [...this.links.children].sort((a, b) => marks(b) - marks(a));
    for (const group of links) {
      this.labelLink(group, room, isForced(group), isForced(group) || group.matches(".beside"));
    }
  }

  /** With `isMarked`, a link shows all labels that fit; with `isForced`, also the others. */
  labelLink(group, room, isForced, isMarked) {
    const { along, length } = group.course, pixels = length * this.shownScale;
    const [rate, traffic, ...ports] = [...group.children].slice(4);
    const put = (text, at, size, off, isSure = isForced) => {
      const words = text.textContent;
      const box = this.screen(at, { width: widthOf(words, size) + 8, height: size + 5 },
        off - size / 3);
      const isShown = words !== "" && (room.claim(box) || isSure);
      text.classList.toggle("off", !isShown);
      if (isShown) set(text, { transform: this.transform(at.x, at.y), y: off });
    };
    // A label that does not fit in the middle may fit beside it.
    const own = widthOf(rate.textContent, 12) + 26;
    const middle = [0.5, 0.42, 0.58].map(along).find((at) => pixels > own && room.isFree(
      this.screen(at, { width: own - 18, height: 17 }, 0))) ?? along(0.5);
    // A figure that is the same at every link of many stands in the legend alone.
    const isWanted = isMarked || (pixels > own && !(this.isUniform && group.line.link));
    if (isWanted) put(rate, middle, 12, 4);
    else rate.classList.add("off");
    if (isMarked) put(traffic, middle, 11, 19);
    else traffic.classList.add("off");
    ports.forEach((text, side) => {
      text.classList.add("off");
      const isFew = this.shown[0].links.length <= UNIFORM_FROM || this.shownScale >= NEAR;
      const isWanted = group.line.link && (isMarked || (!this.isDotted && isFew
        && pixels >= PORTS_FROM * this.factor * this.shownScale));
      if (!isWanted) return;
      const node = this.items.get(group.line.ends[side]);
      const box = this.isDotted ? dotOf(node) : boxOf(node);
      const from = side === 0 ? along : (t) => along(1 - t);
      const first = this.beyond(from, box, text);
      for (const t of [first, first + 0.05, first + 0.1]) {
        if (text.matches(".off") && t < 0.45) put(text, from(t), 11, 4, false);
      }
      if (isForced && text.matches(".off")) put(text, from(first), 11, 4);
    });
  }

  /** How far along a line a label is clear of the box at its beginning, from 0 to 0.45. */
  beyond(along, box, text) {
    const from = along(0), scale = this.factor, half = widthOf(text.textContent, 11) / 2 + 8;
    for (let t = 0.1; t < 0.45; t += 0.025) {
      const { x, y } = along(t);
      if (Math.abs(x - from.x) > (box.width / 2 + half) * scale
        || Math.abs(y - from.y) > (box.height / 2 + 11) * scale) return t;
    }
    return 0.45;
  }
}

/** The traffic of links now in both directions, the share of the busiest direction in its rate,
 *  and whether most goes back. */
function use(links, rates) {
  let traffic = rates.size ? 0 : null, share = 0, balance = 0;
  for (const link of links) {
    const [there, back] = rates.get(link.number) ?? [{ bps: 0 }, { bps: 0 }];
    const capacity = bpsOf(link.rate);
    if (traffic !== null) traffic += there.bps + back.bps;
    balance += back.bps - there.bps;
    const busiest = Math.max(there.bps, back.bps);
    if (capacity > 0) share = Math.max(share, Math.min(busiest / capacity, 1));
  }
  return { traffic, share, isBack: balance > 0 };
}

function partOf(group) {
  const { node, link, cluster } = group.dataset;
  if (node !== undefined) return { kind: "node", key: node };
  if (cluster !== undefined) return { kind: "cluster", key: cluster };
  return link !== undefined ? { kind: "link", key: link } : null;
}
