// A capture of a link: started and stopped by a click, with descriptions of its packets as they
// pass, and a file to save.

import { ask, of, wait } from "./ask.js";
import { act, html, notice, quiet, save, say } from "./elements.js";

const LINES_MAX = 500;

/** The part of the page for captures of a link. It is updated until `isWanted` returns false. */
export function capture(network, link, isWanted) {
  const box = html("div", { id: "capture" });
  const side = html("select",
    { id: "side", "aria-label": "The end at which the link is looked at" },
    link.ends.map((end, number) => html("option", { value: number }, end)));
  const start = html("button", { id: "capture-start", class: "main" }, "Start");
  const stop = html("button", { id: "capture-stop", hidden: "" }, "Stop");
  const file = html("button", { id: "capture-save", hidden: "" }, "Save as pcapng");
  const count = html("span", { class: "hint", id: "capture-count", role: "status" });
  const packets = html("pre", { id: "packets", tabindex: "0", hidden: "",
    "aria-label": "Packets" });
  box.append(html("h2", {}, "Capture"),
    html("p", { class: "buttons" }, [side, start, stop, file, count]), packets);
  let id = null;
  start.addEventListener("click", () => act(async () => {
    const begun = await ask("POST", of(network, "/captures"),
      { link: link.number, side: Number(side.value) });
    id = begun.id;
    packets.replaceChildren();
    for (const [element, isHidden] of [[start, true], [stop, false], [file, false],
      [packets, false]]) element.hidden = isHidden;
    side.disabled = true;
    await follow(id);
    start.hidden = false;
    stop.hidden = true;
    side.disabled = false;
  }));
  stop.addEventListener("click", () => act(() => ask("POST", `/v1/captures/${id}/end`)));
  file.addEventListener("click", () => act(async () => {
    const bytes = await ask("GET", `/v1/captures/${id}/pcapng`, undefined, { as: "blob" });
    save(bytes, `${network}-${link.ends[side.value].replace(":", "-")}.pcapng`);
  }));

  async function follow(id) {
    let since = 0;
    while (isWanted()) {
      let seen;
      try {
        seen = await ask("GET", `/v1/captures/${id}?since=${since}&wait_ms=2000`);
        quiet("capture");
      } catch (error) {
        if (error.status !== 0) return notice(error.message, "capture");
        await wait(1000);
        continue;
      }
      since = seen.next;
      show(seen.packets);
      say(count, `${seen.count} packets, ${seen.file_bytes} bytes`
        + (seen.missed ? `, ${seen.missed} missed` : "") + (seen.is_full ? ", full" : ""));
      if (seen.end) {
        if (seen.end !== "ended") notice(seen.end, "capture");
        return;
      }
    }
    // The capture is no longer shown; remove it.
    await ask("DELETE", "/v1/captures/" + id).catch(() => {});
  }

  function show(more) {
    if (!more.length) return;
    const isAtEnd = packets.scrollHeight - packets.scrollTop - packets.clientHeight < 40;
    packets.append(...more.map((packet) =>
      html("div", {}, `${(packet.after_ns / 1e9).toFixed(6)} ${packet.interface}  `
        + packet.summary)));
    while (packets.children.length > LINES_MAX) packets.firstChild.remove();
    if (isAtEnd) packets.scrollTop = packets.scrollHeight;
  }
  return box;
}
