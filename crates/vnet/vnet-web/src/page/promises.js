// The panel beside the map of a provider: for all hosts, or for the selected host or network.

import { facts, find, html } from "./elements.js";
import { hueOf } from "./hosts.js";
import { bits, lookOf, reasonOf, stateOf } from "./network.js";
import { span } from "./time.js";

const SHOWN = 200;

export class Promises {
  /** `choose` selects a host or network. */
  constructor(choose) {
    this.choose = choose;
    this.box = find("details");
    this.key = null;
  }

  show(view, chosen) {
    const host = chosen && chosen.kind === "host"
      && view.hosts.find((it) => it.name === chosen.key);
    const part = chosen && chosen.kind === "part"
      && view.parts.filter((it) => it.vnet === chosen.key);
    const parts = host ? this.host(view, host) : part && part.length ? this.part(part)
      : this.all(view);
    // Unchanged content is kept, so that it keeps the focus.
    const text = html("div", {}, parts);
    if (this.box.firstChild && this.box.firstChild.isEqualNode(text)) return;
    const place = document.activeElement && document.activeElement.dataset.goes;
    this.box.replaceChildren(text);
    if (place) this.box.querySelector(`[data-goes="${CSS.escape(place)}"]`)?.focus();
  }

  all(view) {
    const there = view.hosts.filter((it) => it.is_there).length;
    const excess = view.excess.map((text) => html("p", { class: "is-down" },
      "More is promised than there is: " + text));
    const discarded = Object.entries(view.discarded).map(([reason, count]) => html("tr", {}, [
      html("td", {}, reason), html("td", { class: "number" }, String(count))]));
    return [html("h2", {}, "All"), facts([["Hosts", `${there} of ${view.hosts.length} report`],
      ["Networks", new Set(view.parts.map((it) => it.vnet)).size],
      ["Nodes", view.parts.reduce((sum, it) => sum + it.nodes.length, 0)]]), ...excess,
    html("h2", {}, "Hosts"), this.hosts(view.hosts),
    html("h2", {}, "Networks"), this.parts(view.parts),
    html("h2", {}, "Links of the substrate"), lines(view.links),
    ...(discarded.length ? [html("h2", {}, "Messages that were discarded"),
      html("table", {}, discarded)] : [])];
  }

  go(part, text) {
    const button = html("button", { class: "plain", "data-goes": part.kind + " " + part.key },
      text);
    button.addEventListener("click", () => this.choose(part));
    return button;
  }

  heading(text) {
    const back = html("button", { class: "plain", title: "Esc", "data-goes": "all" }, "All");
    back.addEventListener("click", () => this.choose(null));
    return html("h2", {}, [back, html("span", {}, "› " + text)]);
  }

  hosts(hosts) {
    const rows = hosts.map((it) => html("tr", { class: "row" }, [
      html("td", {}, [this.go({ kind: "host", key: it.name }, it.name)]),
      html("td", { class: it.is_there ? "" : "is-down" }, it.is_there
        ? it.location + (it.is_drained ? ", drained" : "") : "silent"),
      html("td", { class: "number" }, share(it.cpus)),
      html("td", { class: "number" }, share(it.memory_mib))]));
    return html("table", {}, [head("Host", "Where", "CPUs", "MiB"), ...rows]);
  }

  parts(parts) {
    if (!parts.length) return html("p", { class: "hint" }, "There is no network here.");
    const more = parts.length - SHOWN;
    const rows = parts.slice(0, SHOWN).map((it) => {
      const up = it.nodes.filter((node) => lookOf(node.state) === "up").length;
      const swatch = html("i", { class: "swatch" });
      swatch.style.background = hueOf(it.vnet);
      return html("tr", { class: "row" }, [
        html("td", {}, [swatch, this.go({ kind: "part", key: it.vnet }, it.name)]),
        html("td", {}, it.vnp), html("td", { class: looks[it.state] }, it.state),
        html("td", { class: "number" }, `${up}/${it.nodes.length} up`)]);
    });
    return html("div", {}, [html("table", {},
      [head("Network", "For", "State", "Nodes"), ...rows]),
    ...(more > 0 ? [html("p", { class: "hint" }, `and ${more} more`)] : [])]);
  }

