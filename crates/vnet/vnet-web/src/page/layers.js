// The layers of a network: its nodes, the namespaces and processes on the host that realize them,
// and the DIFs of the host's Carina node.

import { facts, html, svg } from "./elements.js";
import { lookOf, nodeOf } from "./network.js";

const GAP = 34, BOX = { width: 158, height: 46 }, PAD = 26, HEAD = 30;

/** Draws all layers into a group, and returns their extent. `at` has the positions of the nodes
 *  on the map. */
export function draw(group, report, at, substrate) {
  const places = substrate.places.filter((it) => it.vnet === report.name);
  const columns = Math.max(6, Math.ceil(Math.sqrt(places.length * 2)));
  const width = columns * (BOX.width + 12) + 2 * PAD;
  const planes = [], ropes = [];
  let top = 0;
  const plane = (name, height) => {
    const it = { top, height: height + HEAD + PAD };
    planes.push(svg("g", {}, [
      svg("rect", { class: "plane", x: 0, y: top, width, height: it.height, rx: 12 }),
      svg("text", { class: "plane-name", x: 14, y: top + 20 }, name)]));
    top += it.height + GAP;
    return it.top + HEAD;
  };

  const spots = network(planes, report, at, width, plane);
  const order = places.slice().sort((a, b) =>
    (spots.get(a.node)?.x ?? 0) - (spots.get(b.node)?.x ?? 0));
  const far = [...new Set(report.links.flatMap((link) => link.ends)
    .filter((end) => !report.nodes.some((node) => node.name === nodeOf(end))))];
  const boxes = grid(order.length + far.length, columns);
  const host = "Substrate: " + substrate.host
    + (substrate.underlay ? ", links to other hosts over " + substrate.underlay : "");
  const ground = plane(host, boxes.height);
  order.forEach((place, number) => {
    const { x, y } = boxes.at(number, ground);
    const second = place.pid ? "QEMU, process " + place.pid : "namespace";
    planes.push(box(x, y, place.node, second, place.is_there ? "up" : "down",
      `${place.node}: ${second}, in ${place.namespace}`));
    const spot = spots.get(place.node);
    if (spot) ropes.push(rope(spot.x, spot.y + 17, x, y - BOX.height / 2));
  });
  far.forEach((name, number) => {
    const { x, y } = boxes.at(order.length + number, ground);
    planes.push(box(x, y, name, "elsewhere", "unknown", name));
  });
  difs(planes, substrate, columns, plane);
  group.replaceChildren(...planes, ...ropes);
  return { x: 0, y: 0, width, height: top - GAP };
}

/** The layer of the network, with its nodes at their positions on the map, scaled. */
function network(planes, report, at, width, plane) {
  const points = report.nodes.map((node) => at.get(node.name)).filter(Boolean);
  const bound = (side, pick) => points.length ? pick(...points.map((it) => it[side])) : 0;
  const [left, right] = [bound("x", Math.min), bound("x", Math.max)];
  const [high, low] = [bound("y", Math.min), bound("y", Math.max)];
  const height = points.length < 2 ? 60 : Math.min(Math.max((low - high) * 0.55, 90), 420);
  const top = plane("Network " + report.name, height);
  const scale = (value, from, to, length) =>
    to === from ? length / 2 : (value - from) / (to - from) * length;
  const spots = new Map(report.nodes.map((node) => {
    const { x, y } = at.get(node.name);
    return [node.name, {
      x: PAD + 50 + scale(x, left, right, width - 2 * PAD - 100),
      y: top + 18 + scale(y, high, low, height - 36),
    }];
  }));
  for (const link of report.links) {
    const [a, b] = link.ends.map((end) => spots.get(nodeOf(end)));
    if (!a || !b) continue;
    planes.push(svg("g", { class: "link " + lookOf(link.state) }, [
      svg("title", {}, link.ends.join(" — ")),
      svg("path", { class: "wire", d: `M${a.x} ${a.y} L${b.x} ${b.y}` })]));
  }
  for (const node of report.nodes) {
    const { x, y } = spots.get(node.name), width = Math.max(48, node.name.length * 8 + 18);
    const group = svg("g", { class: "node " + lookOf(node.state), tabindex: "0", role: "button",
      "data-node": node.name, transform: `translate(${x} ${y})`,
      "aria-label": "Node " + node.name }, [
      svg("rect", { class: "shape", x: -width / 2, y: -15, width, height: 30,
        rx: node.kind === "namespace" ? 15 : 4 }),
      svg("text", { y: 5 }, node.name)]);
    planes.push(group);
  }
  return spots;
}

