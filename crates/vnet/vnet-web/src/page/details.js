// The panel beside the map, for the network or for the selected node or link.

import { ask, of } from "./ask.js";
import { capture } from "./capture.js";
import { act, facts, find, html, keyed, say } from "./elements.js";
import { bits, isImpaired, lookOf, nodeOf, reasonOf, stateOf, wantedOf } from "./network.js";
import { console_ } from "./screen.js";
import { openWindow } from "./terminal.js";
import { trace } from "./trace.js";

const FINDABLE = 10, ROWS_MAX = 120;
const CONDITIONS = [["Admitted", "admitted"], ["Reserved", "resources are held"],
  ["Provisioned", "all nodes run"], ["LinksUp", "probes have passed all links"],
  ["ConsoleReady", "all consoles answer"], ["Ready", "ready"]];

export class Details {
  /** `view` is the state of the page; `choose` selects a node or link, `refresh` updates at
   *  once. */
  constructor(view, choose, refresh) {
    this.view = view;
    this.choose = choose;
    this.refresh = refresh;
    this.box = find("details");
    this.found = new Set();
    this.key = null;
  }

  can(what) {
    return this.view.can.has(what);
  }

  /** Shows a network. Inputs are kept while the selection stays the same. */
  show(report, rates, chosen) {
    const { view } = this;
    const key = JSON.stringify([view.name, chosen, view.isPast]);
    const isSame = key === this.key;
    this.key = key;
    if (!isSame) {
      this.found.clear();
      this.box.replaceChildren(html("div", { id: "facts" }), html("div", { id: "controls" }),
        html("div", { id: "more" }));
    }
    const link = chosen && chosen.kind === "link"
      && report.links.find((it) => String(it.number) === chosen.key);
    const node = chosen && chosen.kind === "node"
      && report.nodes.find((it) => it.name === chosen.key);
    if (link) this.link(report, link, rates.get(link.number), isSame);
    else if (node) this.node(report, node, rates, isSame);
    else this.network(report, rates, isSame);
  }

  /** Shows nothing. */
  clear() {
    this.key = null;
    this.box.replaceChildren();
  }

  heading(text) {
    const back = html("button", { class: "plain", title: "Esc" }, this.view.name);
    back.addEventListener("click", () => this.choose(null));
    return html("h2", {}, [back, html("span", {}, "› " + text)]);
  }

  stillWanted() {
    const key = this.key;
    return () => this.key === key;
  }

  link(report, link, rates, isSame) {
    const [a, b] = link.ends;
    const rows = [["State", word(link.state)], ["Why", reasonOf(link.state)],
      ["Rate", link.rate], ["Carrier", link.carrier]];
    if (link.rtt_ns) rows.push(["Round trip of the last probe", millis(link.rtt_ns)]);
    for (const [key, text] of [["delay_max", "Delay at most"], ["loss_max", "Loss at most"]]) {
      rows.push([text, wantedOf(report, link)?.[key]]);
    }
    if (link.passed) {
      const [there, back] = rates ?? [{ bps: 0, dropped: 0 }, { bps: 0, dropped: 0 }];
      const line = (rate, passed) => `${bits(rate.bps)}, ${passed.frames} frames, ${bytes(passed)}`
        + (passed.dropped ? `, ${passed.dropped} dropped` : "")
        + (passed.lost ? `, ${passed.lost} lost by impairment` : "");
      rows.push([`From ${nodeOf(a)}`, line(there, link.passed[0])],
        [`From ${nodeOf(b)}`, line(back, link.passed[1])]);
    }
    for (const [side, end] of [["there", a], ["back", b]]) {
      const worse = link.impairment && link.impairment[side];
      if (worse) {
        const words = Object.entries(worse).map(([key, value]) => key + "=" + value).join(" ");
        rows.push(["Impaired from " + nodeOf(end), words]);
      }
    }
    find("facts").replaceChildren(this.heading("Link " + a + " — " + b), facts(rows));
    if (isSame || this.view.isPast) return;
    const controls = find("controls");
    if (this.can("impair")) controls.append(...this.impairment(link));
    if (this.can("capture")) controls.append(capture(this.view.name, link, this.stillWanted()));
  }

