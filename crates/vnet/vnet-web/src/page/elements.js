// Elements of the page. Names that others have chosen are always set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

/** Creates an HTML element with attributes; `text` is its text or its children. */
export function html(kind, attributes = {}, text = undefined) {
  return fill(document.createElement(kind), attributes, text);
}

export function svg(kind, attributes = {}, text = undefined) {
  return fill(document.createElementNS(SVG, kind), attributes, text);
}

function fill(element, attributes, text) {
  set(element, attributes);
  if (Array.isArray(text)) element.append(...text);
  else if (text !== undefined) element.textContent = text;
  return element;
}

/** Sets those attributes that differ. */
export function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (element.getAttribute(key) !== String(value)) element.setAttribute(key, value);
  }
}

/** Sets a text if it differs, so that a selection in an unchanged text is kept. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes the children of `list` match `wanted`, by key; `make` creates a child, `update` updates
 *  it. */
export function keyed(parent, wanted, key, make, update) {
  const there = new Map([...parent.children].map((it) => [it.dataset.key, it]));
  let before = null;
  for (const item of wanted) {
    const name = String(key(item));
    let element = there.get(name);
    there.delete(name);
    if (!element) {
      element = make(item);
      element.dataset.key = name;
    }
    const place = before === null ? parent.firstChild : before.nextSibling;
    if (element !== place) parent.insertBefore(element, place);
    update(element, item);
    before = element;
  }
  for (const gone of there.values()) gone.remove();
}

/** A table with a row for each pair of a label and a value; empty values are left out. */
export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return html("table", {}, rows.map(([word, value]) => html("tr", {}, [
    html("th", { scope: "row" }, word),
    html("td", {}, value instanceof Node ? [value] : String(value)),
  ])));
}

/** Shows an error or a success, until it is closed or replaced by another one of its kind. */
export function notice(text, kind = "person", isGood = false) {
  quiet(kind);
  const close = html("button", { class: "plain", "aria-label": "Close" }, "✕");
  const line = html("div", { class: isGood ? "notice good" : "notice", "data-kind": kind },
    [html("span", {}, text), close]);
  close.addEventListener("click", () => line.remove());
  find("notices").append(line);
}

/** Removes the notice of a kind. */
export function quiet(kind) {
  for (const line of find("notices").querySelectorAll(`[data-kind="${kind}"]`)) line.remove();
}

/** Runs an action of the user, and shows the error if it fails. */
export async function act(work) {
  quiet("person");
  try {
    return await work();
  } catch (error) {
    notice(error.message);
    return undefined;
  }
}

/** Makes the browser save a file. */
export function save(blob, name) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
