// Where the nodes and clusters of a network are on its map. Positions stay when the network
// changes, and over a reload of the page: the browser keeps them.

import { NODES_MAX, clustersOf, nameOf } from "./clusters.js";
import { inRows, placed } from "./layout.js";
import { tiersOf } from "./roles.js";

/** The least area of a node on the screen, and the most nodes without clusters on a tiny screen. */
const NODE_AREA = 2600, NODES_LEAST = 16;
const SPACE = 72, WHOLE_MAX = 150, FULL = 0.55, STORED = "carina map ";
/** The room of a node that is drawn as an icon. */
const DOT = { width: 30, height: 22 };

export class Places {
  /** `boxes` returns the size of a node or cluster on the map by its name. */
  constructor(boxes) {
    this.boxes = boxes;
    this.clear();
  }

  clear() {
    this.key = null;
    this.stored = null;
    // Nodes by themselves and clusters, by name.
    this.base = new Map();
    // Nodes of clusters, relative to the middle of their cluster.
    this.inner = new Map();
    this.clusterOf = null;
    // Whether all positions come from a layout, and none from the browser's store or a person.
    this.isFresh = true;
    this.members = new Map();
    // Names of clusters to show.
    this.titles = new Map();
    this.open = new Set();
  }

  /** Takes the nodes and links of a network, whose positions the browser keeps as `title`.
   *  Returns whether anything has changed. */
  take(names, pairs, area, title) {
    const key = JSON.stringify([names, pairs]);
    if (key === this.key) return false;
    this.key = key;
    this.names = names;
    this.pairs = pairs;
    if (this.stored !== title) {
      this.clear();
      this.key = key;
      this.stored = title;
      this.load();
    }
    this.isFresh = this.base.size === 0;
    this.group(area);
    this.settle(area);
    this.save();
    return true;
  }

  /** Forgets the positions, and computes new ones. */
  arrange(area) {
    this.base.clear();
    this.inner.clear();
    this.clusterOf = null;
    this.group(area);
    this.settle(area);
    this.save();
  }

  /** Moves nodes to positions of a file, scaled into an area. A cluster is in the middle of its
   *  nodes; nodes without a position are placed beside their neighbours. */
  put(points, area) {
    const sums = new Map();
    for (const [name, { x, y }] of points) {
      const top = this.topOf(name), sum = sums.get(top) ?? { x: 0, y: 0, count: 0 };
      sums.set(top, { x: sum.x + x, y: sum.y + y, count: sum.count + 1 });
    }
    const means = [...sums].map(([top, { x, y, count }]) =>
      [top, { x: x / count, y: y / count }]);
    const side = (key) => means.map(([, it]) => it[key]);
    const [left, high] = [Math.min(...side("x")), Math.min(...side("y"))];
    const scale = Math.min(area.width / (Math.max(...side("x")) - left || 1),
      area.height / (Math.max(...side("y")) - high || 1));
    this.base = new Map(means.map(([top, { x, y }]) =>
      [top, { x: (x - left) * scale, y: (y - high) * scale }]));
    this.settle(area, true);
    this.save();
  }

  /** Assigns nodes to clusters. Known nodes stay in their cluster; new ones join the cluster of
   *  a neighbour. */
  group(area) {
    const known = this.clusterOf, room = area.width * area.height / NODE_AREA;
    // A network that was drawn without clusters before stays so on a smaller screen.
    const limit = !known && this.base.size ? NODES_MAX
      : Math.max(NODES_LEAST, Math.min(Math.floor(room), NODES_MAX));
    const fresh = clustersOf(this.names, this.pairs, limit);
    this.clusterOf = fresh;
    if (fresh && known && known.size) {
      const here = new Set(this.names);
      const kept = new Map([...known].filter(([name]) => here.has(name)));
      for (const name of this.names) {
        if (kept.has(name) || this.base.has(name)) continue;
        const beside = this.pairs.find((pair) => pair.includes(name)
          && pair.some((it) => kept.has(it)));
        const cluster = beside ? kept.get(beside.find((it) => kept.has(it))) : fresh.get(name);
        if (cluster !== undefined) kept.set(name, cluster);
      }
      this.clusterOf = kept;
    }
    this.members = new Map();
    for (const [name, cluster] of this.clusterOf ?? []) {
      if (!this.members.has(cluster)) this.members.set(cluster, []);
      this.members.get(cluster).push(name);
    }
    this.titles = new Map([...this.members].map(([lead, members]) =>
      [lead, nameOf(lead, members, this.names)]));
    for (const cluster of this.open) {
      if (!this.members.has(cluster)) this.open.delete(cluster);
    }
  }

