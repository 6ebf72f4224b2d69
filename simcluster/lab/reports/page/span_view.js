// A canvas with a row for each node: spans where there is room for them, depth of colour for shares of time elsewhere.
import { fitted, penFor, ticksOf } from "./chart.js";
import { KINDS } from "./span_data.js";
const LEFT = 108, BOTTOM = 26, TOP = 18, RIGHT = 6;

export class SpanView {
  /** *kinds* are drawn, one below the other, in rows of *rowPx*; *deepest* is the share with the full colour. */
  constructor(place, data, { kinds, rowPx, unit }) {
    Object.assign(this, { place, data, kinds, rowPx, unit, nodes: [], start: 0, end: data.elapsed_s, deepest: 1, summed: 0 });
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    place.replaceChildren(this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.tell(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => this.tell(event));
  }

  get left() { return Math.min(LEFT, this.canvas.clientWidth * 0.22); }
  get width() { return this.canvas.clientWidth - this.left - RIGHT; }
  x(time) { return this.left + (time - this.start) / (this.end - this.start) * this.width; }
  time(x) { return this.start + Math.min(Math.max((x - this.left) / this.width, 0), 1) * (this.end - this.start); }

  draw() {
    const height = TOP + this.rowPx * this.nodes.length + BOTTOM;
    const { pen, ratio, colour } = penFor(this.canvas, this.place.clientWidth, height);
    this.drawAxis(pen, height, colour);
    this.drawBands(pen, height, colour);
    this.summed = 0;
    const named = Math.max(1, Math.ceil(14 / this.rowPx));
    this.nodes.forEach((node, row) => {
      const y = TOP + row * this.rowPx;
      if (row % named === 0) {
        pen.fillStyle = colour("--ink");
        pen.textAlign = "right";
        pen.textBaseline = "middle";
        pen.fillText(fitted(pen, this.data.name(node), this.left - 10), this.left - 6, y + Math.max(this.rowPx, 12) / 2);
      }
      const high = (this.rowPx - (this.rowPx > 8 ? 4 : 1)) / this.kinds.length;
      this.kinds.forEach((kind, place) => this.drawLane(pen, node, kind, y + 1 + place * high, high - (this.kinds.length > 1 ? 1 : 0), ratio));
    });
  }

  drawLane(pen, node, kind, y, high, ratio) {
    const count = Math.max(1, Math.round(this.width * ratio)), lane = node * KINDS.length + kind;
    const { shares, summed } = this.data.columns(lane, this.start, this.end, count);
    this.summed += summed;
    pen.fillStyle = KINDS[kind][1];
    for (let at = 0; at < count;) {
      let to = at + 1;
      while (to < count && shares[to] === shares[at]) to++;
      if (shares[at] !== 0) {
        pen.globalAlpha = shares[at] < 0 ? 0.5 : 0.3 + 0.7 * Math.min(1, shares[at] / this.deepest);
        pen.fillRect(this.left + at / ratio, shares[at] < 0 ? y + high / 2 : y, (to - at) / ratio, shares[at] < 0 ? 1 : high);
      }
      at = to;
    }
    pen.globalAlpha = 1;
  }

  drawAxis(pen, height, colour) {
    const [unitS, unit] = this.unit;
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--soft");
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const ticks = ticksOf(this.start / unitS, this.end / unitS, Math.max(2, this.width / 110));
    ticks.forEach((tick) => {
      const x = Math.round(this.x(tick * unitS)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, TOP);
      pen.lineTo(x, height - BOTTOM + 4);
      pen.stroke();
      const text = String(Number(tick.toPrecision(10))), half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(x, this.left + this.width - half), height - BOTTOM + 8);
    });
    pen.textAlign = "right";
    pen.fillText(`time (${unit})`, this.left - 6, height - BOTTOM + 8);
  }

  drawBands(pen, height, colour) {
    const told = new Set();
    for (const [label, start, end, isMoment] of this.data.bands) {
      if (start >= this.end || end < this.start) continue;
      const x = Math.max(this.x(start), this.left), to = Math.min(this.x(end), this.left + this.width);
      pen.fillStyle = "#d1495b";
      pen.globalAlpha = isMoment ? 1 : 0.16;
      pen.fillRect(x, TOP, isMoment ? 1.5 : Math.max(1, to - x), height - TOP - BOTTOM);
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--bad");
      pen.textAlign = "left";
      pen.textBaseline = "top";
      if (!told.has(label)) pen.fillText(fitted(pen, label, this.left + this.width - x), x, 2);
      told.add(label);
    }
  }

  /** Return [node, kind] at a point of the canvas; [] if there is none. */
  lane(offsetX, offsetY) {
    const row = Math.floor((offsetY - TOP) / this.rowPx), node = this.nodes[row];
    if (node === undefined || offsetX < this.left) return [];
    const place = Math.floor((offsetY - TOP - row * this.rowPx) / (this.rowPx / this.kinds.length));
    return [node, this.kinds[Math.min(place, this.kinds.length - 1)]];
  }

  tell(event) {
    const [node, kind] = this.lane(event.offsetX, event.offsetY), words = node === undefined ? "" : this.words(node, kind, event.offsetX);
    this.tip.hidden = !words;
    this.tip.textContent = words;
    this.tip.style.top = `${event.offsetY + 16}px`;
    this.tip.style.left = `${Math.max(0, Math.min(event.offsetX + 12, this.place.clientWidth - this.tip.offsetWidth))}px`;
  }

  words(node, kind, x) {
    const lane = node * KINDS.length + kind, from = this.time(x - 1), to = this.time(x + 1), name = this.data.name(node);
    const found = this.data.isExact(node, from, to) ? this.data.touching(lane, from, to) : [];
    if (found.length) {
      const more = found.length > 3 ? `\nand ${found.length - 3} more spans` : "";
      return `${name}\n${found.slice(0, 3).map((at) => this.data.describe(lane, at)).join("\n")}${more}`;
    }
    const share = this.data.columns(lane, from, to, 1).shares[0], at = `at ${seconds(this.time(x))}`;
    if (share < 0) return `${name} ${at}: ${KINDS[kind][0]} not recorded so late in the run`;
    return `${name} ${at}: ${KINDS[kind][0]} ${percent(share * 100)} of the time`;
  }
}
