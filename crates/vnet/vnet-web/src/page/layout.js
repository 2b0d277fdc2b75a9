// Positions of nodes; deterministic for the same network.

import { layered, neighbours } from "./roles.js";

/** The positions of nodes, by name, in about this area of `{ width, height }`: in tiers if the
 *  network has `tiers`. `boxes` has the size of a node by name. */
export function placed(names, pairs, area, boxes, tiers) {
  const own = pairs.filter(([a, b]) => a !== b);
  if (tiers) {
    // Nodes may become icons; clusters should stay boxes.
    const room = names.some((name) => name.includes(" ")) ? CLUSTER_ROOM : ROOM;
    return layered(names, own, tiers, area, room);
  }
  const at = circle(around(names.map((name) => ({ name })), own));
  // A ring stays a circle.
  const next = neighbours(names, own);
  const isRing = own.length === names.length && [...next.values()].every((it) => it.size === 2);
  if (names.length > 2 && !isRing) settle(at, own);
  turn(at, area.width / area.height);
  const all = names.map((name) => ({ at: at.get(name), ...boxes(name) }));
  // Boxes that are moved apart may leave the area; they are drawn into it again.
  for (let round = 0; round < 6; round++) {
    fill(at, own, area);
    separate(all);
  }
  return at;
}

/** Positions in rows within an area. */
export function inRows(names, { width, height }) {
  const columns = Math.max(1, Math.round(Math.sqrt(names.length * width / height)));
  const rows = Math.ceil(names.length / columns);
  return new Map(names.map((name, number) => [name, {
    x: (number % columns + 0.5) / columns * width,
    y: (Math.floor(number / columns) + 0.5) / rows * height,
  }]));
}

/** The positions of nodes on a provider's map, by name. `shape` is the map's width divided by its
 *  height; `length` is the length of links, if it differs from the default. */
export function layout(nodes, pairs, shape, length = null) {
  const at = circle(around(nodes, pairs));
  if (nodes.length > 2) settle(at, pairs);
  turn(at, shape);
  spread(at, nodes, pairs, length);
  return at;
}

function circle(names) {
  return new Map(names.map((name, place) => {
    const angle = 2 * Math.PI * place / names.length - Math.PI / 2;
    // About as large as it stays, so that a ring is not crumpled.
    const radius = Math.max(names.length * 0.22, 1);
    return [name, { x: Math.cos(angle) * radius, y: Math.sin(angle) * radius }];
  }));
}

/** Nodes in the order in which a walk along links meets them, so that a ring stays a ring. */
function around(nodes, pairs) {
  const next = new Map(nodes.map((node) => [node.name, []]));
  for (const [a, b] of pairs) {
    next.get(a).push(b);
    next.get(b).push(a);
  }
  const order = [], seen = new Set();
  for (const { name } of nodes) {
    const waiting = [name];
    while (waiting.length) {
      const here = waiting.pop();
      if (seen.has(here)) continue;
      seen.add(here);
      order.push(here);
      waiting.push(...next.get(here).slice().reverse());
    }
  }
  return order;
}

/** Linked nodes attract, all repel each other (Fruchterman and Reingold, 1991). */
function settle(at, pairs) {
  const points = [...at.values()], count = points.length;
  const rounds = Math.max(30, Math.min(300, Math.floor(2e7 / (count * count))));
  for (let round = 0; round < rounds; round++) {
    const heat = 0.6 * Math.sqrt(count) * (1 - round / rounds) ** 2 + 0.01;
    for (const point of points) point.dx = point.dy = 0;
    for (let i = 0; i < count; i++) {
      for (let j = i + 1; j < count; j++) {
        const a = points[i], b = points[j];
        let x = a.x - b.x, y = a.y - b.y;
        if (x === 0 && y === 0) [x, y] = [0.01 * (i + 1), 0.01];
        const push = 1 / (x * x + y * y);
        a.dx += x * push; a.dy += y * push;
        b.dx -= x * push; b.dy -= y * push;
      }
    }
    for (const [one, other] of pairs) {
      const a = at.get(one), b = at.get(other);
      const x = a.x - b.x, y = a.y - b.y, pull = Math.hypot(x, y) * 0.5;
      a.dx -= x * pull; a.dy -= y * pull;
      b.dx += x * pull; b.dy += y * pull;
    }
    for (const point of points) {
      // Unconnected parts of the network do not drift apart.
      point.dx -= point.x * 0.02; point.dy -= point.y * 0.02;
      const length = Math.hypot(point.dx, point.dy) || 1;
      point.x += point.dx / length * Math.min(length, heat);
      point.y += point.dy / length * Math.min(length, heat);
    }
  }
}

