// Writes a network's document, which is JSON, as TOML.

/** The text of a document. Tables of the first two levels get headings; deeper ones stand in one
 *  line. */
export function toToml(document) {
  const parts = [];
  for (const [key, value] of Object.entries(document)) {
    if (isTable(value)) parts.push(...tables(key, value));
    else if (Array.isArray(value) && value.every(isTable)) {
      for (const item of value) parts.push(`[[${name(key)}]]\n${lines(item)}`);
    }
  }
  return parts.join("\n");
}

function tables(key, value) {
  const isNested = ["node", "access"].includes(key);
  if (!isNested) return Object.keys(value).length ? [`[${name(key)}]\n${lines(value)}`] : [];
  return Object.entries(value).map(([inner, it]) =>
    `[${name(key)}.${name(inner)}]\n${lines(it)}`);
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const lines = (table) => Object.entries(table)
  .map(([key, value]) => `${name(key)} = ${text(value)}\n`).join("");

const name = (key) => /^[A-Za-z0-9_-]+$/.test(key) ? key : JSON.stringify(key);

function text(value) {
  if (Array.isArray(value)) return `[${value.map(text).join(", ")}]`;
  if (isTable(value)) {
    const pairs = Object.entries(value).map(([key, it]) => `${name(key)} = ${text(it)}`);
    return `{ ${pairs.join(", ")} }`;
  }
  // Strings of JSON are basic strings of TOML, except for DEL.
  return JSON.stringify(value).replaceAll("\x7f", "\\u007f");
}
