// The time slider: states of the network as a band, events as ticks.

import { ask, of } from "./ask.js";
import { find, say, set, svg } from "./elements.js";

const KINDS = { ready: "up", changing: "late", degraded: "late", failed: "down" };

export class Timeline {
  /** `show` is called with an earlier moment, or with null for now. */
  constructor(show, fail) {
    this.show = show;
    this.fail = fail;
    this.slider = find("time");
    this.clear(null);
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    find("now").addEventListener("click", () => this.go(Infinity));
  }

  clear(network) {
    this.network = network;
    this.samples = [];
    this.ticks = [];
    this.now = 0;
    this.at = null;
    this.began = null;
    this.wanted = undefined;
    this.paint();
  }

  /** Whether an earlier moment is shown. */
  get isPast() {
    return this.at !== null;
  }

  /** The shown time, in ms since the agent created the network or took it over. */
  get time() {
    return this.at ?? this.now;
  }

  /** Fetches the samples since the last call. */
  async learn() {
    const network = this.network, since = this.samples.length ? this.samples.at(-1).at_ms : 0;
    const history = await ask("GET", of(network, "/history?since=" + since));
    if (network !== this.network) return;
    this.now = history.now_ms;
    this.clock = Date.now() - history.now_ms;
    this.samples.push(...history.samples.filter((it) => it.at_ms > since || since === 0));
    // The agent forgets the oldest samples, too.
    if (this.samples.length > 8192) this.samples.splice(0, 4096);
    this.paint();
  }

  /** Adds an event, which becomes a tick. */
  happened(event) {
    this.ticks.push(event.at_ms);
    if (this.ticks.length > 1000) this.ticks.shift();
  }

  /** Shows a moment. */
  async go(at) {
    const last = this.samples.length ? this.samples.at(-1).at_ms : 0;
    this.at = at >= Math.max(last, 1) ? null : Math.max(at, this.first());
    this.paint();
    this.wanted = this.at;
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      // The slider may move on while an answer is awaited; its last position counts.
      while (this.wanted !== undefined) {
        const wanted = this.wanted, network = this.network;
        this.wanted = undefined;
        if (wanted === null) {
          this.show(null);
          continue;
        }
        const moment = await ask("GET", of(network, "/history/" + Math.floor(wanted)));
        if (network === this.network && this.at !== null) this.show(moment);
      }
    } catch (error) {
      this.fail(error);
    } finally {
      this.isAsking = false;
    }
  }

  /** Moves by one sample, backward or forward. */
  step(by) {
    if (!this.samples.length) return;
    const times = this.samples.map((it) => it.at_ms), at = this.time;
    const place = times.findLastIndex((it) => it <= at);
    const next = place + by;
    this.go(next >= times.length ? Infinity : times[Math.max(next, 0)]);
  }

  first() {
    return this.samples.length ? this.samples[0].at_ms : 0;
  }

  /** The time of day of a moment. */
  clockAt(at) {
    return new Date((this.clock ?? Date.now()) + at).toLocaleTimeString();
  }

  paint() {
    const first = this.first(), end = Math.max(this.now, first + 1);
    set(this.slider, { min: first, max: end });
    if (this.at === null) this.slider.value = end;
    else if (Number(this.slider.value) !== this.at) this.slider.value = this.at;
    this.slider.disabled = this.samples.length < 2;
    find("now").disabled = !this.isPast;
    document.body.classList.toggle("past", this.isPast);
    const ago = Math.max(this.now - this.time, 0);
    const words = this.isPast ? `${this.clockAt(this.at)}, ${span(ago)} ago` : "now";
    say(find("shown"), words);
    set(this.slider, { "aria-valuetext": words });
    this.paintStrip(first, end);
  }

  paintStrip(first, end) {
    const strip = find("strip"), wide = end - first;
    set(strip, { viewBox: `0 0 1000 9` });
    const x = (at) => Math.max(0, (at - first) / wide * 1000);
    const bands = [];
    for (const sample of this.samples) {
      const kind = KINDS[sample.state] || "late";
      const last = bands.at(-1);
      if (last && last.kind === kind) continue;
      if (last) last.to = sample.at_ms;
      bands.push({ kind, from: sample.at_ms, to: end });
    }
    const rects = bands.map(({ kind, from, to }) => svg("rect",
      { class: kind, x: x(from), y: 4, width: Math.max(x(to) - x(from), 1), height: 5 }));
    const ticks = new Set(this.ticks.filter((at) => at >= first).map((at) => Math.round(x(at))));
    rects.push(...[...ticks].map((at) => svg("rect",
      { class: "event", x: at - 0.6, y: 0, width: 1.2, height: 9 })));
    strip.replaceChildren(...rects);
  }
}

/** A time as text. */
export function span(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
}