  host(view, host) {
    const nodes = view.parts.flatMap((part) => part.nodes
      .filter((node) => node.host === host.name).map((node) => ({ part, node })));
    const labels = Object.entries(host.labels).map(([key, value]) => `${key}=${value}`).join(", ");
    const heard = host.heard_ms === null ? "never, since this process began"
      : host.heard_ms < 5000 ? "now" : span(host.heard_ms) + " ago";
    const rows = nodes.map(({ part, node }) => html("tr", { class: "row" }, [
      html("td", {}, node.name), html("td", {}, [this.go({ kind: "part", key: part.vnet },
        part.name)]),
      html("td", { class: "is-" + lookOf(node.state) }, stateOf(node.state)),
      html("td", { class: "number" }, `${node.cpus}, ${node.memory_mib} MiB`)]));
    const links = view.links.filter((it) => it.hosts.includes(host.name));
    return [this.heading("Host " + host.name), facts([
      ["Reports", html("span", { class: host.is_there ? "is-up" : "is-down" }, heard)],
      ["New nodes", host.is_drained ? "none: it is drained" : ""],
      ["Location", host.location], ["Address", host.address], ["Labels", labels],
      ["Processors", words(host.cpus, "")], ["Memory", words(host.memory_mib, " MiB")],
      ["Network cards", host.nics.all ? words(host.nics, "") : ""]]),
    html("h2", {}, "Nodes"), nodes.length
      ? html("table", {}, [head("Node", "Network", "State", "CPUs, memory"), ...rows])
      : html("p", { class: "hint" }, "There is no node on it."),
    html("h2", {}, "Links of the substrate"), lines(links)];
  }

  part(parts) {
    const all = [this.heading("Network " + parts[0].name)];
    for (const it of parts) {
      const lease = it.state === "held" ? "held on a lease of the store"
        : it.expires_in_ms === null ? "" : "ends in "
          + Math.ceil(it.expires_in_ms / 60000) + " min, unless its VNP names it again";
      const nodes = it.nodes.map((node) => html("tr", { class: "row" }, [
        html("td", {}, node.name),
        html("td", {}, [this.go({ kind: "host", key: node.host }, node.host)]),
        html("td", { class: "is-" + lookOf(node.state) },
          [stateOf(node.state), reasonOf(node.state)].filter(Boolean).join(": ")),
        html("td", {}, `${node.kind}, ${node.image}`)]));
      const links = it.links.map((link) => html("tr", {}, [
        html("td", {}, link.ends.join(" — ")),
        html("td", { class: "is-" + lookOf(link.state) }, stateOf(link.state)),
        html("td", {}, [`${link.carrier}, ${link.rate}, tag ${link.tag}`,
          link.path.length ? "over " + link.path.join(", ") : "",
          link.outer.filter(Boolean).join(" → ")].filter(Boolean).join("; "))]));
      all.push(facts([["State", html("span", { class: looks[it.state] }, it.state)],
        ["For VNP", it.vnp], ["Uid", it.vnet], ["Round", it.round], ["Lease", lease],
        ["Still to let go", it.leaving_hosts.join(", ")]]),
      html("h2", {}, "Nodes"),
      html("table", {}, [head("Node", "Host", "State", "Kind"), ...nodes]));
      if (links.length) {
        all.push(html("h2", {}, "Links"),
          html("table", {}, [head("Link", "State", "Over the substrate"), ...links]));
      }
    }
    return all;
  }
}

const looks = { held: "is-late", made: "is-up", leaving: "is-late" };

const head = (...words) => html("tr", {}, words.map((it) => html("th", {}, it)));

const share = ({ all, promised }) => `${promised}/${all}`;

const words = ({ all, promised, used }, unit) => `${used}${unit} used, `
  + (promised > used ? `${promised - used}${unit} held, ` : "") + `of ${all}${unit}`;

function lines(links) {
  if (!links.length) return html("p", { class: "hint" }, "There is none in the inventory.");
  return html("table", {}, [head("Link", "Between", "Promised"), ...links.map((it) =>
    html("tr", {}, [html("td", {}, it.name),
      html("td", {}, it.hosts.length === 2 ? it.hosts.join(" — ") : it.hosts[0] + " — outside"),
      html("td", { class: "number" }, `${bits(it.rate_bps.promised)} of ${bits(it.rate_bps.all)}`),
    ]))]);
}
