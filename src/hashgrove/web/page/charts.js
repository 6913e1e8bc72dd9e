/** Charts as SVG: bars for counts, a line for a curve, rows for values by name. They are drawn anew at each width. */

import { number, svg } from "./dom.js";

const LEFT = 44; // room for the numbers beside the vertical axis
const BOTTOM = 34; // room for the numbers and the title below the horizontal axis
const TOP = 10;
const RIGHT = 14; // half of the last number below the horizontal axis

/**
 * Keep a chart in `container`, as wide as that is.
 *
 * @param {HTMLElement} container
 * @param {function(number): SVGElement} draw - gives the chart for a width in pixels
 */
export function keepChart(container, draw) {
  const show = () => {
    const width = Math.floor(container.clientWidth);
    if (width > 0) {
      container.replaceChildren(draw(width));
    }
  };
  observers.get(container)?.disconnect();
  const observer = new ResizeObserver(show);
  observers.set(container, observer);
  observer.observe(container);
}

const observers = new WeakMap();

/**
 * Bars for the counts of 0, 1, 2, ...
 *
 * @param {number[]} counts
 * @param {Object} how
 * @param {number} how.width
 * @param {number} how.marked - bars up to this value stand out
 * @param {string} how.title - of the horizontal axis
 * @param {string} how.label - the chart in words
 */
export function barChart(counts, { width, marked, title, label }) {
  const height = 170;
  const plot = frame(width, height);
  const top = niceCeiling(Math.max(...counts, 1));
  const step = plot.width / counts.length;
  const bars = counts.map((value, at) => {
    const size = value === 0 ? 0 : Math.max(1, (value / top) * plot.height);
    return svg(
      "rect",
      {
        x: plot.x + at * step + Math.min(1, step / 8),
        y: plot.y + plot.height - size,
        width: Math.max(0.5, step - Math.min(2, step / 4)),
        height: size,
        class: at <= marked ? "bar marked" : "bar",
      },
      svg("title", {}, `distance ${at}: ${number(value)}`),
    );
  });
  const every = Math.max(1, 2 ** Math.ceil(Math.log2(counts.length / 6))); // a number at every 8, 16, 32 bits
  const ticks = counts.flatMap((_, at) => (at % every === 0 ? [[plot.x + (at + 0.5) * step, String(at)]] : []));
  return chart(width, height, label, grid(plot, [0, top / 2, top], top), ...bars, axis(plot, ticks, title));
}

/**
 * A curve over a logarithmic horizontal axis, with values from 0 to 1.
 *
 * @param {number[][]} points - pairs of a positive number and a value
 * @param {Object} how - width, title of the horizontal axis, and label, the chart in words
 */
export function lineChart(points, { width, title, label }) {
  const height = 240;
  const plot = frame(width, height);
  const last = Math.log(Math.max(points.at(-1)[0], 2));
  const place = ([x, y]) => [plot.x + (Math.log(x) / last) * plot.width, plot.y + (1 - y) * plot.height];
  const path = points.map(
    (point, at) =>
      `${at ? "L" : "M"}${place(point)
        .map((value) => value.toFixed(1))
        .join(" ")}`,
  );
  const dots = points.map((point) => {
    const [cx, cy] = place(point);
    return svg(
      "circle",
      { cx, cy, r: 3.5, class: "dot" },
      svg("title", {}, `${number(point[0])}: ${point[1].toFixed(3)}`),
    );
  });
  const ticks = points.flatMap(([x]) => (Number.isInteger(Math.log10(x)) ? [[place([x, 0])[0], number(x)]] : []));
  return chart(
    width,
    height,
    label,
    grid(plot, [0, 0.5, 1], 1),
    svg("path", { d: path.join(""), class: "line" }),
    ...dots,
    axis(plot, ticks, title),
  );
}

function chart(width, height, label, ...parts) {
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label },
    ...parts,
  );
}

function frame(width, height) {
  return { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM };
}

function grid(plot, values, top) {
  const lines = values.flatMap((value) => {
    const y = Math.round(plot.y + (1 - value / top) * plot.height) + 0.5;
    return [
      svg("line", { x1: plot.x, x2: plot.x + plot.width, y1: y, y2: y, class: "grid" }),
      svg("text", { x: plot.x - 6, y: y + 4, class: "tick end" }, compact(value)),
    ];
  });
  return svg("g", { "aria-hidden": "true" }, ...lines);
}

function axis(plot, ticks, title) {
  const below = plot.y + plot.height;
  return svg(
    "g",
    { "aria-hidden": "true" },
    ...ticks.map(([x, text]) => svg("text", { x, y: below + 14, class: "tick middle" }, text)),
    svg("text", { x: plot.x + plot.width / 2, y: below + 30, class: "tick middle" }, title),
  );
}

/** A number that is at least `value`, and that people find as round as its half. */
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((factor) => factor * power).find((nice) => nice >= value);
}

function compact(value) {
  return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}