  /** The node itself, or the cluster that it is in. */
  topOf(name) {
    const cluster = this.clusterOf && this.clusterOf.get(name);
    return cluster === undefined || cluster === null ? name : CLUSTER + cluster;
  }

  /** Computes the positions that are not known yet. With `keeps`, those that are known stay even
   *  if they are few. */
  settle(area, keeps = false) {
    const tops = [...new Set(this.names.map((name) => this.topOf(name)))];
    const pairs = new Map();
    for (const pair of this.pairs) {
      const ends = pair.map((name) => this.topOf(name));
      if (ends[0] !== ends[1]) pairs.set(ends.slice().sort().join("\n"), ends);
    }
    // The tier of a cluster is that of its highest node.
    const tiers = tiersOf(this.names, this.pairs), topTiers = tiers && new Map();
    for (const [name, tier] of tiers ?? []) {
      const top = this.topOf(name);
      topTiers.set(top, Math.min(tier, topTiers.get(top) ?? tier));
    }
    const sum = tops.map(this.boxes).reduce((all, it) => all + it.width * it.height, 0);
    const isRoomy = sum < area.width * area.height * FULL;
    placeMissing(this.base, tops, [...pairs.values()], area, isRoomy ? this.boxes : () => DOT,
      topTiers, keeps);
    for (const cluster of this.members.keys()) this.settleInside(cluster);
  }

  settleInside(cluster) {
    if (!this.open.has(cluster)) return;
    const members = this.members.get(cluster), own = new Set(members);
    const known = new Map(members.filter((it) => this.inner.has(it))
      .map((it) => [it, this.inner.get(it)]));
    const pairs = this.pairs.filter(([a, b]) => a !== b && own.has(a) && own.has(b));
    const { width, height } = this.sizeOf(cluster);
    placeMissing(known, members, pairs, { width, height }, () => DOT, tiersOf(members, pairs));
    const points = [...known.values()];
    if (members.every((it) => !this.inner.has(it))) {
      const middle = (side) => (Math.min(...points.map((it) => it[side]))
        + Math.max(...points.map((it) => it[side]))) / 2;
      const [x, y] = [middle("x"), middle("y")];
      for (const point of points) { point.x -= x; point.y -= y; }
    }
    for (const [name, point] of known) this.inner.set(name, point);
  }

  /** The size of an open cluster. */
  sizeOf(cluster) {
    const side = Math.sqrt(this.members.get(cluster).length) * SPACE;
    return { width: side * 1.35, height: side / 1.1 };
  }

  /** Opens or closes a cluster. */
  toggle(cluster) {
    if (!this.open.delete(cluster)) {
      this.open.add(cluster);
      this.settleInside(cluster);
    }
    this.save();
  }

  /** The positions of all that is visible, by name. Open clusters push the others away. */
  visible() {
    const extents = [...this.open].map((cluster) => {
      const points = this.members.get(cluster).map((it) => this.inner.get(it));
      const reach = (side) => Math.max(...points.map((it) => Math.abs(it[side]))) + SPACE;
      return { cluster, at: this.base.get(CLUSTER + cluster), x: reach("x"), y: reach("y") };
    });
    const shifted = (name) => {
      const from = this.base.get(name), to = { ...from };
      for (const { cluster, at, x, y } of extents) {
        if (name === CLUSTER + cluster) continue;
        const far = Math.hypot(from.x - at.x, from.y - at.y) || 1;
        to.x += (from.x - at.x) / far * x * 1.1;
        to.y += (from.y - at.y) / far * y * 1.1;
      }
      return to;
    };
    const at = new Map([...this.base.keys()].map((name) => [name, shifted(name)]));
    const hulls = extents.map(({ cluster, x, y }) => ({ cluster, ...at.get(CLUSTER + cluster),
      width: 2 * x, height: 2 * y }));
    for (const cluster of this.open) {
      const middle = at.get(CLUSTER + cluster);
      at.delete(CLUSTER + cluster);
      for (const name of this.members.get(cluster)) {
        const off = this.inner.get(name);
        at.set(name, { x: middle.x + off.x, y: middle.y + off.y });
      }
    }
    return { at, hulls };
  }

