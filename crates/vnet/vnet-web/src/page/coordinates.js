// Coordinates of nodes in files of other tools: GraphML with `Latitude` and `Longitude` (Internet
// Topology Zoo), `x` and `y`, or yEd's geometry; and GML with the same words or `graphics`.

/** The position of each node of a file, by its label: `{ label, id, x, y }`. */
export function coordinatesIn(text) {
  const nodes = /<graphml[\s>]/.test(text) ? ofGraphml(text) : ofGml(text);
  const placed = nodes.map(({ label, id, data }) => ({ label, id, ...pointOf(data) }))
    .filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
  const isEarth = nodes.some(({ data }) => data.has("latitude"));
  if (!isEarth || !placed.length) return placed;
  // A degree of longitude is shorter far from the equator.
  const mean = placed.reduce((sum, it) => sum + it.y, 0) / placed.length;
  const shorter = Math.cos(mean * Math.PI / 180);
  return placed.map((it) => ({ ...it, x: it.x * shorter }));
}

function pointOf(data) {
  const number = (key) => data.has(key) ? Number(data.get(key)) : NaN;
  return data.has("latitude") ? { x: number("longitude"), y: -number("latitude") }
    : { x: number("x"), y: number("y") };
}

function ofGraphml(text) {
  const root = new DOMParser().parseFromString(text, "text/xml");
  if (root.querySelector("parsererror")) throw new Error("the file is not well-formed XML");
  const all = (name) => [...root.getElementsByTagNameNS("*", name)];
  const keys = new Map(all("key").map((it) =>
    [it.getAttribute("id"), (it.getAttribute("attr.name") ?? "").toLowerCase()]));
  return all("node").map((node) => {
    const data = new Map();
    for (const it of node.children) {
      const name = it.localName === "data" && keys.get(it.getAttribute("key"));
      if (name) data.set(name, it.textContent.trim());
    }
    const [geometry] = node.getElementsByTagNameNS("*", "Geometry");
    for (const side of ["x", "y"]) {
      if (geometry && geometry.hasAttribute(side)) data.set(side, geometry.getAttribute(side));
    }
    const [drawn] = node.getElementsByTagNameNS("*", "NodeLabel");
    const id = node.getAttribute("id") ?? "";
    return { id, label: data.get("label") ?? (drawn && drawn.textContent.trim()) ?? id, data };
  });
}

/** Reads keys and values of GML; tables within a node count as parts of the node. */
function ofGml(text) {
  const words = text.match(/"[^"]*"|\[|\]|[^\s[\]"]+/g) ?? [], nodes = [];
  let depth = 0, node = null, within = 0;
  for (let place = 0; place < words.length; place++) {
    const word = words[place], next = words[place + 1];
    if (word === "[") depth += 1;
    else if (word === "]") {
      depth -= 1;
      if (node && depth < within) node = null;
    } else if (word === "node" && next === "[") {
      node = { id: "", label: "", data: new Map() };
      within = depth + 1;
      nodes.push(node);
    } else if (node && next !== undefined && next !== "[" && next !== "]") {
      const value = next.replace(/^"|"$/g, "");
      if (word === "id" || word === "label") node[word] = value;
      node.data.set(word.toLowerCase(), value);
      place += 1;
    }
  }
  return nodes.map((it) => ({ ...it, label: it.label || it.id }));
}

/** Letters and digits of a name: what is left of it in the name of an imported node. */
const plain = (text) => text.toLowerCase().normalize("NFD").replace(/[^a-z0-9]/g, "");

/** The positions by the names of nodes. A label of several nodes is followed by the id. */
export function matched(coordinates, names) {
  const known = new Map(names.map((name) => [plain(name), name]));
  const seen = new Set(), at = new Map();
  for (const { label, id, x, y } of coordinates) {
    const text = seen.has(label) ? `${label} ${id}` : label;
    seen.add(label);
    const name = known.get(plain(text));
    if (name !== undefined) at.set(name, { x, y });
  }
  return at;
}
