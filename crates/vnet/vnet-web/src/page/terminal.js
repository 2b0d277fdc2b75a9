// The console of a node in a window of its own. The window takes the whole keyboard.

import { token } from "./ask.js";
import { find, html, say } from "./elements.js";
import { console_ } from "./screen.js";

/** Opens the window of a node's console. The token stands behind #, as in the page's address. */
export function openWindow(network, node) {
  const address = "/console#" + [token, network, node].map(encodeURIComponent).join("/");
  window.open(address, `console ${network} ${node}`, "popup,width=860,height=560");
}

/** Fills the window. */
function show() {
  const [, network, node] = location.hash.slice(1).split("/").map(decodeURIComponent);
  document.title = `${node} (${network})`;
  const { element, type, screen } = console_(network, node, () => true, true);
  find("terminal").replaceChildren(element);
  say(find("terminal-name"), `${node} in ${network}`);
  element.focus();
  addEventListener("focus", () => element.focus());
  document.addEventListener("click", () => {
    // A click beside the text must not take the keyboard away, but text can be selected.
    if (String(getSelection()) === "") element.focus();
  });
  find("tell-size").addEventListener("click", () => {
    const { rows, columns } = sizeOf(element);
    screen.rows = rows;
    type(`stty rows ${rows} cols ${columns}\r`);
  });
}

/** How many rows and columns of text fit into an element. */
function sizeOf(element) {
  const probe = html("span", {}, "0".repeat(10));
  element.append(probe);
  const { width, height } = probe.getBoundingClientRect();
  probe.remove();
  const style = getComputedStyle(element);
  const inside = element.clientWidth - parseFloat(style.paddingLeft)
    - parseFloat(style.paddingRight);
  return { rows: Math.max(Math.floor(element.clientHeight / height) - 1, 5),
    columns: Math.max(Math.floor(inside / (width / 10)), 20) };
}

if (document.body.matches(".terminal")) show();
