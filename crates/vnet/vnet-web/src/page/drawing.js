// The dialog in which a network is drawn. What is drawn becomes a document, which the dialog of
// documents plans and makes.

import { ask, of } from "./ask.js";
import { act, find, html, keyed, save, say, set, svg } from "./elements.js";
import { widthOf } from "./figures.js";
import { store } from "./places.js";
import { toToml } from "./toml.js";

const RATE = "10Mbps";

export class Drawing {
  /** `view` is the state of the page, `documents` the dialog that makes networks, `map` the map
   *  whose positions a drawn network begins with. */
  constructor(view, documents, map) {
    Object.assign(this, { view, documents, map });
    this.dialog = find("drawing");
    this.svg = find("canvas");
    this.links = svg("g");
    this.nodes = svg("g");
    this.draft = svg("path", { class: "draft" });
    this.svg.append(this.links, this.draft, this.nodes);
    this.empty();
    const on = (id, work) => find(id).addEventListener("click", work);
    for (const id of ["open-drawing", "draw-first"]) on(id, () => this.open());
    on("drawing-plan", () => this.plan());
    on("drawing-save", () => save(new Blob([this.toml()]), this.document.vnet.name + ".toml"));
    on("drawing-clear", () => {
      this.empty();
      this.draw();
    });
    on("drawing-this", () => act(() => this.load()));
    find("drawing-name").addEventListener("input", (event) => {
      this.document.vnet.name = event.target.value;
    });
    find("drawing-kind").addEventListener("change", (event) => {
      this.document.defaults.kind = event.target.value;
    });
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("keydown", (event) => {
      const group = event.target.closest("[data-part]");
      if (group && (event.key === "Delete" || event.key === "Backspace")) {
        this.chosen = group.dataset.part;
        this.remove();
      } else if (group && event.key === "Enter") this.choose(group.dataset.part);
      else return;
      event.preventDefault();
    });
  }

  empty() {
    this.document = { vnet: { name: "drawn" }, defaults: { kind: "namespace" }, node: {},
      link: [] };
    this.at = new Map();
    this.chosen = null;
  }

  open() {
    if (this.dialog.open) return;
    find("drawing-this").hidden = this.view.name === null;
    this.dialog.showModal();
    this.draw();
  }

  /** Begins with the document of the shown network, at its positions on the map. */
  async load() {
    const { name } = this.view;
    const text = await ask("GET", of(name, "/document/json"), undefined, { as: "text" });
    const document = JSON.parse(text);
    this.document = { ...document, vnet: document.vnet, defaults: document.defaults ?? {},
      node: document.node ?? {}, link: document.link ?? [] };
    this.chosen = null;
    const names = Object.keys(this.document.node);
    const points = names.map((it) => this.map.at.get(it) ?? { x: 0, y: 0 });
    const { clientWidth, clientHeight } = this.svg;
    const scaled = (side, room) => {
      const all = points.map((it) => it[side]), least = Math.min(...all);
      const size = Math.max(Math.max(...all) - least, 1), fit = Math.min((room - 110) / size, 1);
      return (value) => room / 2 + (value - least - size / 2) * fit;
    };
    const [x, y] = [scaled("x", clientWidth), scaled("y", clientHeight)];
    this.at = new Map(names.map((it, place) => [it, { x: x(points[place].x),
      y: y(points[place].y) }]));
    this.draw();
  }

