// The visible part of the map, which is moved and zoomed with mouse, touch and keys.

const NEAREST = 0.2, LARGEST = 1.3;
/** The margin of the screen beside, above and below the content. */
export const MARGIN = { x: 62, top: 44, bottom: 92 };

export class Window {
  /** `press` is called with the event and its position on the map. It returns handlers for the
   *  rest of the gesture; their `move` returns whether it has handled a movement. */
  constructor(svg, press) {
    this.svg = svg;
    this.content = { x: 0, y: 0, width: 100, height: 100 };
    this.seen = null;
    this.fingers = new Map();
    this.held = null;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.0015), this.place(event));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.fingers.set(event.pointerId, event);
      this.held = this.fingers.size === 1 ? press(event, this.place(event)) : null;
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => this.moved(event));
    for (const kind of ["pointerup", "pointercancel"]) {
      svg.addEventListener(kind, (event) => {
        if (!this.fingers.delete(event.pointerId)) return;
        if (this.held) this.held.up(kind === "pointerup");
        this.held = null;
        svg.classList.remove("moving");
      });
    }
    new ResizeObserver(() => this.show()).observe(svg);
  }

  /** The position of an event on the map. */
  place(event) {
    const matrix = this.svg.getScreenCTM();
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  }

  moved(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    if (this.held && this.held.move(this.place(event), event)) return;
    const others = [...this.fingers.values()].filter((it) => it.pointerId !== event.pointerId);
    this.fingers.set(event.pointerId, event);
    if (others.length === 1) {
      const away = (it) => Math.hypot(it.clientX - others[0].clientX,
        it.clientY - others[0].clientY);
      this.zoom(away(before) / Math.max(away(event), 1), this.place(others[0]));
    } else if (others.length === 0) {
      this.svg.classList.add("moving");
      const [from, to] = [this.place(before), this.place(event)];
      this.move(from.x - to.x, from.y - to.y);
    }
  }

  /** Sets the extent of the content. The visible part stays if the user has chosen it. */
  holds(content) {
    this.content = content;
    this.show();
  }

  fit() {
    this.seen = null;
    this.show();
  }

  move(x, y) {
    const seen = this.seen || this.all();
    this.seen = { ...seen, x: seen.x + x, y: seen.y + y };
    this.show();
  }

  zoom(factor, at) {
    const seen = this.seen || this.all(), all = this.all();
    const centre = at || { x: seen.x + seen.width / 2, y: seen.y + seen.height / 2 };
    const least = NEAREST * Math.min(this.svg.clientWidth, all.width) / seen.width;
    const most = 2 * all.width / seen.width;
    const by = Math.min(Math.max(factor, least), most);
    this.seen = {
      x: centre.x - (centre.x - seen.x) * by, y: centre.y - (centre.y - seen.y) * by,
      width: seen.width * by, height: seen.height * by,
    };
    this.show();
  }

  /** Shows everything; small content is enlarged a little. The margin is one of the screen. */
  all() {
    const { x, y, width, height } = this.content;
    const { clientWidth, clientHeight } = this.svg;
    const fit = (screen, margin, size) =>
      Math.max(screen - margin, screen / 2) / Math.max(size, 1);
    const { top, bottom } = MARGIN;
    const scale = Math.min(fit(clientWidth || 800, 2 * MARGIN.x, width),
      fit(clientHeight || 600, top + bottom, height), LARGEST);
    const [wide, high] = [(clientWidth || 800) / scale, (clientHeight || 600) / scale];
    const lower = (bottom - top) / 2 / scale;
    return { x: x + width / 2 - wide / 2, y: y + height / 2 - high / 2 + lower, width: wide,
      height: high };
  }

  /** Screen pixels per unit of the map. */
  scale() {
    const { width, height } = this.seen || this.all();
    return Math.min(this.svg.clientWidth / width, this.svg.clientHeight / height);
  }

  show() {
    const { x, y, width, height } = this.seen || this.all();
    this.svg.setAttribute("viewBox", [x, y, width, height].map((it) => it.toFixed(1)).join(" "));
    if (this.onshow) this.onshow();
  }
}
