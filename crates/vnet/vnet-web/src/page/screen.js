// A console: shows a node's output as a terminal does, and sends keys as a terminal does.

import { ask, of, wait } from "./ask.js";
import { html, notice, quiet } from "./elements.js";

const ROWS = 24, COLUMNS_MAX = 1000, LINES_MAX = 2000;

/** Lines of text and a cursor. Colours are ignored; sequences that move the cursor are followed. */
export class Screen {
  constructor() {
    this.lines = [""];
    this.row = 0;
    this.column = 0;
    this.rest = "";
    this.rows = ROWS;
  }

  /** Processes output of a node. A control sequence may arrive in pieces. */
  take(text) {
    text = this.rest + text;
    this.rest = "";
    let place = 0;
    while (place < text.length) {
      const char = text[place];
      if (char !== "\x1b") {
        this.put(char);
        place += 1;
        continue;
      }
      const rest = text.slice(place, place + 256);
      // CSI; OSC up to BEL or ST; all others have one character. (ECMA-48, section 5)
      const sequence = /^\x1b\[([0-9;:<=>?]*)[ -/]*([@-~])/.exec(rest)
        ?? /^\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/.exec(rest)
        ?? /^\x1b[ -/]*[0-Z\\^-~]/.exec(rest);
      if (!sequence) {
        if (rest.length < 256) {
          this.rest = text.slice(place);
          return;
        }
        place += 1;
        continue;
      }
      if (sequence[2]) this.control(sequence[2], sequence[1]);
      place += sequence[0].length;
    }
  }

  put(char) {
    if (char === "\n") {
      this.row += 1;
      this.grow();
    } else if (char === "\r") this.column = 0;
    else if (char === "\b") this.column = Math.max(this.column - 1, 0);
    else if (char === "\t") this.column += 8 - this.column % 8;
    else if (char >= " ") {
      // A line that is too long is wrapped, as by a terminal.
      if (this.column >= COLUMNS_MAX) {
        this.column = 0;
        this.row += 1;
        this.grow();
      }
      const line = this.lines[this.row].padEnd(this.column);
      this.lines[this.row] = line.slice(0, this.column) + char + line.slice(this.column + 1);
      this.column += 1;
    }
  }

  grow() {
    while (this.lines.length <= this.row) this.lines.push("");
    const excess = this.lines.length - LINES_MAX;
    if (excess > 0) {
      this.lines.splice(0, excess);
      this.row -= excess;
    }
  }

  /** Index of the first line on the terminal's screen. */
  get top() {
    return Math.max(this.lines.length - this.rows, 0);
  }

  control(kind, words) {
    const [first, second] = words.split(";").map((word) => parseInt(word, 10) || 0);
    const count = Math.min(Math.max(first, 1), COLUMNS_MAX);
    const line = this.lines[this.row];
    if (kind === "A") this.row = Math.max(this.row - count, this.top);
    else if (kind === "B") this.row = Math.min(this.row + count, this.lines.length - 1);
    else if (kind === "C") this.column = Math.min(this.column + count, COLUMNS_MAX - 1);
    else if (kind === "D") this.column = Math.max(this.column - count, 0);
    else if (kind === "G") this.column = count - 1;
    else if (kind === "H" || kind === "f") {
      this.row = this.top + Math.min(count, this.rows) - 1;
      this.column = Math.min(Math.max(second || 1, 1), COLUMNS_MAX) - 1;
      this.grow();
    } else if (kind === "K") {
      if (first === 0) this.lines[this.row] = line.slice(0, this.column);
      else if (first === 1) this.lines[this.row] = line.slice(this.column).padStart(line.length);
      else this.lines[this.row] = "";
    } else if (kind === "J" && first === 0) {
      this.lines[this.row] = line.slice(0, this.column);
      for (let row = this.row + 1; row < this.lines.length; row++) this.lines[row] = "";
    } else if (kind === "J") {
      for (let row = this.top; row < this.lines.length; row++) this.lines[row] = "";
    } else if (kind === "P") {
      this.lines[this.row] = line.slice(0, this.column) + line.slice(this.column + count);
    } else if (kind === "@") {
      this.lines[this.row] = (line.slice(0, this.column) + " ".repeat(count)
        + line.slice(this.column)).slice(0, COLUMNS_MAX);
    }
  }

  /** Draws the screen. */
  draw(element) {
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    const above = this.lines.slice(0, this.row), line = this.lines[this.row];
    const below = this.lines.slice(this.row + 1);
    const cursor = html("span", { class: "cursor" }, line[this.column] ?? " ");
    element.replaceChildren(
      [...above, line.slice(0, this.column).padEnd(this.column)].join("\n"), cursor,
      [line.slice(this.column + 1), ...below].join("\n"));
    if (isAtEnd) element.scrollTop = element.scrollHeight;
  }
}

/** The text that a key sends. */
const KEYS = { Enter: "\r", Backspace: "\x7f", Tab: "\t", ArrowUp: "\x1b[A", ArrowDown: "\x1b[B",
  ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D", Home: "\x1b[H", End: "\x1b[F", Delete: "\x1b[3~",
  PageUp: "\x1b[5~", PageDown: "\x1b[6~" };

/** Keys that only a window of its own takes. (xterm, *Control Sequences*: PC-style function
 *  keys) */
const ALL_KEYS = { Escape: "\x1b", Insert: "\x1b[2~", F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR",
  F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~",
  F10: "\x1b[21~", F12: "\x1b[24~" };

/** The console of a node in the page. It is updated until `isWanted` returns false. With
 *  `takesAll`, it takes every key; else Esc and Shift+Tab leave it. */
export function console_(network, node, isWanted, takesAll = false) {
  const path = of(network, "/nodes/" + encodeURIComponent(node) + "/console");
  const element = html("pre", { id: "console", tabindex: "0", role: "log",
    "aria-label": "Console of " + node + (takesAll ? "" : ". Esc leaves it.") });
  const screen = new Screen();
  let waiting = "", isSending = false;
  const type = async (text) => {
    waiting += text;
    if (isSending) return;
    isSending = true;
    try {
      while (waiting) {
        const text = waiting;
        waiting = "";
        await ask("POST", path, { text });
        quiet("typing");
      }
    } catch (error) {
      waiting = "";
      notice(error.message, "typing");
    } finally {
      isSending = false;
    }
  };
  element.addEventListener("keydown", (event) => {
    if (event.metaKey || (!takesAll && (event.altKey || event.key === "Escape"))) return;
    let text = takesAll ? ALL_KEYS[event.key] ?? KEYS[event.key] : KEYS[event.key];
    const isOne = [...event.key].length === 1;
    const hasSelection = String(getSelection()) !== "";
    if (event.ctrlKey) {
      // With a selection, the keys copy; pasted text arrives by its own event.
      const isCopy = event.key === "c" && hasSelection;
      text = isOne && /[a-z[\\\]]/.test(event.key) && !isCopy && event.key !== "v"
        ? String.fromCharCode(event.key.charCodeAt(0) & 31) : undefined;
    } else if (isOne) text = event.key;
    if (text !== undefined && takesAll && event.altKey) text = "\x1b" + text;
    if (event.key === "Tab" && event.shiftKey) {
      // Leaves the console, as everywhere on the page.
      if (!takesAll) return;
      text = "\x1b[Z";
    }
    if (text === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    type(text);
  });
  element.addEventListener("paste", (event) => {
    event.preventDefault();
    type(event.clipboardData.getData("text").replace(/\r?\n/g, "\r"));
  });
  follow(path, screen, element, isWanted);
  return { element, type, screen };
}

async function follow(path, screen, element, isWanted) {
  const decoder = new TextDecoder();
  let since = 0;
  screen.draw(element);
  while (isWanted()) {
    try {
      const said = await ask("GET", path + "?since=" + since + "&wait_ms=5000");
      quiet("console");
      since = said.next;
      screen.take(decoder.decode(Uint8Array.from(said.bytes), { stream: true }));
      if (said.bytes.length) screen.draw(element);
    } catch (error) {
      if (!isWanted()) return;
      notice(error.message, "console");
      // After a refusal, retrying would not help.
      if (error.status === 403) return;
      await wait(2000);
    }
  }
}
