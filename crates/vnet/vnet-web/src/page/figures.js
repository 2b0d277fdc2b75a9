// How nodes, clusters and links look on the map. Groups that hold text are scaled against the
// map's zoom, so that text and strokes have the same size on the screen at any zoom.

import { set, say, svg } from "./elements.js";
import { bits, isImpaired, lookOf, stateOf } from "./network.js";

/** Drawings by role, about 16 units wide, around the origin. */
const ICONS = {
  router: "M-7 0a7 7 0 1 0 14 0a7 7 0 1 0-14 0M-4 0H4M2.2-1.8 4 0 2.2 1.8M-2.2-1.8-4 0-2.2 1.8"
    + "M0-4V4",
  switch: "M-7.5-6h15v12h-15zM-4-2H4M2-4 4-2 2 0M4 2.5H-4M-2 .5-4 2.5-2 4.5",
  host: "M-7-6H7V3H-7zM0 3V6M-4 6.5H4",
  far: "M-7 0a7 7 0 1 0 14 0a7 7 0 1 0-14 0M-7 0H7M0-7c-4.5 4-4.5 10 0 14c4.5-4 4.5-10 0-14",
};
const HEIGHT = 40, DOT = 10, CLUSTER_DOT = 15;

const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();

/** The width of a text on the screen, in pixels. */
export function widthOf(text, size = 13) {
  const key = size + " " + text;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    pen.font = `${size}px system-ui, sans-serif`;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

/** The size of a node's or a cluster's box on the screen. */
export function boxOf(item) {
  const second = item.members ? countOf(item) : wordsBelow(item);
  const width = Math.max(widthOf(titleOf(item), 13), widthOf(second, 11)) + 44;
  return { width: Math.max(76, Math.ceil(width)), height: HEIGHT };
}

/** About the size of a cluster's box. */
export const CLUSTER_BOX = { width: 122, height: HEIGHT + 12 };

/** The size of the icon of a node or a cluster. */
export function dotOf(item) {
  const side = 2 * (item.members ? CLUSTER_DOT : DOT);
  return { width: side, height: side };
}

export const titleOf = (item) => item.title ?? item.name;

const countOf = ({ members, down }) => `${members.length} nodes`
  + (down ? `, ${down} not up` : "");

function wordsBelow(node) {
  if (node.isFar) return "elsewhere";
  return lookOf(node.state) === "up" ? node.kind : stateOf(node.state);
}

/** A group for a node or a cluster. */
export function makeNode(item) {
  const data = item.members ? { "data-cluster": item.lead } : { "data-node": item.name };
  const attributes = item.isFar ? {} : { tabindex: "0", role: "button", ...data };
  return svg("g", attributes, [svg("title"), svg("rect", { class: "back" }),
    svg("rect", { class: "shape" }), svg("path", { class: "icon" }), svg("text"),
    svg("text", { class: "small" })]);
}

/** Draws a node or a cluster: a box with its name; or, with `isDot`, its icon alone. */
export function drawNode(group, item, { isDot, isChosen, isFound }) {
  const look = item.isFar ? "unknown place" : item.members
    ? (item.isDown ? "down" : item.down ? "unknown" : "up") : lookOf(item.state);
  const classes = ["node", look, item.role, item.members && "cluster", isDot && "dot",
    isChosen && "chosen", isFound && "found"];
  const name = titleOf(item), second = item.members ? countOf(item) : wordsBelow(item);
  const words = item.members ? `Cluster ${name}, ${second}: click to show its nodes`
    : `Node ${name}, ${second}` + (lookOf(item.state ?? "up") === "up" ? ", up" : "");
  set(group, { class: classes.filter(Boolean).join(" "), "aria-label": words });
  const [title, back, shape, icon, first, small] = group.children;
  say(title, words);
  const isBoxed = !isDot;
  const { width, height } = isBoxed ? boxOf(item) : dotOf(item);
  const radius = isDot ? (item.role === "router" || item.role === "far" ? DOT : 5)
    : item.kind === "namespace" ? height / 2 : 6;
  const box = { x: -width / 2, y: -height / 2, width, height, rx: radius };
  set(shape, box);
  const off = isDot ? 3 : 5, isCounted = isDot && item.members;
  set(back, item.members ? { ...box, x: box.x + off, y: box.y + off } : { width: 0, height: 0 });
  set(icon, { d: isCounted ? "" : item.members ? CLUSTER_ICON : ICONS[item.role] ?? ICONS.router,
    transform: isDot ? "scale(.72)" : `translate(${-width / 2 + 19} 0)` });
  say(first, name);
  set(first, isDot ? { x: 0, y: height / 2 + 14 } : { x: 12, y: -2 });
  say(small, isCounted ? String(item.members.length) : isDot ? "" : second);
  set(small, isDot ? { x: 0, y: 4 } : { x: 12, y: 13 });
}

const CLUSTER_ICON = "M-6-5a2.2 2.2 0 1 0 .1 0M6-5a2.2 2.2 0 1 0 .1 0M0 2a2.2 2.2 0 1 0 .1 0"
  + "M-3.8-2.8H3.8M-4.6-1.2-1.4 2.6M4.6-1.2 1.4 2.6";

/** A group for a link, or for all links between a cluster and another part. */
export function makeLink(line) {
  const attributes = line.link
    ? { tabindex: "0", role: "button", "data-link": line.link.number } : {};
  const path = (kind) => svg("path", { class: kind });
  const text = (kind) => svg("text", { class: "label " + kind });
  return svg("g", attributes, [svg("title"), path("wire"), path("flow"), path("touch"),
    text("rate"), text("small traffic"), text("small port"), text("small port")]);
}

/** Draws a link. The figure beside it is the rate that it carries at most; its traffic now shows
 *  as width and motion, and as a figure when it is chosen or pointed at. */
export function drawLink(group, line, { isChosen, isFound, isBeside }) {
  const { links, traffic, share, isBack } = line;
  const worst = WORST.find((look) => links.some((it) => lookOf(it.state) === look)) ?? "up";
  const worse = links.filter(isImpaired).length;
  const classes = ["link", worst, worse && "impaired", !line.link && "bundle",
    isChosen && "chosen", isBeside && "beside", isFound && "found", traffic >= 1 && "busy",
    isBack && "back"];
  const now = traffic === null ? "" : `, ${bits(traffic)} now`;
  const down = links.filter((it) => lookOf(it.state) !== "up").length;
  const words = line.link
    ? `${line.link.ends.join(" — ")}, ${stateOf(line.link.state)}${worse ? ", impaired" : ""}`
      + `${now}, rate ${line.link.rate}`
    : `${links.length} links${down ? `, ${down} not up` : ""}${now}`;
  set(group, { class: classes.filter(Boolean).join(" "), "aria-label": "Link " + words });
  const [title, wire, , , rate, figure] = group.children;
  say(title, words);
  const base = line.link ? 2 : Math.min(2 + Math.log2(links.length) / 2, 4.5);
  wire.style.setProperty("--width", (base + 4 * Math.sqrt(share)).toFixed(1) + "px");
  say(rate, line.link ? String(line.link.rate) : links.length + " links");
  say(figure, traffic === null ? "" : bits(traffic) + " now");
}

const WORST = ["down", "unknown"];

/** The path of a line between two points, and points along it. Parallel lines are bent. */
export function course(a, b, { nth, count, isTurned }) {
  if (a === b) {
    const path = `M${a.x - 10} ${a.y - 18} C${a.x - 50} ${a.y - 80} ${a.x + 50} ${a.y - 80} `
      + `${a.x + 10} ${a.y - 18}`;
    return { path, length: 100, along: () => ({ x: a.x, y: a.y - 70 }) };
  }
  const bend = (nth - (count - 1) / 2) * 76 * (isTurned ? -1 : 1);
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const via = { x: (a.x + b.x) / 2 - (b.y - a.y) / length * bend,
    y: (a.y + b.y) / 2 + (b.x - a.x) / length * bend };
  const point = ({ x, y }) => x.toFixed(1) + " " + y.toFixed(1);
  const path = bend === 0 ? `M${point(a)} L${point(b)}`
    : `M${point(a)} Q${point(via)} ${point(b)}`;
  const along = (t) => ({
    x: (1 - t) * (1 - t) * a.x + 2 * t * (1 - t) * via.x + t * t * b.x,
    y: (1 - t) * (1 - t) * a.y + 2 * t * (1 - t) * via.y + t * t * b.y,
  });
  return { path, length, along };
}