/** Rotates the positions so that the longest extent lies along the map's longer side. */
function turn(at, shape) {
  const points = [...at.values()];
  let xx = 0, yy = 0, xy = 0;
  for (const { x, y } of points) { xx += x * x; yy += y * y; xy += x * y; }
  // A layout that is about round is not rotated.
  const apart = Math.hypot(xx - yy, 2 * xy);
  if (apart < 0.15 * (xx + yy)) return;
  const angle = Math.atan2(2 * xy, xx - yy) / 2 - (shape < 1 ? Math.PI / 2 : 0);
  const [cos, sin] = [Math.cos(-angle), Math.sin(-angle)];
  for (const point of points) {
    [point.x, point.y] = [point.x * cos - point.y * sin, point.x * sin + point.y * cos];
  }
}

/** Stretches the positions to an area, but no link of usual length beyond `LINK_MAX`. */
function fill(at, pairs, area) {
  const points = [...at.values()];
  const side = (key) => {
    const all = points.map((it) => it[key]);
    return { least: Math.min(...all), size: Math.max(...all) - Math.min(...all) };
  };
  const [x, y] = [side("x"), side("y")];
  const [wide, high] = [area.width / (x.size || 1), area.height / (y.size || 1)];
  // A layout that is much wider than the area stays so: a chain stays a chain.
  let [byX, byY] = [Math.min(wide, 2 * high), Math.min(high, 2 * wide)];
  const lengths = pairs.map(([a, b]) => Math.hypot((at.get(a).x - at.get(b).x) * byX,
    (at.get(a).y - at.get(b).y) * byY)).sort((a, b) => a - b);
  const usual = lengths[Math.floor(lengths.length / 2)] || 1;
  const less = Math.min(1, LINK_MAX / usual);
  for (const point of points) {
    point.x = (point.x - x.least) * byX * less;
    point.y = (point.y - y.least) * byY * less;
  }
}

/** Makes room for names, and for the labels of links if there are few links. */
function spread(at, nodes, pairs, length) {
  const lengths = pairs.map(([a, b]) =>
    Math.hypot(at.get(a).x - at.get(b).x, at.get(a).y - at.get(b).y));
  lengths.sort((a, b) => a - b);
  const usual = lengths[Math.floor(lengths.length / 4)] || 1;
  const scale = (length ?? 200) / usual;
  const boxes = nodes.map((node) => ({ at: at.get(node.name), ...node.size }));
  for (const box of boxes) { box.at.x *= scale * 1.15; box.at.y *= scale; }
  separate(boxes);
}

/** Moves boxes apart that overlap. */
export function separate(boxes) {
  for (let round = 0; round < 60; round++) {
    let isTight = false;
    for (let i = 0; i < boxes.length; i++) {
      for (let j = i + 1; j < boxes.length; j++) {
        const a = boxes[i], b = boxes[j];
        const x = (a.width + b.width) / 2 + 22 - Math.abs(a.at.x - b.at.x);
        const y = (a.height + b.height) / 2 + 20 - Math.abs(a.at.y - b.at.y);
        if (x <= 0 || y <= 0) continue;
        isTight = true;
        if (x < y) {
          const step = (a.at.x < b.at.x ? -x : x) / 2;
          a.at.x += step; b.at.x -= step;
        } else {
          const step = (a.at.y < b.at.y ? -y : y) / 2;
          a.at.y += step; b.at.y -= step;
        }
      }
    }
    if (!isTight) return;
  }
}

/** Least pixels for a node and for a cluster in a row. */
const ROOM = 42, CLUSTER_ROOM = 118;
/** Longest usual link, in pixels. */
const LINK_MAX = 340;
