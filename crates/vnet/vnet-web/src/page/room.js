// The free room on the screen, for labels that must not cover one another.

const CELL = 64;

export class Room {
  constructor() {
    this.cells = new Map();
  }

  /** Whether a box overlaps none that was taken. Boxes are given by their middle. */
  isFree(box) {
    return this.around(box).every((cell) => (this.cells.get(cell) ?? []).every((it) =>
      Math.abs(it.x - box.x) * 2 >= it.width + box.width
      || Math.abs(it.y - box.y) * 2 >= it.height + box.height));
  }

  take(box) {
    for (const cell of this.around(box)) {
      if (!this.cells.has(cell)) this.cells.set(cell, []);
      this.cells.get(cell).push(box);
    }
  }

  /** Takes a box if it is free. */
  claim(box) {
    const isFree = this.isFree(box);
    if (isFree) this.take(box);
    return isFree;
  }

  around({ x, y, width, height }) {
    const cells = [], cell = (value) => Math.floor(value / CELL);
    for (let i = cell(x - width / 2); i <= cell(x + width / 2); i++) {
      for (let j = cell(y - height / 2); j <= cell(y + height / 2); j++) cells.push(i + " " + j);
    }
    return cells;
  }
}
