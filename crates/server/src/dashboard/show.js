// Builds elements of the page from lists of items. An element that shows a series of /metrics has the series'
// name and value as scraped in `data-series` and `data-value`.

function element(name, text, className = "") {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function mark(shown, series, value) {
  if (series === undefined || value === undefined) return;
  shown.dataset.series = series;
  shown.dataset.value = value;
}

/** A text in a mood: good, warn, bad, or none. */
export function mood(shown, word, text) {
  if (shown.dataset.mood !== word) shown.dataset.mood = word;
  // A status that is set again is announced again by screen readers.
  if (shown.textContent !== text) shown.textContent = text;
}

/** `{ name, text, more, series, mood }` each. */
export function tiles(list, all, scrape) {
  list.replaceChildren(...all.map(({ name, text, more, series, mood: word }) => {
    const tile = element("div");
    if (word) tile.dataset.mood = word;
    const value = element("dd", text);
    mark(value, series, scrape.value(series));
    tile.append(element("dt", name), value, element("dd", more, "more"));
    return tile;
  }));
}

/** `{ name, text, series, wide, bar }` each. */
export function facts(list, all, scrape) {
  list.replaceChildren(...all.map(({ name, text, series, wide, bar }) => {
    const fact = element("div", undefined, wide ? "wide" : "");
    const value = element("dd", text);
    mark(value, series, scrape.value(series));
    fact.append(element("dt", name), value);
    if (Number.isFinite(bar)) {
      const [track, full] = [element("div", undefined, "bar"), element("span")];
      full.style.width = `${Math.min(100, 100 * bar)}%`;
      track.append(full);
      fact.append(track);
    }
    return fact;
  }));
}

/** A table's body: each cell a text, or `{ text | code, series, value }`. */
export function rows(table, none, all, className = "") {
  const cell = (of) => {
    const { text, code, series, value } = typeof of === "string" ? { text: of } : of;
    const made = element("td", code === undefined ? text : undefined);
    if (code !== undefined) made.append(element("code", code));
    mark(made, series, value);
    return made;
  };
  const row = (cells) => {
    const made = element("tr");
    made.append(...cells.map(cell));
    return made;
  };
  const empty = () => {
    const made = element("tr"), text = element("td", none, "none");
    text.colSpan = table.tHead.rows[0].cells.length;
    made.append(text);
    return made;
  };
  table.className = className;
  table.tBodies[0].replaceChildren(...(all.length ? all.map(row) : [empty()]));
}
