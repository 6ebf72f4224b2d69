// The figure: marks on a canvas, with axes, a legend and hover texts. This file uses the choices, but no other part of the page.
"use strict";
const narrow = window.matchMedia("(max-width: 560px)");
const HIGH = 440, SIDES = { top: 12, right: 14, bottom: 52 };
const SMALL_FROM = 4000; // from this number on, marks are small squares
const SHADES = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"]; // Viridis

/** The colour at a share of the scale, of 64. */
const shades = Array.from({ length: 64 }, (_, at) => {
  const place = at / 63 * (SHADES.length - 1), low = Math.min(Math.floor(place), SHADES.length - 2);
  const [a, b] = [SHADES[low], SHADES[low + 1]].map((text) => [1, 3, 5].map((from) => parseInt(text.slice(from, from + 2), 16)));
  return `rgb(${a.map((value, index) => Math.round(value + (place - low) * (b[index] - value))).join(",")})`;
});

class Figure {
  /** In *place*; *choose* is called with the row of a mark that is clicked, *select* with the two axes and a rectangle. */
  constructor(place, legend, choose, select) {
    Object.assign(this, { place, legend });
    this.canvas = element("canvas", { role: "img" });
    this.tip = element("div", { class: "tip" });
    this.tip.hidden = true;
    this.mark = element("div", { class: "selection" });
    this.mark.hidden = true;
    place.replaceChildren(this.canvas, this.mark, this.tip);
    let from = null;
    this.canvas.addEventListener("pointermove", (event) => { if (from) this.drag(from, event); else this.tell(event); });
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") return;
      from = [event.offsetX, event.offsetY];
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const start = from;
      from = null;
      this.mark.hidden = true;
      if (start && Math.max(Math.abs(event.offsetX - start[0]), Math.abs(event.offsetY - start[1])) > 5) {
        const [a, b] = [start, [event.offsetX, event.offsetY]].map(([x, y]) => [this.share(x), 1 - (y - SIDES.top) / this.high]);
        select(this.scales, a, b);
        return;
      }
      const found = this.nearest(event.offsetX, event.offsetY);
      if (found >= 0) choose(this.marks.row[found]);
    });
  }

  share(x) { return (x - this.left) / this.wide; }

  /** Draw *rows* as *state* has it; return how many marks that are, and how many of them have failed. */
  draw(state, rows) {
    this.state = state;
    const marks = marksOf(state, rows), column = columns.get(state.colour);
    const [x, y] = ["x", "y"].map((axis) => {
      const values = Array.from(marks.shown, (mark) => marks[axis][mark]);
      return new Scale(columns.get(state[axis]), isLog(state, axis), values);
    });
    if (state.seeds === "mean" && isNumber(y.column)) this.reach(y, marks);
    this.marks = marks;
    this.scales = [x.padded(0.03), y.padded(0.05)];
    this.parts = partsOf(state, marks);
    this.colours = column && !inColours(column) ? new Scale(column, isLog(state, "colour"), Array.from(marks.shown, (mark) => marks.colour[mark])) : null;
    this.paint();
    this.tellLegend(column);
    const names = [y, x].map((scale) => scale.column.title);
    this.canvas.setAttribute("aria-label", `${names.join(" against ")}, ${marks.shown.length} places`);
    return [marks.shown.length, marks.shown.reduce((sum, mark) => sum + (marks.failed[mark] > 0), 0)];
  }

  /** Extend the axis to the whole spread over seeds. */
  reach(y, marks) {
    const ends = [];
    for (const mark of marks.shown) for (const value of [marks.low[mark], marks.high[mark]]) if (!y.log || value > 0) ends.push(value);
    if (ends.length) y.ends = new Scale(y.column, y.log, ends).ends;
  }

  paint() {
    const width = this.place.clientWidth, [x, y] = this.scales;
    const { pen, colour } = penFor(this.canvas, width, HIGH);
    this.high = HIGH - SIDES.top - SIDES.bottom;
    const ups = y.ticks(7), most = Math.max(...ups.map(([, text]) => pen.measureText(text).width), 10);
    this.left = Math.min(most + 34, width * 0.34);
    this.wide = width - this.left - SIDES.right;
    const acrosses = x.ticks(Math.max(2, Math.floor(this.wide / (x.words ? 90 : 80))));
    pen.strokeStyle = "rgba(128,136,146,0.25)";
    pen.fillStyle = colour("--ink");
    pen.textBaseline = "top";
    pen.textAlign = "center";
    let until = -Infinity;
    for (const [share, text] of acrosses) {
      const at = this.left + share * this.wide, fits = fitted(pen, text, x.words ? this.wide / acrosses.length - 6 : 90), half = pen.measureText(fits).width / 2;
      line(pen, at, SIDES.top, at, SIDES.top + this.high + 4);
      const middle = Math.min(at, width - half - 2);
      if (middle - half > until + 4) { pen.fillText(fits, middle, SIDES.top + this.high + 8); until = middle + half; }
    }
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const [share, text] of ups) {
      const at = SIDES.top + (1 - share) * this.high;
      line(pen, this.left - 4, at, this.left + this.wide, at);
      pen.fillText(fitted(pen, text, this.left - 30), this.left - 8, at);
    }
    pen.textAlign = "center";
    pen.fillText(fitted(pen, x.column.title, this.wide), this.left + this.wide / 2, HIGH - 14);
    pen.save();
    pen.translate(10, SIDES.top + this.high / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(fitted(pen, y.column.title, this.high), 0, 0);
    pen.restore();
    this.placeMarks();
    this.paintMarks(pen, colour);
  }

  /** Return the position of each mark in pixels. */
  placeMarks() {
    const { shown, x, y } = this.marks;
    this.xs = Float32Array.from(shown, (mark) => this.left + this.scales[0].where(x[mark]) * this.wide);
    this.ys = Float32Array.from(shown, (mark) => SIDES.top + (1 - this.scales[1].where(y[mark])) * this.high);
    this.at = new Map();
    shown.forEach((mark, index) => this.at.set(mark, index));
  }

  paintMarks(pen, colour) {
    const { marks, state } = this, [x, y] = this.scales, many = marks.shown.length > SMALL_FROM;
    for (const [, hue, list] of this.parts) {
      const places = Array.from(list, (mark) => this.at.get(mark));
      const means = state.seeds === "mean", spread = means && !many && isNumber(y.column) && list.some((mark) => marks.low[mark] < marks.high[mark]);
      // A line where one place follows another: means along a swept key, all of one colour.
      const apart = new Set(Array.from(list, (mark) => marks.x[mark])).size === list.length;
      if (hue && means && x.column.swept && isNumber(y.column) && apart) this.paintLine(pen, hue, list, places);
      if (spread) this.paintSpread(pen, hue ?? colour("--soft"), list, places);
      this.paintPart(pen, hue, list, places, many);
    }
    const chosen = state.point === null ? -1 : this.at.get(marks.groupOf(state.point)) ?? -1;
    if (chosen >= 0) {
      pen.strokeStyle = "#e0862b";
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.arc(this.xs[chosen], this.ys[chosen], 8.5, 0, 7);
      pen.stroke();
    }
  }

  paintLine(pen, hue, list, places) {
    const order = isNumber(this.scales[0].column) ? Array.from(places).sort((a, b) => this.xs[a] - this.xs[b]) : places;
    pen.strokeStyle = hue;
    pen.lineWidth = 2;
    pen.beginPath();
    order.forEach((at) => pen.lineTo(this.xs[at], this.ys[at]));
    pen.stroke();
  }

  paintSpread(pen, hue, list, places) {
    const up = (value) => SIDES.top + (1 - Math.max(0, this.scales[1].where(value) || 0)) * this.high;
    pen.strokeStyle = hue;
    pen.lineWidth = 1.2;
    list.forEach((mark, index) => {
      const x = this.xs[places[index]], [low, high] = [up(this.marks.low[mark]), up(this.marks.high[mark])];
      line(pen, x, low, x, high);
      line(pen, x - 3, low, x + 3, low);
      line(pen, x - 3, high, x + 3, high);
    });
  }

  /** The marks of one colour, or of a scale of colours; a cross for what has failed, if only for one seed. */
  paintPart(pen, hue, list, places, many) {
    const { marks, colours } = this;
    const lists = new Map();
    for (let index = 0; index < list.length; index++) {
      const own = hue ?? shades[Math.min(63, Math.max(0, Math.round(63 * colours.where(marks.colour[list[index]]))))];
      if (!lists.has(own)) lists.set(own, []);
      lists.get(own).push(index);
    }
    for (const [own, indexes] of lists) {
      pen.fillStyle = pen.strokeStyle = own;
      pen.lineWidth = 2;
      pen.beginPath();
      for (const index of indexes) {
        const x = this.xs[places[index]], y = this.ys[places[index]];
        if (marks.failed[list[index]]) {
          line(pen, x - 4, y - 4, x + 4, y + 4);
          line(pen, x - 4, y + 4, x + 4, y - 4);
          pen.beginPath();
        } else if (many) pen.fillRect(x - 1.5, y - 1.5, 3, 3);
        else { pen.beginPath(); pen.arc(x, y, 4, 0, 7); pen.fill(); }
      }
    }
  }

  tellLegend(column) {
    this.legend.hidden = !column;
    if (!column) return;
    if (this.colours) {
      const ends = [0, 1].map((share) => tickText(Number(this.colours.at(share).toPrecision(3))));
      this.legend.replaceChildren(element("span", {}, `${column.title}: ${ends[0]}`), element("i", { class: "scale" }), element("span", {}, ends[1] + (this.colours.log ? ", logarithmic" : "")));
      return;
    }
    this.legend.replaceChildren(element("span", {}, `${column.title}:`), ...this.parts.map(([name, hue]) => {
      const sample = element("i");
      sample.style.background = hue;
      return element("span", {}, sample, name);
    }));
  }

  /** The number of the mark closest to a point of the canvas, -1 if none is close. */
  nearest(x, y) {
    let found = -1, least = 14 * 14;
    for (let index = 0; index < (this.xs?.length ?? 0); index++) {
      const away = (this.xs[index] - x) ** 2 + (this.ys[index] - y) ** 2;
      if (away < least) { least = away; found = index; }
    }
    return found < 0 ? -1 : this.marks.shown[found];
  }

  drag([fromX, fromY], event) {
    const { offsetX: x, offsetY: y } = event;
    this.tip.hidden = true;
    this.mark.hidden = false;
    Object.assign(this.mark.style, { left: `${Math.min(fromX, x)}px`, top: `${Math.min(fromY, y)}px`, width: `${Math.abs(x - fromX)}px`, height: `${Math.abs(y - fromY)}px` });
  }

  tell(event) {
    const found = this.nearest(event.offsetX, event.offsetY);
    this.tip.hidden = found < 0;
    if (found < 0) return;
    this.tip.textContent = this.words(found);
    this.tip.style.top = `${event.offsetY + 16}px`;
    this.tip.style.left = `${Math.max(0, Math.min(event.offsetX + 12, this.place.clientWidth - this.tip.offsetWidth))}px`;
  }

  words(mark) {
    const { marks } = this, row = marks.row[mark], size = marks.size[mark], bad = marks.failed[mark];
    const who = size > 1 ? `${size} seeds` : `point ${row}, seed ${label(columns.get("seed"), row)}`;
    const keys = sweep.keys.map((key) => `${key.split(".").pop()} ${label(columns.get(key), row)}`);
    const ends = this.scales.map((scale, axis) => {
      const value = (axis ? marks.y : marks.x)[mark];
      return `${scale.column.title} ${scale.words ? scale.words[value] : shown(value)}`;
    });
    return [who + (bad ? `, ${bad === size ? "" : `${bad} of them `}failed` : ""), ...keys, ...ends].join("\n");
  }
}

function line(pen, x, y, toX, toY) {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(toX, toY);
  pen.stroke();
}