  impairment(link) {
    const form = html("form", { id: "impair", class: "fields" });
    const now = (link.impairment && (link.impairment.there || link.impairment.back)) || {};
    for (const [name, example] of [["delay", "20ms"], ["jitter", "5ms"], ["loss", "1%"],
      ["duplicate", "1%"], ["reorder", "1%"], ["corrupt", "1%"], ["rate", "1Mbps"]]) {
      form.append(html("label", {}, [name, html("input", { name, placeholder: example,
        autocomplete: "off", value: now[name] ?? "" })]));
    }
    const way = html("select", { name: "way", "aria-label": "Which direction" }, [
      html("option", { value: "both" }, "both directions"),
      html("option", { value: "there" }, "from " + link.ends[0]),
      html("option", { value: "back" }, "from " + link.ends[1])]);
    const clear = html("button", { type: "button", id: "clear" }, "Clear");
    form.append(html("p", { class: "buttons whole" },
      [way, html("button", { class: "main" }, "Impair"), clear]));
    const set = (body) => act(async () => {
      const path = of(this.view.name, "/links/" + link.number + "/impairment");
      await ask("PUT", path, body);
      await this.refresh();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const side = {};
      for (const input of form.querySelectorAll("input")) {
        if (input.value.trim()) side[input.name] = input.value.trim();
      }
      const body = {};
      for (const name of ["there", "back"]) {
        const isMeant = way.value === "both" || way.value === name;
        const other = link.impairment && link.impairment[name];
        if (isMeant) body[name] = side;
        else if (other) body[name] = other;
      }
      set(body);
    });
    clear.addEventListener("click", () => {
      for (const input of form.querySelectorAll("input")) input.value = "";
      set({});
    });
    return [html("h2", {}, "Make it worse"), form];
  }

  node(report, node, rates, isSame) {
    const wanted = node.wanted ?? {};
    const rows = [["State", word(node.state)], ["Why", reasonOf(node.state)],
      ["Kind", node.kind]];
    if (this.can("console")) rows.push(["Console", node.is_console_ready ? "answers" : "silent"]);
    for (const key of ["image", "cpus", "memory", "location", "boot", "apart_from"]) {
      const value = wanted[key];
      rows.push([key, Array.isArray(value) ? value.join(", ") : value]);
    }
    for (const it of node.interfaces) {
      rows.push([it.name, `${it.address}, ${it.mac}, MTU ${it.mtu}`]);
    }
    const own = report.links.filter((link) => link.ends.some((end) => nodeOf(end) === node.name));
    find("facts").replaceChildren(this.heading("Node " + node.name), facts(rows));
    find("more").replaceChildren(html("h2", {}, "Links"), this.linkTable(own, rates));
    if (isSame || this.view.isPast) return;
    const box = html("div");
    find("controls").append(box);
    if (this.can("console") && !this.view.isOperator) this.openConsole(box, node.name);
    else if (this.can("console")) {
      // Providers log who gets into a node; showing the node's state is no reason to do that.
      const open = html("button", { id: "open-console" }, "Open console");
      open.addEventListener("click", () => this.openConsole(box, node.name));
      box.append(html("p", { class: "buttons" }, [open]));
    }
    const others = report.nodes.map((it) => it.name).filter((name) => name !== node.name);
    if (this.can("trace") && others.length) {
      find("controls").append(trace(this.view.name, node.name, others));
    }
  }