/** The DIFs in which the host's Carina node has members; a DIF is above those that it runs over. */
function difs(planes, substrate, columns, plane) {
  const { node } = substrate;
  if (!node) {
    const top = plane("DIFs", 22);
    planes.push(svg("text", { class: "plane-name", x: 14, y: top + 14 },
      "No node answers here: `carina node` starts one."));
    return;
  }
  const rank = new Map();
  const rankOf = (name, depth = 0) => {
    if (rank.has(name)) return rank.get(name);
    const members = node.ipcps.filter((it) => it.dif === name && it.member);
    const below = members.flatMap((it) => it.member.over);
    const mine = depth > 16 || !below.length ? 0
      : 1 + Math.max(...below.map((it) => rankOf(it, depth + 1)));
    rank.set(name, mine);
    return mine;
  };
  const names = node.difs.map((dif) => dif.name);
  const rows = [];
  for (const name of names) (rows[rankOf(name)] ??= []).push(name);
  rows.reverse();
  const grids = rows.map((row) => grid(row.length, columns));
  const height = grids.reduce((sum, it) => sum + it.height + 26, 0);
  let top = plane(`DIFs of node ${node.name}`, Math.max(height, 22));
  if (!names.length) {
    planes.push(svg("text", { class: "plane-name", x: 14, y: top + 14 }, "It is in no DIF."));
  }
  const spots = new Map();
  rows.forEach((row, level) => {
    row.forEach((name, number) => spots.set(name, grids[level].at(number, top)));
    top += grids[level].height + 26;
  });
  for (const { dif, member } of node.ipcps) {
    for (const below of member ? member.over : []) {
      const [a, b] = [spots.get(dif), spots.get(below)];
      if (a && b) {
        planes.push(svg("path", { class: "over",
          d: `M${a.x} ${a.y + BOX.height / 2} L${b.x} ${b.y - BOX.height / 2}` }));
      }
    }
  }
  for (const dif of node.difs) {
    const ipcps = node.ipcps.filter((it) => it.dif === dif.name);
    const flows = ipcps.reduce((sum, it) => sum + it.flows, 0);
    const isUp = ipcps.some((it) => it.state === "up");
    const { x, y } = spots.get(dif.name);
    planes.push(box(x, y, dif.name, `${dif.type}, ${flows} flows`, isUp ? "up" : "down",
      `${dif.name}: ${ipcps.map((it) => it.name).join(", ")}`));
  }
}

/** The positions of `count` boxes in rows. */
function grid(count, columns) {
  const rows = Math.max(1, Math.ceil(count / columns));
  const step = BOX.width + 12, high = BOX.height + 14;
  return {
    height: rows * high - 14,
    at: (number, top) => {
      const row = Math.floor(number / columns);
      const inRow = Math.min(columns, count - row * columns);
      const first = PAD + (columns - inRow) * step / 2 + BOX.width / 2;
      return { x: first + (number % columns) * step, y: top + row * high + BOX.height / 2 };
    },
  };
}

function box(x, y, name, second, look, words) {
  const fit = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
  return svg("g", { class: "node place " + look, transform: `translate(${x} ${y})` }, [
    svg("title", {}, words),
    svg("rect", { class: "shape", x: -BOX.width / 2, y: -BOX.height / 2, ...BOX, rx: 5 }),
    svg("text", { y: -3 }, fit(name, 19)), svg("text", { class: "small", y: 14 },
      fit(second, 26))]);
}

function rope(x, y, toX, toY) {
  const middle = (y + toY) / 2;
  return svg("path", { class: "rope",
    d: `M${x} ${y} C${x} ${middle} ${toX} ${middle} ${toX} ${toY}` });
}

/** The same as text, for the panel. */
export function tables(substrate, network) {
  const places = substrate.places.filter((it) => it.vnet === network);
  const head = (...words) => html("tr", {}, words.map((it) => html("th", {}, it)));
  const line = (...words) => html("tr", {}, words.map((it) => html("td", {}, String(it))));
  const parts = [html("h2", {}, "Substrate"), facts([["Host", substrate.host],
    ["Underlay", substrate.underlay], ["Networks here",
      new Set(substrate.places.map((it) => it.vnet)).size]]),
    html("table", {}, [head("Node", "Process", "Namespace"), ...places.map((it) =>
      line(it.node, it.pid ?? (it.is_there ? "–" : "gone"), it.namespace))])];
  const { node } = substrate;
  parts.push(html("h2", {}, "DIFs"));
  if (!node) {
    parts.push(html("p", { class: "hint" }, substrate.node_refusal));
    return parts;
  }
  const over = (it) => it.member ? it.member.over.join(", ") || "–" : it.peer ?? "–";
  const state = (it) => it.member ? it.member.state : it.state;
  parts.push(html("table", {}, [head("DIF", "IPCP", "State", "Over, or peer", "Flows"),
    ...node.ipcps.map((it) => line(it.dif, it.name, state(it), over(it), it.flows))]));
  if (node.flows.length) {
    parts.push(html("h2", {}, "Flows"), html("table", {}, [head("Local", "Remote", "DIF", "State"),
      ...node.flows.slice(0, 100).map((it) => line(it.local, it.remote, it.dif, it.state))]));
  }
  return parts;
}
