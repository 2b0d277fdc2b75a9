// The page's representation of a network, for agents and VNOs alike.

export const nodeOf = (end) => end.split(":")[0];

/** The keyword of a state, which JSON has as text, or as an object with its reason. */
export const stateOf = (state) => typeof state === "string" ? state : Object.keys(state)[0];

export const reasonOf = (state) => typeof state === "string" ? "" : Object.values(state)[0].reason;

/** The CSS class of a state. */
export function lookOf(state) {
  const word = stateOf(state);
  if (word === "up") return "up";
  return ["down", "failed", "refused", "stopped"].includes(word) ? "down" : "unknown";
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

/** The bits per second of a rate in a document, such as `10Mbps`. */
export function bpsOf(rate) {
  const [, number, unit] = /^([0-9.]+)\s*(\w*)$/.exec(String(rate)) ?? [0, 0, ""];
  return Number(number) * (UNITS[unit] ?? 1);
}

/** The rates of a link in both directions, from the counters at two times. */
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

/** The rates of all links, by number. */
export function rates(report, before, seconds) {
  const old = new Map((before ? before.links : []).map((it) => [it.number, it]));
  const pairs = report.links.map((link) => {
    const was = old.get(link.number);
    const isSame = was && was.ends.join() === link.ends.join();
    return [link.number, ratesBetween(link, isSame ? was : null, seconds)];
  });
  return new Map(pairs);
}

/** A network as a VNO reports it, with the requirements of each node from its document. */
export function ofOperator(report, document) {
  const defaults = document.defaults || {};
  return {
    ...report, document, state: report.is_refused ? "refused" : report.state,
    nodes: report.nodes.map((node) =>
      ({ ...node, wanted: { ...defaults, ...(document.node || {})[node.name] } })),
  };
}

/** The requirements of a link from the network's document, if known. */
export function wantedOf(report, link) {
  const links = report.document ? report.document.link || [] : [];
  const isSame = (end, at) => end === link.ends[at] || end === nodeOf(link.ends[at]);
  const same = links.filter((it) => it.ends.every(isSame));
  return same.length === 1 ? same[0] : undefined;
}
