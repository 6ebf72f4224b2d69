// Parallel coordinates: an axis per swept key and measure, a line per point; the reader draws ranges on the axes.
"use strict";
const MOST_AXES = 8, MOST_LINES = 2000, MOST_FAINT = 1000, LINES_HIGH = 320;

class Lines {
  /** In *place*; *choose* is called with an axis and the two ends of a range on it, or with null for no range. */
  constructor(place, choose) {
    this.place = place;
    this.canvas = element("canvas", { role: "img" });
    this.mark = element("div", { class: "selection" });
    this.mark.hidden = true;
    place.replaceChildren(this.canvas, this.mark);
    let axis = -1, from = 0;
    const share = (event) => 1 - Math.min(1, Math.max(0, (event.offsetY - 30) / this.high));
    const nearest = (x) => this.at.reduce((best, at, index) => (Math.abs(at - x) < Math.abs(this.at[best] - x) ? index : best), 0);
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") return;
      axis = nearest(event.offsetX);
      from = share(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      this.mark.hidden = axis < 0;
      if (axis < 0) return;
      const [a, b] = [from, share(event)].map((one) => 30 + (1 - one) * this.high);
      Object.assign(this.mark.style, { left: `${this.at[axis] - 9}px`, width: "18px", top: `${Math.min(a, b)}px`, height: `${Math.abs(a - b)}px` });
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const [at, to] = [axis, share(event)];
      axis = -1;
      this.mark.hidden = true;
      if (at >= 0 && Math.abs(to - from) * this.high > 4) choose(this.scales[at], [from, to]);
    });
    this.canvas.addEventListener("dblclick", (event) => choose(this.scales[nearest(event.offsetX)], null));
  }

  /** Draw *rows* over the others, faintly; return [lines drawn, axes left out]. */
  draw(state, rows, colourOf) {
    const names = [...new Set([...sweep.keys, ...sweep.measures.slice(0, 1), state.y])].filter((name) => columns.has(name));
    const axes = names.length > MOST_AXES ? [...names.slice(0, MOST_AXES - 1), state.y] : names;
    this.scales = axes.map((name) => this.scale(columns.get(name)));
    const { pen, colour } = penFor(this.canvas, this.place.clientWidth, LINES_HIGH);
    const width = this.place.clientWidth, side = Math.min(70, width * 0.12);
    this.high = LINES_HIGH - 30 - 12;
    this.at = axes.map((_, index) => (axes.length < 2 ? width / 2 : side + index * (width - 2 * side) / (axes.length - 1)));
    const all = Uint32Array.from({ length: rowCount }, (_, row) => row);
    pen.lineWidth = 1;
    if (rows.length < rowCount) this.paint(pen, all, MOST_FAINT, () => colour("--line"), 0.5);
    const drawn = this.paint(pen, rows, MOST_LINES, colourOf, rows.length > 300 ? 0.35 : 0.75);
    this.paintAxes(pen, state, colour, (width - 2 * side) / Math.max(1, axes.length - 1));
    this.canvas.setAttribute("aria-label", `parallel coordinates of ${this.scales.map((scale) => scale.column.title).join(", ")}`);
    return [drawn, new Set([...names]).size - axes.length];
  }

  scale(column) {
    if (!column.line) {
      const values = isNumber(column) ? column.values.filter((value) => !Number.isNaN(value) && (!column.log || value > 0)) : [];
      column.line = new Scale(column, column.log, values).padded(0.02);
    }
    return column.line;
  }

  paint(pen, rows, most, colourOf, depth) {
    const every = Math.max(1, Math.ceil(rows.length / most)), lists = new Map();
    let drawn = 0;
    for (let index = 0; index < rows.length; index += every) {
      const hue = colourOf(rows[index]);
      if (!lists.has(hue)) lists.set(hue, []);
      lists.get(hue).push(rows[index]);
      drawn++;
    }
    pen.globalAlpha = depth;
    for (const [hue, list] of lists) {
      pen.strokeStyle = hue;
      pen.beginPath();
      for (const row of list) {
        let isFirst = true;
        this.scales.forEach((scale, index) => {
          const place = this.y(scale, row);
          if (Number.isNaN(place)) { isFirst = true; return; }
          if (isFirst) pen.moveTo(this.at[index], place); else pen.lineTo(this.at[index], place);
          isFirst = false;
        });
      }
      pen.stroke();
    }
    pen.globalAlpha = 1;
    return drawn;
  }

  y(scale, row) {
    if (scale.words) {
      scale.placeOf ??= new Map(scale.words.map((word, place) => [word, place]));
      const place = scale.placeOf.get(wordOf(scale.column, row));
      return place === undefined ? NaN : 30 + (1 - scale.where(place)) * this.high;
    }
    const value = scale.column.values[row];
    return scale.log && value <= 0 ? NaN : 30 + (1 - scale.where(value)) * this.high;
  }

  paintAxes(pen, state, colour, room) {
    this.scales.forEach((scale, index) => {
      const x = this.at[index], filter = state.filters.get(scale.column.name);
      pen.strokeStyle = colour("--soft");
      pen.lineWidth = 1.2;
      line(pen, x, 30, x, 30 + this.high);
      pen.fillStyle = colour("--ink");
      pen.textBaseline = "middle";
      pen.textAlign = index === this.scales.length - 1 && index > 0 ? "right" : "left";
      const side = pen.textAlign === "right" ? -1 : 1;
      for (const [share, text] of scale.ticks(5)) {
        const y = 30 + (1 - share) * this.high, words = fitted(pen, text, room * 0.5), wide = pen.measureText(words).width;
        pen.fillStyle = colour("--card");
        pen.globalAlpha = 0.8;
        pen.fillRect(side > 0 ? x + 5 : x - 5 - wide, y - 7, wide, 14);
        pen.globalAlpha = 1;
        pen.fillStyle = colour("--ink");
        pen.fillText(words, x + 5 * side, y);
      }
      pen.textAlign = index === 0 ? "left" : side < 0 ? "right" : "center";
      const from = index === 0 ? Math.max(0, x - 60) : side < 0 ? Math.min(this.place.clientWidth, x + 60) : x;
      pen.fillText(fitted(pen, scale.column.title.split(".").slice(room < 110 ? -1 : -2).join("."), room - 8), from, 12);
      if (filter && (filter.is.size || filter.min !== "" || filter.max !== "")) this.paintRange(pen, scale, x, filter);
    });
  }

  paintRange(pen, scale, x, filter) {
    const shares = scale.words ? scale.words.flatMap((word, place) => (filter.is.has(word) ? [scale.where(place)] : []))
      : filter.is.size ? [] : [filter.min === "" ? 0 : scale.where(Number(filter.min)), filter.max === "" ? 1 : scale.where(Number(filter.max))];
    if (!shares.length || shares.some(Number.isNaN)) return;
    const [a, b] = [Math.min(...shares), Math.max(...shares)].map((share) => 30 + (1 - Math.min(1, Math.max(0, share))) * this.high);
    pen.strokeStyle = "#e0862b";
    pen.lineWidth = 6;
    line(pen, x, Math.max(a, b + 2), x, b);
  }
}
