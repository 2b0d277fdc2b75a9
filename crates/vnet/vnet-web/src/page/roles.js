// The role of a node in its network, and the tiers of networks that have tiers.

const HOST = /^(h|hosts?|pc|clients?|servers?|srv|users?|workstation|laptop)([-_.]?\d|$|[-_.])/i;
const SWITCHES = "s|sw|switch|br|bridge|lan|leaf|spine|superspine|tor|edge|agg|aggr|dist|core";
const SWITCH = new RegExp(`^(${SWITCHES})([-_.]?\\d|$|[-_.])`, "i");
const TIERS_MAX = 7;

/** `host`, `switch` or `router`, from the name, or else from the number of its links. */
export function roleOf(node, degree) {
  if (node.isFar) return "far";
  if (HOST.test(node.name)) return "host";
  if (SWITCH.test(node.name)) return "switch";
  return degree <= 1 ? "host" : "router";
}

/** The names of the neighbours of each node; each neighbour once. */
export function neighbours(names, pairs) {
  const next = new Map(names.map((name) => [name, new Set()]));
  for (const [a, b] of pairs) {
    if (a === b) continue;
    next.get(a).add(b);
    next.get(b).add(a);
  }
  return next;
}

/** The tier of each node, 0 at the top; null if the network has no tiers. Links of a network with
 *  tiers lead from each tier to the next. */
export function tiersOf(names, pairs) {
  if (names.length < 6 || pairs.length < names.length - 1) return null;
  const next = neighbours(names, pairs);
  const tiers = byNames(names, next) ?? byDistance(names, next) ?? ofTree(names, next);
  if (!tiers) return null;
  const counts = [];
  for (const tier of tiers.values()) counts[tier] = (counts[tier] ?? 0) + 1;
  // A star is drawn as a star.
  const isStar = counts.length === 2 && Math.min(...counts) === 1;
  const isFlat = counts.length < 2 || counts.length > TIERS_MAX || isStar;
  return isFlat ? null : tiers;
}

/** Tiers of nodes whose names begin alike, as `spine1` and `leaf4`. */
function byNames(names, next) {
  const groupOf = new Map(names.map((name) => [name, /^\D*/.exec(name.toLowerCase())[0]]));
  const groups = [...new Set(groupOf.values())];
  if (groups.length < 2 || groups.length > TIERS_MAX || groups.length * 2 > names.length) {
    return null;
  }
  const beside = new Map(groups.map((group) => [group, new Set()]));
  const ends = new Map(groups.map((group) => [group, { links: 0, nodes: 0 }]));
  for (const name of names) {
    const group = groupOf.get(name), sum = ends.get(group);
    sum.nodes += 1;
    sum.links += next.get(name).size;
    for (const other of next.get(name)) beside.get(group).add(groupOf.get(other));
  }
  // The groups must form a chain.
  const tips = groups.filter((group) => beside.get(group).size === 1);
  const isChain = groups.every((group) => !beside.get(group).has(group)
    && beside.get(group).size <= 2 && beside.get(group).size > 0);
  if (!isChain || tips.length !== 2) return null;
  const width = (group) => ends.get(group).nodes / (1 + HOST.test(group + "1") * -0.9);
  const top = width(tips[0]) <= width(tips[1]) ? tips[0] : tips[1];
  const tierOf = new Map([[top, 0]]);
  let here = top;
  while (tierOf.size < groups.length) {
    const below = [...beside.get(here)].find((group) => !tierOf.has(group));
    if (below === undefined) return null;
    tierOf.set(below, tierOf.size);
    here = below;
  }
  return new Map(names.map((name) => [name, tierOf.get(groupOf.get(name))]));
}

/** Tiers by the distance to the nodes with one link, as in a fat tree with its hosts. */
function byDistance(names, next) {
  const leaves = names.filter((name) => next.get(name).size === 1);
  if (leaves.length < 3) return null;
  const far = distances(leaves, next);
  if (far.size < names.length) return null;
  const isStep = names.every((name) =>
    [...next.get(name)].every((other) => Math.abs(far.get(name) - far.get(other)) === 1));
  const depth = Math.max(...far.values());
  if (!isStep || depth < 2) return null;
  return new Map(names.map((name) => [name, depth - far.get(name)]));
}