  /** The position of an event in the field. */
  place(event) {
    const box = this.svg.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  partAt(event) {
    const element = document.elementFromPoint(event.clientX, event.clientY);
    return element?.closest("#canvas [data-part]")?.dataset.part ?? null;
  }

  press(event) {
    if (event.button !== 0) return;
    const from = this.place(event), part = this.partAt(event);
    const node = part?.startsWith("node ") ? part.slice(5) : null;
    let isDrawn = false;
    const move = (now) => {
      const to = this.place(now);
      isDrawn = isDrawn || Math.hypot(to.x - from.x, to.y - from.y) > 6;
      if (!isDrawn || node === null) return;
      if (event.shiftKey) {
        this.at.set(node, to);
        this.draw();
      } else {
        const { x, y } = this.at.get(node);
        set(this.draft, { d: `M${x} ${y} L${to.x} ${to.y}` });
      }
    };
    const up = (now) => {
      removeEventListener("pointermove", move);
      set(this.draft, { d: "" });
      const end = this.partAt(now);
      if (!isDrawn && part) this.choose(part);
      else if (!isDrawn && this.chosen) this.choose(null);
      else if (!isDrawn) this.addNode(from);
      else if (node !== null && !event.shiftKey && end?.startsWith("node ")) {
        this.addLink(node, end.slice(5));
      }
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", up, { once: true });
  }

  addNode(at) {
    let number = 1;
    while (`r${number}` in this.document.node) number += 1;
    const name = `r${number}`;
    this.document.node[name] = {};
    this.at.set(name, at);
    this.draw();
  }

  addLink(a, b) {
    if (a === b) return;
    const rate = this.document.link.at(-1)?.rate ?? RATE;
    this.document.link.push({ ends: [a, b], rate });
    this.choose("link " + (this.document.link.length - 1));
  }

  choose(part) {
    this.chosen = part;
    this.draw();
    const field = find("drawing-part").querySelector("input");
    if (field) field.select();
  }

  remove() {
    const [kind, key] = this.chosen.split(" ");
    if (kind === "link") this.document.link.splice(Number(key), 1);
    else {
      delete this.document.node[key];
      this.at.delete(key);
      const isOf = (end) => end.split(":")[0] === key;
      this.document.link = this.document.link.filter((it) => !it.ends.some(isOf));
    }
    this.chosen = null;
    this.draw();
  }

  rename(old, name) {
    const { node, link } = this.document;
    if (name === old || name === "" || name in node) return;
    this.document.node = Object.fromEntries(Object.entries(node).map(([key, value]) =>
      [key === old ? name : key, value]));
    for (const it of link) {
      it.ends = it.ends.map((end) =>
        end.split(":")[0] === old ? name + end.slice(old.length) : end);
    }
    this.at.set(name, this.at.get(old));
    this.at.delete(old);
    this.chosen = "node " + name;
  }

  draw() {
    find("drawing-name").value = this.document.vnet.name;
    find("drawing-kind").value = this.document.defaults.kind ?? "vm";
    const nodes = Object.keys(this.document.node);
    keyed(this.nodes, nodes, (it) => it, (name) => svg("g", { "data-part": "node " + name,
      tabindex: "0", role: "button" }, [svg("rect", { class: "shape" }), svg("text", { y: 5 })]),
    (group, name) => {
      const { x, y } = this.at.get(name), width = Math.max(52, widthOf(name) + 26);
      set(group, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, "aria-label": name,
        class: "node up" + (this.chosen === "node " + name ? " chosen" : "") });
      set(group.firstChild, { x: -width / 2, y: -16, width, height: 32, rx: 8 });
      say(group.lastChild, name);
    });
    keyed(this.links, this.document.link.map((link, place) => ({ link, place })), (it) => it.place,
      (it) => svg("g", { "data-part": "link " + it.place, tabindex: "0", role: "button" },
        [svg("path", { class: "wire" }), svg("path", { class: "touch" }), svg("text")]),
      (group, { link, place }) => {
        const [a, b] = link.ends.map((end) => this.at.get(end.split(":")[0]));
        set(group, { "aria-label": link.ends.join(" — "),
          class: "link up" + (this.chosen === "link " + place ? " chosen" : "") });
        for (const path of [...group.children].slice(0, 2)) {
          set(path, { d: `M${a.x} ${a.y} L${b.x} ${b.y}` });
        }
        set(group.lastChild, { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - 6 });
        say(group.lastChild, String(link.rate));
      });
    this.drawPart();
  }

  /** The fields of the chosen node or link. */
  drawPart() {
    const box = find("drawing-part");
    if (box.dataset.part === String(this.chosen)) return;
    box.dataset.part = String(this.chosen);
    box.replaceChildren();
    if (this.chosen === null) return;
    const [kind, key] = this.chosen.split(" ");
    const field = (label, value, change) => {
      const input = html("input", { value, autocomplete: "off", spellcheck: "false" });
      input.addEventListener("change", () => {
        change(input.value.trim());
        this.draw();
      });
      return html("label", {}, [label + " ", input]);
    };
    const remove = html("button", { type: "button", class: "danger" }, "Remove");
    remove.addEventListener("click", () => this.remove());
    if (kind === "link") {
      const link = this.document.link[Number(key)];
      box.append(html("span", {}, "Link " + link.ends.join(" — ")),
        field("Rate", link.rate, (text) => { if (text) link.rate = text; }),
        field("Delay", link.delay ?? "", (text) => {
          if (text) link.delay = text;
          else delete link.delay;
        }), remove);
    } else box.append(field("Node", key, (text) => this.rename(key, text)), remove);
  }

  toml() {
    return toToml(this.document);
  }

  /** Opens the dialog of documents with the drawn document, and shows its plan. */
  plan() {
    const title = `${find("whose").textContent} ${this.document.vnet.name}`;
    if (!this.view.names.includes(this.document.vnet.name)) store(title, this.at);
    this.dialog.close();
    this.documents.put(this.toml());
    this.documents.open();
    this.documents.look();
  }
}
