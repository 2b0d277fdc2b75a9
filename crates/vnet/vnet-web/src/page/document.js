// The dialog in which networks are made, changed and removed.

import { ask, of } from "./ask.js";
import { act, find, html, notice, quiet, say } from "./elements.js";

const EXAMPLE = `[vnet]
name = "triangle"

[defaults]
kind = "namespace"     # or "vm"

[node.a]
[node.b]
[node.c]

[[link]]
ends = ["a", "b"]
rate = "10Mbps"

[[link]]
ends = ["b", "c"]
rate = "10Mbps"

[[link]]
ends = ["c", "a"]
rate = "10Mbps"

[[test]]
ping = ["a", "c"]
`;

const SIGNS = { add: "+", change: "~", replace: "-/+", remove: "-" };

export class DocumentDialog {
  /** `view` is the state of the page; `made` is called with the name of a network that was made. */
  constructor(view, made) {
    this.view = view;
    this.made = made;
    this.dialog = find("document");
    this.text = find("text");
    this.plan = find("plan");
    this.ready = null;
    for (const id of ["open-document", "first"]) {
      find(id).addEventListener("click", () => this.open());
    }
    find("an-example").addEventListener("click", () => this.put(EXAMPLE));
    find("this-document").addEventListener("click", () => act(() => this.load()));
    find("look").addEventListener("click", () => this.look());
    find("do-it").addEventListener("click", () => this.doIt());
    find("remove").addEventListener("click", () => this.remove());
    this.text.addEventListener("input", () => this.forget());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.look();
      }
    });
    this.text.addEventListener("dragover", (event) => event.preventDefault());
    this.text.addEventListener("drop", async (event) => {
      const file = event.dataTransfer.files[0];
      if (!file) return;
      event.preventDefault();
      this.put(await file.text());
    });
  }

  open() {
    if (this.dialog.open) return;
    const { name } = this.view;
    find("remove").hidden = find("this-document").hidden = name === null;
    if (name !== null) say(find("remove"), "Remove " + name + "…");
    this.armed = false;
    if (name !== null && this.text.value === "") this.load().catch(() => {});
    this.dialog.showModal();
    this.text.focus();
  }

  put(text) {
    this.text.value = text;
    this.forget();
  }

  async load() {
    const path = of(this.view.name, "/document/toml");
    this.put(await ask("GET", path, undefined, { as: "text" }));
  }

  /** Discards the plan, because the text has changed. */
  forget() {
    this.ready = null;
    find("do-it").disabled = true;
    this.plan.replaceChildren();
  }

  fail(error) {
    this.forget();
    this.plan.append(html("p", { class: "is-down" }, error.message));
  }

  /** Shows the plan for the text. */
  async look() {
    this.forget();
    const text = this.text.value;
    try {
      const read = await ask("POST", "/v1/read", text);
      const isThere = this.view.names.includes(read.document.vnet.name);
      const plan = this.view.can.has("plan")
        ? await ask("POST", "/v1/plan", read.document)
        : await this.compare(read.document, isThere);
      if (text !== this.text.value) return;
      this.show(plan);
      if (plan.refusal) return;
      this.ready = { ...read, isThere: plan.is_there };
      const button = find("do-it");
      button.disabled = false;
      say(button, (plan.is_there ? "Change " : "Make ") + plan.name);
      button.focus();
    } catch (error) {
      this.fail(error);
    }
  }

  show(plan) {
    const lines = plan.steps.map((step) => html("div", { "data-action": step.action },
      [html("code", {}, SIGNS[step.action]), `${step.subject}  ${step.reason}`]));
    if (!lines.length) lines.push(html("p", {}, "Nothing changes."));
    for (const note of plan.notes ?? []) lines.push(html("p", { class: "hint" }, "Note: " + note));
    const fits = plan.refusal ? html("p", { class: "is-down" }, "It does not fit: " + plan.refusal)
      : html("p", { class: "is-up" }, plan.fits ?? "It fits.");
    this.plan.replaceChildren(fits, ...lines);
  }

  /** Computes the difference to the current document. Whether it fits is only known when the
   *  provider is asked. */
  async compare(document, isThere) {
    const { name } = document.vnet;
    const old = isThere ? await ask("GET", of(name, "/document")) : { node: {}, link: [] };
    const steps = [];
    const links = (of) => Object.fromEntries((of.link ?? []).map((link) =>
      ["link " + [...link.ends].sort().join(" -- "), link]));
    const nodes = (of) => Object.fromEntries(Object.entries(of.node ?? {}).map(([name, node]) =>
      ["node " + name, { ...of.defaults, ...node }]));
    for (const part of [nodes, links]) {
      const [before, after] = [part(old), part(document)];
      for (const [subject, value] of Object.entries(after)) {
        const was = before[subject];
        if (!was) steps.push({ action: "add", subject, reason: "" });
        else if (JSON.stringify(was) !== JSON.stringify(value)) {
          const keys = Object.keys({ ...was, ...value }).filter((key) =>
            JSON.stringify(was[key]) !== JSON.stringify(value[key]));
          const words = (it) => JSON.stringify(it) ?? "nothing";
          const reason = keys.map((key) => `${key} ${words(was[key])} -> ${words(value[key])}`);
          steps.push({ action: "change", subject, reason: reason.join(", ") });
        }
      }
      for (const subject of Object.keys(before)) {
        if (!(subject in after)) steps.push({ action: "remove", subject, reason: "" });
      }
    }
    const fits = "The document is sound. The provider says whether it fits when it is asked for.";
    return { name, is_there: isThere, steps, fits };
  }

  async doIt() {
    if (!this.ready) return;
    const { document, isThere } = this.ready;
    try {
      await ask(isThere ? "PUT" : "POST", "/v1/vnets", document);
      this.dialog.close();
      this.put("");
      this.made(document.vnet.name);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Removes the network, on the second click. */
  async remove() {
    const { name } = this.view, button = find("remove");
    if (!this.armed) {
      this.armed = true;
      say(button, `Really remove ${name}, with all its nodes?`);
      return;
    }
    this.armed = false;
    this.dialog.close();
    quiet("person");
    notice(`Removing ${name}…`, "person", true);
    try {
      await ask("DELETE", of(name));
      quiet("person");
      this.put("");
      this.made(null);
    } catch (error) {
      notice(error.message);
    }
  }
}

/** Probes all links and runs the tests of a network's document. */
export async function test(name) {
  const button = find("test");
  button.disabled = true;
  say(button, "Testing…");
  await act(async () => {
    const outcomes = await ask("POST", of(name, "/test"));
    const lines = outcomes.map((it) => `${it.holds ? "✓" : "✗"} ${it.test}: ${it.seen}`);
    notice(`${name}\n${lines.join("\n")}`, "person", outcomes.every((it) => it.holds));
  });
  button.disabled = false;
  say(button, "Test");
}