  /** What is visible of a node: the node, or the closed cluster that it is in. */
  seenAs(name) {
    const cluster = this.clusterOf && this.clusterOf.get(name);
    return cluster === undefined || cluster === null || this.open.has(cluster) ? name
      : CLUSTER + cluster;
  }

  /** Moves a node or a cluster. */
  move(name, x, y) {
    const point = this.base.get(name) ?? this.inner.get(name);
    point.x += x;
    point.y += y;
  }

  save() {
    // Positions are whole numbers, so that those of a reload are the same.
    const round = (points) => Object.fromEntries([...points].map(([name, point]) => {
      Object.assign(point, { x: Math.round(point.x), y: Math.round(point.y) });
      return [name, [point.x, point.y]];
    }));
    const text = JSON.stringify({ base: round(this.base), inner: round(this.inner),
      clusters: this.clusterOf && Object.fromEntries(this.clusterOf), open: [...this.open] });
    try {
      localStorage.setItem(STORED + this.stored, text);
    } catch {
      // Without a store, positions stay until the page is closed.
    }
  }

  load() {
    let kept = null;
    try {
      kept = JSON.parse(localStorage.getItem(STORED + this.stored));
    } catch {
      // The same as an empty store.
    }
    if (!kept || !kept.base) return;
    const points = (all) => new Map(Object.entries(all ?? {}).filter(([, it]) =>
      Array.isArray(it) && it.every(Number.isFinite)).map(([name, [x, y]]) => [name, { x, y }]));
    this.base = points(kept.base);
    this.inner = points(kept.inner);
    this.clusterOf = kept.clusters ? new Map(Object.entries(kept.clusters)) : null;
    this.open = new Set(kept.open ?? []);
  }
}

/** What the names of clusters begin with; names of nodes have no space. */
export const CLUSTER = "cluster ";

/** Keeps positions of before for a network that is drawn first and then made. */
export function store(title, points) {
  const places = new Places(() => ({}));
  places.stored = title;
  places.base = points;
  places.save();
}

/** Adds the positions of names that `at` has not: all of them by a layout if it has none; else
 *  each beside its neighbours. Removes those of other names. */
function placeMissing(at, names, pairs, area, boxes, tiers, keeps = false) {
  const wanted = new Set(names);
  for (const name of [...at.keys()]) if (!wanted.has(name)) at.delete(name);
  const missing = names.filter((name) => !at.has(name));
  if (missing.length > names.length / 2 && !keeps) {
    const all = names.length > WHOLE_MAX ? inRows(names, area)
      : placed(names, pairs, area, boxes, tiers);
    for (const [name, point] of all) at.set(name, point);
    return;
  }
  for (const name of missing) at.set(name, free(at, name, pairs, boxes));
}

/** A free position beside the neighbours of a node. */
function free(at, name, pairs, boxes) {
  const beside = pairs.filter((pair) => pair.includes(name))
    .map(([a, b]) => at.get(a === name ? b : a)).filter(Boolean);
  const from = beside.length ? beside : [...at.values()];
  const mean = (side) => from.reduce((sum, it) => sum + it[side], 0) / from.length;
  const own = boxes(name), [x, y] = [mean("x"), mean("y")];
  const isFree = (point) => [...at].every(([other, it]) => {
    const box = boxes(other);
    return Math.abs(it.x - point.x) > (own.width + box.width) / 2 + 16
      || Math.abs(it.y - point.y) > (own.height + box.height) / 2 + 16;
  });
  for (let turn = 0; turn < 400; turn++) {
    // A spiral outward.
    const angle = turn * 0.7, far = beside.length === 1 && turn === 0 ? 120 : 14 * turn * 0.7;
    const point = { x: x + Math.cos(angle) * far, y: y + Math.sin(angle) * far };
    if (isFree(point)) return point;
  }
  return { x, y };
}
