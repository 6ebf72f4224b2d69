// An axis of the explorer: where a column's values stand between its two ends, and its ticks.
"use strict";

class Scale {
  /** An axis of *column* for *values*: logarithmic if *log*; a column of words has one place per word. */
  constructor(column, log, values) {
    Object.assign(this, { column, log });
    this.words = isNumber(column) ? null : wordsOf(column);
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (this.words) [low, high] = [-0.5, Math.max(0.5, this.words.length - 0.5)];
    else if (!(low <= high)) [low, high] = log ? [1, 10] : [0, 1];
    else if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    this.ends = log ? [Math.log(low), Math.log(high)] : [low, high];
  }

  /** Add room on both sides, so that no mark is on the frame. */
  padded(share) {
    const [low, high] = this.ends, more = this.words ? 0 : (high - low) * share;
    this.ends = [low - more, high + more];
    return this;
  }

  /** Return the position of a value: 0 at one end, 1 at the other. */
  where(value) {
    return ((this.log ? Math.log(value) : value) - this.ends[0]) / (this.ends[1] - this.ends[0]);
  }

  /** Return the value at a position from 0 to 1. */
  at(share) {
    const place = this.ends[0] + share * (this.ends[1] - this.ends[0]);
    return this.log ? Math.exp(place) : place;
  }

  /** Return [position, text] of about *count* ticks. */
  ticks(count) {
    if (this.words) {
      const every = Math.ceil(this.words.length / Math.max(2, count));
      return this.words.map((word, place) => [this.where(place), word]).filter((_, place) => place % every === 0);
    }
    const few = this.column.words && distinct(this.column).length <= 8;
    const [low, high] = [this.at(0), this.at(1)];
    let found = few ? [...new Set(Array.from(this.column.values).filter((value) => !Number.isNaN(value)))].sort((a, b) => a - b)
      : this.log ? logTicks(low, high) : ticksOf(low, high, count);
    found = found.filter((value) => value >= low - Math.abs(low) * 1e-9 && value <= high + Math.abs(high) * 1e-9);
    return found.map((value) => [this.where(value), tickText(value)]);
  }

  /** Set *filter* to the range between two positions. */
  choose(filter, from, to) {
    const [a, b] = [Math.min(from, to), Math.max(from, to)];
    if (this.words) {
      filter.is = new Set(this.words.filter((_, place) => this.where(place) >= a && this.where(place) <= b));
      return;
    }
    // With the digits that a pixel can distinguish.
    const digits = (value) => String(Number(value.toPrecision(4)));
    [filter.min, filter.max] = [digits(this.at(a)), digits(this.at(b))];
  }
}
