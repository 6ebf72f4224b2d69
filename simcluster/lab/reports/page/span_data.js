// The spans of a run in typed arrays, and the share of any time range that they cover.
import { seconds, size } from "./dom.js";
export const KINDS = [["computing", "#2f7fb8"], ["sending", "#e0862b"], ["waiting to receive", "#9aa5b1"]];
const UNKNOWN = 255, LEVELS = 250; // the values that span_columns.py writes

export class SpanData {
  constructor(head, buffer) {
    Object.assign(this, head);
    const n = this.kept;
    this.starts = new Float64Array(buffer, 0, n);
    this.lengths = new Float32Array(buffer, 8 * n, n);
    this.bytes = new Float32Array(buffer, 12 * n, n);
    this.peers = new Int32Array(buffer, 16 * n, n);
    this.tagsOf = new Uint16Array(buffer, 20 * n, n);
    this.levels = new Uint8Array(buffer, 22 * n);
    this.firsts = new Uint32Array(this.counts.length + 1);
    this.counts.forEach((count, lane) => { this.firsts[lane + 1] = this.firsts[lane] + count; });
    this.sums = new Map();
  }

  /** How much of the run *lane* was busy, 0 to 1. */
  total(lane) {
    return this.columns(lane, 0, this.elapsed_s, 1).shares[0];
  }

  /** Whether the single spans of *node* from *start* to *end* are all here. */
  isExact(node, start, end) {
    const until = this.ended_s[node] ?? this.elapsed_s;
    return end <= until * (1 + 1e-12) && this.exact.some(([from, to]) => from <= start && end <= to * (1 + 1e-12));
  }

  /** The covered share of each of *count* equal columns from *start* to *end*; below 0 where it was not recorded. */
  columns(lane, start, end, count) {
    const shares = new Float32Array(count), width = (end - start) / count, node = Math.floor(lane / KINDS.length);
    this.eachPiece(lane, start, end, (from, to) => {
      const a = (from - start) / width, b = Math.min((to - start) / width, count);
      const first = Math.floor(a), last = Math.min(Math.floor(b), count - 1);
      if (first >= count) return;
      if (first === last) { shares[first] += b - a; return; }
      shares[first] += first + 1 - a;
      for (let at = first + 1; at < last; at++) shares[at] = 1;
      shares[last] += b - last;
    });
    let summed = 0;
    if (this.parts) {
      for (let at = 0; at < count; at++) {
        const from = start + at * width;
        if (this.isExact(node, from, from + width)) continue;
        shares[at] = this.shareOfParts(lane, from, from + width);
        summed++;
      }
    }
    return { shares, summed };
  }

  /** Call *found* with each piece of a window that the spans of *lane* cover; pieces do not overlap. */
  eachPiece(lane, start, end, found) {
    let covered = start;
    for (let at = this.firsts[lane]; at < this.firsts[lane + 1] && this.starts[at] < end; at++) {
      const to = Math.min(this.starts[at] + this.lengths[at], end), from = Math.max(this.starts[at], covered);
      if (to > from) { found(from, to); covered = to; }
    }
  }

  shareOfParts(lane, start, end) {
    const width = this.elapsed_s / this.parts, base = lane * this.parts;
    if (this.levels[base + Math.min(Math.floor((start + end) / 2 / width), this.parts - 1)] === UNKNOWN) return -1;
    if (!this.sums.has(lane)) {
      const sum = new Float64Array(this.parts + 1);
      for (let at = 0; at < this.parts; at++) {
        const level = this.levels[base + at];
        sum[at + 1] = sum[at] + (level === UNKNOWN ? 0 : (level / LEVELS) ** 2);
      }
      this.sums.set(lane, sum);
    }
    const sum = this.sums.get(lane);
    const until = (time) => {
      const at = Math.min(Math.max(time / width, 0), this.parts), whole = Math.min(Math.floor(at), this.parts - 1);
      return sum[whole] + (at - whole) * (sum[whole + 1] - sum[whole]);
    };
    return Math.min(1, (until(end) - until(start)) / ((end - start) / width));
  }

  /** The spans of *lane* that touch a stretch, by number. */
  touching(lane, start, end) {
    const found = [];
    for (let at = this.firsts[lane]; at < this.firsts[lane + 1] && this.starts[at] <= end; at++) {
      if (this.starts[at] + this.lengths[at] >= start) found.push(at);
    }
    return found;
  }

  name(node) {
    return this.names[node] ?? `rank ${node}`;
  }

  /** Return a span as text. */
  describe(lane, at) {
    const kind = lane % KINDS.length, peer = this.peers[at], tag = this.tags[this.tagsOf[at]] ?? "";
    const with_ = peer >= 0 ? ` ${kind === 1 ? "to" : "from"} ${this.name(peer)}` : "";
    const bytes = this.bytes[at] ? `, ${size(this.bytes[at])}` : "";
    return `${KINDS[kind][0]} ${tag}${with_}: ${seconds(this.lengths[at])} from ${seconds(this.starts[at])}${bytes}`;
  }
}
