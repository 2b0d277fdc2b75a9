// What a network looks like to this page, whether an agent or a VNO tells of it.

export const nodeOf = (end) => end.split(":")[0];

/** The word of a state that JSON has as a word, or as an object with its reason. */
export const stateOf = (state) => typeof state === "string" ? state : Object.keys(state)[0];

export const reasonOf = (state) => typeof state === "string" ? "" : Object.values(state)[0].reason;

/** The class of a state on the map. */
export function lookOf(state) {
  const word = stateOf(state);
  if (word === "up") return "up";
  return word === "down" || word === "failed" ? "down" : "unknown";
}

export const isImpaired = (link) =>
  Boolean(link.impairment && (link.impairment.there || link.impairment.back));

export function bits(bps) {
  if (bps < 1) return "0";
  if (bps < 1e3) return bps.toFixed(0) + " bit/s";
  for (const [unit, word] of [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]) {
    if (bps >= unit) return (bps / unit).toFixed(bps < 10 * unit ? 2 : 1) + " " + word;
  }
  return "0";
}

const UNITS = { bps: 1, kbps: 1e3, Mbps: 1e6, Gbps: 1e9, "": 1, k: 1e3, M: 1e6, G: 1e9 };

/** Bits a second of a rate as documents have it, `10Mbps`. */
export function bpsOf(rate) {
  const [, number, unit] = /^([0-9.]+)\s*(\w*)$/.exec(String(rate)) ?? [0, 0, ""];
  return Number(number) * (UNITS[unit] ?? 1);
}

/** Rates of a link in both directions, from what had passed at two times. */
export function ratesBetween(now, before, seconds) {
  return now.passed.map((passed, side) => {
    const was = before && before.passed[side];
    const more = (count) => was ? Math.max(count(passed) - count(was), 0) / seconds : 0;
    return {
      bps: more((it) => it.bytes) * 8,
      dropped: more((it) => it.dropped + (it.lost || 0)),
    };
  });
}

/** Rates of all links by number. */
export function rates(report, before, seconds) {
  const old = new Map((before ? before.links : []).map((it) => [it.number, it]));
  const pairs = report.links.map((link) => {
    const was = old.get(link.number);
    const isSame = was && was.ends.join() === link.ends.join();
    return [link.number, ratesBetween(link, isSame ? was : null, seconds)];
  });
  return new Map(pairs);
}

/** A network of a VNO: its document, and how far that is. There is nothing of what carries it. */
export function ofOperator(seen, document) {
  const { standing } = seen;
  const holds = new Set(standing.holds);
  const defaults = document.defaults || {};
  const isReady = holds.has("Ready");
  return {
    name: seen.name, generation: seen.generation, document, conditions: standing.holds,
    state: isReady ? "ready" : standing.is_refused ? "refused" : "changing",
    obstacles: !isReady && standing.reason ? [standing.reason.message] : [],
    nodes: Object.entries(document.node || {}).map(([name, node]) => ({
      name, kind: node.kind || defaults.kind || "vm", interfaces: [],
      state: holds.has("Provisioned") ? "up" : "absent", wanted: { ...defaults, ...node },
    })),
    links: (document.link || []).map((link, number) => ({
      number, ends: link.ends, rate: link.rate, carrier: link.as || "ipip",
      state: holds.has("LinksUp") ? "up" : "absent",
    })),
  };
}
