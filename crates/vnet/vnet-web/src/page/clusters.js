// Clusters of a network that has too many nodes to draw each: groups of nodes with many links
// among them.

import { neighbours, tiersOf } from "./roles.js";

/** The most nodes of a network that has no clusters on any screen. */
export const NODES_MAX = 150;

const CLUSTERS_MAX = 36, CLUSTER_MAX = 120, TOP_MAX = 6;

/** The cluster of each node, named after its node with the most links; null if the network has
 *  at most `limit` nodes. A node without an entry stays by itself. */
export function clustersOf(names, pairs, limit) {
  if (names.length <= limit) return null;
  const next = neighbours(names, pairs), countMax = Math.min(CLUSTERS_MAX, limit);
  const groups = ofTiers(names, pairs, next) ?? byLinks(names, pairs, next, countMax);
  const clusterOf = new Map();
  for (const group of groups) {
    if (group.length < 2) continue;
    const lead = group.reduce((best, name) =>
      next.get(name).size > next.get(best).size ? name : best);
    for (const name of group) clusterOf.set(name, lead);
  }
  return clusterOf;
}

/** A short name of a cluster: how the names of its nodes begin, if no others begin so; or else its
 *  node with the most links. */
export function nameOf(lead, members, names) {
  let shared = members[0];
  for (const name of members) {
    while (!name.startsWith(shared)) shared = shared.slice(0, -1);
  }
  const word = /[-_.]$/.test(shared) ? shared.replace(/[-_.]+$/, "") : shared.replace(/\d+$/, "");
  const isOwn = word.length >= 3
    && names.every((name) => !name.startsWith(word) || members.includes(name));
  return isOwn ? word : lead + " …";
}

/** The parts into which a network with tiers falls without its top tier, as the pods of a fat
 *  tree. */
function ofTiers(names, pairs, next) {
  const tiers = tiersOf(names, pairs);
  if (!tiers) return null;
  const isBelow = (name) => tiers.get(name) > 0;
  const parts = [], seen = new Set();
  for (const name of names.filter(isBelow)) {
    if (seen.has(name)) continue;
    const part = [], waiting = [name];
    seen.add(name);
    while (waiting.length) {
      const here = waiting.pop();
      part.push(here);
      for (const other of next.get(here)) {
        if (seen.has(other) || !isBelow(other)) continue;
        seen.add(other);
        waiting.push(other);
      }
    }
    parts.push(part);
  }
  const top = names.filter((name) => !isBelow(name));
  const isGood = parts.length >= 2 && parts.length <= CLUSTERS_MAX
    && parts.every((part) => part.length <= 2 * NODES_MAX);
  if (!isGood) return null;
  return top.length <= TOP_MAX ? [...parts, ...top.map((name) => [name])] : [...parts, top];
}

/** Merges the two ends of the links that join the most, level by level, while that raises the
 *  modularity. (V. Blondel, J. Guillaume, R. Lambiotte, E. Lefebvre, *Fast unfolding of
 *  communities in large networks*, 2008) */
function byLinks(names, pairs, next, countMax) {
  let groups = names.map((name) => [name]);
  for (let level = 0; level < 12 && groups.length > countMax; level++) {
    const merged = mergedOnce(groups, pairs);
    if (merged.length === groups.length) break;
    groups = merged;
  }
  return fewer(groups.flatMap((group) => split(group, next)), pairs, countMax);
}

function mergedOnce(groups, pairs) {
  const of = placesOf(groups);
  const weights = groups.map(() => new Map());
  const degree = groups.map(() => 0);
  let total = 0;
  for (const [a, b] of pairs) {
    const [one, other] = [of.get(a), of.get(b)];
    degree[one] += 1;
    degree[other] += 1;
    total += 2;
    if (one === other) continue;
    weights[one].set(other, (weights[one].get(other) ?? 0) + 1);
    weights[other].set(one, (weights[other].get(one) ?? 0) + 1);
  }
  const groupOf = groups.map((_, number) => number), held = degree.slice();
  const sizes = groups.map((group) => group.length);
  for (let round = 0, isMoving = true; isMoving && round < 10; round++) {
    isMoving = false;
    for (let here = 0; here < groups.length; here++) {
      const links = new Map();
      for (const [other, weight] of weights[here]) {
        links.set(groupOf[other], (links.get(groupOf[other]) ?? 0) + weight);
      }
      const old = groupOf[here];
      held[old] -= degree[here];
      sizes[old] -= groups[here].length;
      const gain = (to) => (links.get(to) ?? 0) - held[to] * degree[here] / total;
      let best = old;
      for (const to of links.keys()) {
        const fits = sizes[to] + groups[here].length <= CLUSTER_MAX;
        if (fits && gain(to) > gain(best) + 1e-9) best = to;
      }
      held[best] += degree[here];
      sizes[best] += groups[here].length;
      groupOf[here] = best;
      if (best !== old) isMoving = true;
    }
  }
  const result = new Map();
  groups.forEach((group, number) => {
    const into = result.get(groupOf[number]) ?? [];
    into.push(...group);
    result.set(groupOf[number], into);
  });
  return [...result.values()];
}

function placesOf(groups) {
  return new Map(groups.flatMap((group, number) => group.map((name) => [name, number])));
}

/** Splits a group that is too large, such as a star, in the order of a walk. */
function split(group, next) {
  if (group.length <= CLUSTER_MAX) return [group];
  const own = new Set(group), order = [], seen = new Set();
  for (const first of group) {
    const waiting = [first];
    while (waiting.length) {
      const here = waiting.pop();
      if (seen.has(here) || !own.has(here)) continue;
      seen.add(here);
      order.push(here);
      waiting.push(...next.get(here));
    }
  }
  const count = Math.ceil(order.length / (CLUSTER_MAX / 2));
  const size = Math.ceil(order.length / count);
  return Array.from({ length: count }, (_, number) =>
    order.slice(number * size, (number + 1) * size));
}

/** Merges the smallest groups with the smallest of their neighbours, or with each other, until
 *  there are few enough. No group becomes much larger than the others. */
function fewer(groups, pairs, countMax) {
  const place = placesOf(groups), rest = new Set(groups.keys());
  const smallestOf = (places) => [...places].reduce((best, it) =>
    best === null || groups[it].length < groups[best].length ? it : best, null);
  while (rest.size > countMax) {
    const smallest = smallestOf(rest);
    rest.delete(smallest);
    const fits = (it) => it !== smallest
      && groups[it].length + groups[smallest].length <= CLUSTER_MAX;
    const beside = new Set();
    for (const ends of pairs) {
      const [a, b] = ends.map((end) => place.get(end));
      if (a === smallest && fits(b)) beside.add(b);
      if (b === smallest && fits(a)) beside.add(a);
    }
    const into = smallestOf(beside) ?? smallestOf(rest);
    for (const name of groups[smallest]) place.set(name, into);
    groups[into] = groups[into].concat(groups[smallest]);
  }
  return [...rest].map((it) => groups[it]);
}