/** Tiers of a tree by the distance to its middle. */
function ofTree(names, next) {
  const links = names.reduce((sum, name) => sum + next.get(name).size, 0) / 2;
  if (links !== names.length - 1) return null;
  const [far] = [...distances([names[0]], next).keys()].slice(-1);
  const back = distances([far], next);
  if (back.size < names.length) return null;
  let [middle] = [...back.keys()].slice(-1);
  const length = back.get(middle);
  while (back.get(middle) > length / 2) {
    middle = [...next.get(middle)].find((it) => back.get(it) < back.get(middle));
  }
  const depth = distances([middle], next);
  const isBushy = names.length > 2 * length && length > 3;
  return isBushy ? depth : null;
}

function distances(from, next) {
  const far = new Map(from.map((name) => [name, 0]));
  const waiting = from.slice();
  for (let place = 0; place < waiting.length; place++) {
    for (const other of next.get(waiting[place])) {
      if (far.has(other)) continue;
      far.set(other, far.get(waiting[place]) + 1);
      waiting.push(other);
    }
  }
  return far;
}

/** Positions by tier within an area: each tier a row, or several if it is wide. `room` is the least
 *  width of a node. */
export function layered(names, pairs, tiers, { width, height }, room) {
  const rows = [];
  for (const name of names) (rows[tiers.get(name)] ??= []).push(name);
  const next = neighbours(names, pairs);
  const orders = [byName(rows), byWalk(rows, names, next)].map((order) => sorted(order, next));
  const [first, second] = orders.map((order) => crossings(order, pairs, tiers));
  const order = first <= second ? orders[0] : orders[1];
  const folds = order.map((row) => Math.min(4, Math.ceil(row.length * room / width)));
  const sum = folds.reduce((all, fold) => all + fold, 0);
  // A row below a folded row is nearer than the next tier.
  const step = height / Math.max(1, order.length - 1 + (sum - order.length) * FOLD);
  const at = new Map();
  let y = 0;
  order.forEach((row, tier) => {
    const fold = folds[tier], columns = Math.ceil(row.length / fold);
    row.forEach((name, number) => {
      // Folded rows are beside one another, so that no node hides another one's link.
      const beside = ((number % fold) + 0.5) / fold - 0.5;
      const x = (Math.floor(number / fold) + 0.5 + beside * 0.7) / columns * width;
      at.set(name, { x, y: y + (number % fold) * step * FOLD });
    });
    y += step * (1 + (fold - 1) * FOLD);
  });
  return at;
}

const byName = (rows) => rows.map((row) => row.slice().sort((a, b) =>
  a.localeCompare(b, "en", { numeric: true })));

/** Rows in the order in which a walk in depth meets the nodes. */
function byWalk(rows, names, next) {
  const place = new Map();
  for (const name of rows.at(-1).concat(names)) {
    const waiting = [name];
    while (waiting.length) {
      const here = waiting.pop();
      if (place.has(here)) continue;
      place.set(here, place.size);
      waiting.push(...[...next.get(here)].reverse());
    }
  }
  return rows.map((row) => row.slice().sort((a, b) => place.get(a) - place.get(b)));
}

/** From the lowest row to the top, each node above the middle of its neighbours. */
function sorted(rows, next) {
  const share = new Map();
  const note = (row) => row.forEach((name, number) => share.set(name, (number + 0.5) / row.length));
  const result = rows.slice();
  note(result.at(-1));
  for (let tier = rows.length - 2; tier >= 0; tier--) {
    const below = new Set(rows[tier + 1]);
    const middle = (name) => {
      const places = [...next.get(name)].filter((it) => below.has(it)).map((it) => share.get(it));
      return places.length ? places.reduce((a, b) => a + b, 0) / places.length : 0.5;
    };
    const key = new Map(rows[tier].map((name) => [name, middle(name)]));
    result[tier] = rows[tier].slice().sort((a, b) => {
      const apart = key.get(a) - key.get(b);
      return Math.abs(apart) < 1e-9 ? 0 : apart;
    });
    note(result[tier]);
  }
  return result;
}

function crossings(rows, pairs, tiers) {
  if (pairs.length > 1500) return 0;
  const place = new Map(rows.flatMap((row) => row.map((name, number) => [name, number])));
  const lines = pairs.map(([a, b]) => tiers.get(a) < tiers.get(b) ? [a, b] : [b, a])
    .map(([a, b]) => [tiers.get(a), place.get(a), place.get(b)]);
  let count = 0;
  for (let i = 0; i < lines.length; i++) {
    for (let j = i + 1; j < lines.length; j++) {
      const [tier, a, b] = lines[i], [other, c, d] = lines[j];
      if (tier === other && (a - c) * (b - d) < 0) count += 1;
    }
  }
  return count;
}

/** The distance of folded rows as a share of the distance of tiers. */
const FOLD = 0.32;
