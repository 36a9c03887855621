// Parses the text of /metrics, and computes rates and percentiles from two scrapes. A series is named as in
// the text: `name{label="value",…}`.

const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:\\.|[^"\\])*)"/g;
const ESCAPED = { "\\\\": "\\", '\\"': '"', "\\n": "\n" };

/** One scrape: its series, and when it was made (ms of the page's clock). */
export class Scrape {
  constructor(text, atMs) {
    this.atMs = atMs;
    this.values = new Map();
    this.families = new Map();
    for (const line of text.split("\n")) {
      const end = line.lastIndexOf(" ");
      if (end < 0 || line.startsWith("#")) continue;
      const series = line.slice(0, end);
      const name = series.split("{", 1)[0];
      const labels = {};
      for (const [, label, value] of series.matchAll(LABEL)) {
        labels[label] = value.replace(/\\[\\"n]/g, (escaped) => ESCAPED[escaped]);
      }
      const value = Number(line.slice(end + 1));
      this.values.set(series, value);
      if (!this.families.has(name)) this.families.set(name, []);
      this.families.get(name).push({ series, labels, value });
    }
  }

  /** The value of a series; undefined when the server does not tell it. */
  value(series) {
    return this.values.get(series);
  }

  /** All series of a name: `{ series, labels, value }`. */
  family(name) {
    return this.families.get(name) ?? [];
  }
}

/** How much a counter grew from one scrape to another. One that is smaller has begun anew. */
export function increase(series, now, before) {
  const [end, begin] = [now.value(series) ?? 0, before.value(series) ?? 0];
  return end >= begin ? end - begin : end;
}

/** The growth of all counters of a name whose labels `wanted` takes. */
export function increases(name, now, before, wanted = () => true) {
  const series = now.family(name).filter(({ labels }) => wanted(labels));
  return series.reduce((sum, { series }) => sum + increase(series, now, before), 0);
}

/** A second's share of a growth. */
export function perSecond(growth, now, before) {
  const seconds = (now.atMs - before.atMs) / 1000;
  return seconds > 0 ? growth / seconds : 0;
}

/** The growth of a histogram's buckets, `[upper bound, observations up to it]` in order. */
export function buckets(name, now, before, wanted = () => true) {
  const byBound = new Map();
  for (const { series, labels } of now.family(`${name}_bucket`)) {
    if (!wanted(labels)) continue;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    byBound.set(bound, (byBound.get(bound) ?? 0) + increase(series, now, before));
  }
  return [...byBound].sort(([a], [b]) => a - b);
}

/** A quantile as Prometheus estimates it: linear within its bucket. NaN without observations; in the last
 *  bucket its lower bound. */
export function quantile(q, cumulative) {
  const total = cumulative.at(-1)?.[1] ?? 0;
  if (total === 0) return NaN;
  const rank = q * total;
  let [lower, below] = [0, 0];
  for (const [bound, upTo] of cumulative) {
    if (upTo >= rank && upTo > below) {
      return bound === Infinity ? lower : lower + ((bound - lower) * (rank - below)) / (upTo - below);
    }
    [lower, below] = [bound, upTo];
  }
  return lower;
}
