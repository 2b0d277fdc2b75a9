// The grants of a network: who may do what until when; and withdrawing them.

import { ask, of } from "./ask.js";
import { act, find, html, keyed, say, set } from "./elements.js";

/** What a grant allows, in the words of `carina vnet grants`. */
const rights = (grant) => grant.may.join(", ")
  + (grant.nodes && grant.nodes.length ? " at " + grant.nodes.join(", ") : "");

/** Text for the expiry of a grant; `until` is in seconds since 1970. */
function endOf(grant) {
  if (grant.until === undefined) return "as long as the network is there";
  const left = grant.until - Date.now() / 1000;
  const at = new Date(grant.until * 1000).toLocaleString();
  return left > 0 ? "until " + at : "ended " + at;
}

export class Grants {
  /** `view` is the state of the page. */
  constructor(view) {
    this.view = view;
    this.all = {};
  }

  clear() {
    this.all = {};
    this.draw();
  }

  /** Fetches the grants of a network. */
  async learn(name) {
    const all = await ask("GET", of(name, "/grants"));
    if (name === this.view.name) this.all = all;
  }

  /** Shows the grants beside the current network; hides them while a node or link is selected. */
  draw() {
    const names = Object.keys(this.all);
    const { view } = this;
    find("grants").hidden = names.length === 0 || view.chosen !== null || view.isPast;
    keyed(find("granted"), names, (name) => name, (name) => this.row(name), (row, name) => {
      const grant = this.all[name];
      say(row.children[1], rights(grant));
      say(row.children[2], endOf(grant));
      set(row, { class: grant.until * 1000 <= Date.now() ? "over" : "row" });
    });
  }

  row(name) {
    const title = "From now on " + name + " may do none of it";
    const back = html("button", { class: "danger", title }, "Revoke");
    back.addEventListener("click", () => act(async () => {
      const network = this.view.name;
      back.disabled = true;
      try {
        await ask("DELETE", of(network, "/grants/" + encodeURIComponent(name)));
        await this.learn(network);
      } finally {
        back.disabled = false;
        this.draw();
      }
    }));
    return html("tr", {}, [html("th", { scope: "row" }, name), html("td"), html("td"),
      html("td", {}, [back])]);
  }
}
