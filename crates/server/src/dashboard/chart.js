// A line chart of the last minutes. The legend shows the last values, or the values under the pointer; with
// the keyboard, the arrow keys move between values and Escape returns to the last ones.

const SVG = "http://www.w3.org/2000/svg";
const [HEIGHT, TOP, BOTTOM, LEFT] = [150, 6, 18, 44];

function make(name, attributes, parent, text) {
  const element = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

/** The next of 1, 2, 5, 10, 20 … that is not smaller. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

export class Chart {
  /** In a figure. `lines`: name and classes of each line. `format`: of values, `scale`: of the axis. `spanMs`:
   *  how much time it shows. */
  constructor(figure, lines, format, scale, spanMs) {
    Object.assign(this, { lines, format, scale, spanMs, points: [], at: null, top: 0 });
    this.svg = make("svg", { role: "img", tabindex: 0 });
    this.legend = document.createElement("div");
    this.legend.className = "legend";
    this.values = lines.map(({ name, look }) => {
      const entry = document.createElement("span");
      const mark = make("svg", { "aria-hidden": true });
      make("line", { x1: 0, x2: 22, y1: 4, y2: 4, class: `series ${look}` }, mark);
      const value = document.createElement("b");
      entry.append(mark, name + " ", value);
      this.legend.append(entry);
      return value;
    });
    figure.append(this.svg, this.legend);
    this.title = figure.querySelector("figcaption").textContent;
    new ResizeObserver(() => this.draw()).observe(this.svg);
    this.svg.addEventListener("pointermove", (event) => this.point(this.nearest(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows these points: `{ atMs, values }`, oldest first; NaN is a gap. */
  show(points) {
    this.points = points;
    this.draw();
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) this.point(Math.max(0, Math.min(this.points.length - 1, (this.at ?? this.points.length) + step)));
    else if (event.key === "Escape") this.point(null);
    else return;
    event.preventDefault();
  }

  point(at) {
    this.at = at;
    this.draw();
  }

  nearest(x) {
    const distance = ({ atMs }) => Math.abs(this.x(atMs) - x);
    return this.points.reduce((best, point, at) => (distance(point) < distance(this.points[best]) ? at : best), 0);
  }

  x(atMs) {
    const last = this.points.at(-1).atMs;
    return LEFT + ((this.width - LEFT) * (atMs - last + this.spanMs)) / this.spanMs;
  }

  y(value) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / this.top);
  }

  draw() {
    this.width = this.svg.clientWidth;
    if (this.points.length === 0 || this.width === 0) return;
    const highest = Math.max(...this.points.flatMap(({ values }) => values.filter(Number.isFinite)), 0);
    this.top = highest > 0 ? nice(highest) : 1;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    for (const share of [0, 0.5, 1]) {
      const y = this.y(this.top * share);
      make("line", { class: "grid", x1: LEFT, x2: this.width, y1: y, y2: y }, this.svg);
      make("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.svg, this.scale(this.top * share));
    }
    make("text", { x: LEFT, y: HEIGHT - 3 }, this.svg, `${this.spanMs / 60000} min ago`);
    make("text", { x: this.width, y: HEIGHT - 3, "text-anchor": "end" }, this.svg, "now");
    this.lines.forEach(({ look }, line) => {
      make("path", { class: `series ${look}`, d: this.path(line) }, this.svg);
    });
    const shown = this.points[this.at ?? this.points.length - 1] ?? this.points.at(-1);
    if (this.at !== null) {
      const x = this.x(shown.atMs);
      make("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }, this.svg);
    }
    this.values.forEach((value, line) => (value.textContent = this.format(shown.values[line])));
    const words = this.lines.map(({ name }, line) => `${name} ${this.format(shown.values[line])}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${words}`);
  }

  path(line) {
    let pen = "M";
    return this.points.map(({ atMs, values }) => {
      if (!Number.isFinite(values[line])) {
        pen = "M";
        return "";
      }
      const part = `${pen}${this.x(atMs).toFixed(1)} ${this.y(values[line]).toFixed(1)}`;
      pen = "L";
      return part;
    }).join("");
  }
}
