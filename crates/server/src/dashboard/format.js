// Numbers formatted for people.

const SHORT = [[1e9, "G"], [1e6, "M"], [1e4, "k", 1e3]];

/** A number to about three digits. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [from, unit, by = from] of SHORT) {
    if (Math.abs(value) >= from) return (value / by).toFixed(value / by < 100 ? 1 : 0) + " " + unit;
  }
  return value >= 100 || Number.isInteger(value) ? whole(value) : value.toFixed(1);
}

/** All digits, in groups. */
export function whole(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en-US").replaceAll(",", " ") : "–";
}

/** A duration. The histogram's first bucket ends at 0.5 ms, and says no more of what is in it. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds <= 0.0005) return "< 0.5 ms";
  return longer(seconds);
}

/** A duration that is measured, not estimated. */
export function longer(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return (seconds * 1e6).toFixed(0) + " µs";
  if (seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0) + " ms";
  if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return (seconds / 60).toFixed(0) + " min";
  return (seconds / 3600).toFixed(1) + " h";
}

/** Bytes. */
export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [power, unit] of [[4, "TiB"], [3, "GiB"], [2, "MiB"], [1, "KiB"]]) {
    const by = 1024 ** power;
    if (value >= by) return (value / by).toFixed(value / by < 100 ? 1 : 0) + " " + unit;
  }
  return value.toFixed(0) + " B";
}

/** A number of things. */
export function counted(value, one, many) {
  return `${whole(value)} ${value === 1 ? one : many}`;
}

/** A share. */
export function percent(part, all) {
  return all > 0 ? ((100 * part) / all).toFixed(part === all ? 0 : 1) + " %" : "–";
}