  openConsole(box, node) {
    const { element, type } = console_(this.view.name, node, this.stillWanted());
    const line = html("input", { id: "line", autocomplete: "off", spellcheck: "false",
      placeholder: "a line, and Enter", "aria-label": "A line for the console" });
    const form = html("form", { class: "line" }, [line, html("button", {}, "Send")]);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      type(line.value + "\r");
      line.value = "";
    });
    const apart = html("button", { type: "button", id: "console-window",
      title: "Open the console in a window of its own, which takes the whole keyboard" }, "Window");
    apart.addEventListener("click", () => openWindow(this.view.name, node));
    box.replaceChildren(html("h2", {}, [html("span", {}, "Console"), apart]), element, form);
  }

  linkTable(links, rates) {
    return html("table", {}, links.map((link) =>
      this.row({ kind: "link", key: String(link.number) }, link.ends.join(" — "),
        link.state, isImpaired(link), [link.rate, trafficOf(link, rates)])));
  }

  row(part, name, state, isWorse, last) {
    const button = html("button", { class: "plain" }, name);
    button.addEventListener("click", () => this.choose(part));
    return html("tr", { class: "row" }, [html("td", {}, [button]),
      html("td", {}, [word(state, isWorse)]),
      ...last.map((text) => html("td", { class: "number" }, String(text)))]);
  }

  network(report, rates, isSame) {
    const up = (all) => all.filter((it) => lookOf(it.state) === "up").length;
    const rows = [["Nodes", `${up(report.nodes)} of ${report.nodes.length} up`],
      ["Links", `${up(report.links)} of ${report.links.length} up`],
      ["Generation", report.generation]];
    if (report.ready_after_ms !== undefined) {
      rows.push(["Ready after", took(report.ready_after_ms)]);
    }
    for (const it of report.phases ?? []) {
      rows.push(["· " + it.phase, took(it.took_ms)]);
    }
    for (const [key, text] of report.conditions ? CONDITIONS : []) {
      rows.push([text, report.conditions.includes(key) ? "yes" : "no"]);
    }
    const reasons = (report.obstacles ?? []).map((text) => html("p", { class: "is-late" }, text));
    find("facts").replaceChildren(html("h2", {}, report.name), facts(rows), ...reasons);
    const controls = find("controls");
    if (!isSame) {
      const field = html("input", { id: "find", type: "search", placeholder: "Find a node or link",
        "aria-label": "Find a node or link" });
      field.addEventListener("input", () => this.refresh(true));
      const head = (...words) => html("thead", {}, [html("tr", {}, words.map((it, place) =>
        html("th", place > 1 ? { class: "number" } : {}, it)))]);
      const more = (id) => html("p", { class: "hint", id });
      const [nodes, links] = ["all-nodes", "all-links"].map((id) => html("tbody", { id }));
      const linkHead = head("Link", "State", "Rate", ...(rates.size ? ["Traffic now"] : []));
      controls.append(field, html("h2", {}, "Nodes"), html("table", {}, [nodes]),
        more("more-nodes"), html("h2", {}, "Links"), html("table", {}, [linkHead, links]),
        more("more-links"));
    }
    const field = find("find");
    field.hidden = report.nodes.length + report.links.length < FINDABLE;
    const text = field.value.trim().toLowerCase();
    const isFound = (words) => words.toLowerCase().includes(text);
    const nodes = report.nodes.filter((it) => isFound(it.name + " " + it.kind));
    const links = report.links.filter((it) => isFound(it.ends.join(" ")));
    this.found.clear();
    if (text) {
      for (const it of nodes) this.found.add("node " + it.name);
      for (const it of links) this.found.add("link " + it.number);
    }
    this.fill("nodes", nodes, (it) => "node " + it.name, (it) =>
      [it.name, it.state, false, [it.kind]]);
    this.fill("links", links, (it) => "link " + it.number, (it) =>
      [it.ends.join(" — "), it.state, isImpaired(it), [it.rate, trafficOf(it, rates)]]);
  }

  /** Keeps rows whose content is unchanged, so that they keep the focus. */
  fill(what, items, key, cells) {
    const hidden = items.length - ROWS_MAX;
    say(find("more-" + what), hidden > 0 ? `and ${hidden} more: find them by name` : "");
    // What is not up comes first, so that no limit hides it.
    const isBad = (item) => lookOf(item.state) === "up" ? 0 : 1;
    const shown = hidden > 0 ? items.slice().sort((a, b) => isBad(b) - isBad(a)).slice(0, ROWS_MAX)
      : items;
    keyed(find("all-" + what), shown, key, (item) => {
      const name = key(item), kind = name.slice(0, 4);
      return this.row({ kind, key: name.slice(5) }, "", "absent", false,
        what === "nodes" ? [""] : ["", ""]);
    }, (row, item) => {
      const [name, state, isWorse, last] = cells(item);
      const [title, place, ...numbers] = row.children;
      say(title.firstChild, name);
      const next = word(state, isWorse);
      if (place.firstChild.outerHTML !== next.outerHTML) place.replaceChildren(next);
      numbers.forEach((cell, column) => say(cell, String(last[column])));
    });
  }
}

/** The traffic of a link now, both directions together, as text; empty if it is not known. */
function trafficOf(link, rates) {
  const pair = rates.get(link.number);
  return pair ? bits(pair[0].bps + pair[1].bps) : "";
}

/** An element with a state in its colour. */
function word(state, isWorse = false) {
  const look = isWorse ? "late" : lookOf(state);
  return html("span", { class: "is-" + look }, isWorse ? "impaired" : stateOf(state));
}

const took = (ms) => ms < 100 ? ms.toFixed(1) + " ms" : (ms / 1000).toFixed(2) + " s";

const millis = (ns) => (ns / 1e6).toFixed(ns < 1e7 ? 3 : 1) + " ms";

function bytes({ bytes }) {
  for (const [unit, word] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (bytes >= unit) return (bytes / unit).toFixed(1) + " " + word;
  }
  return bytes + " bytes";
}
