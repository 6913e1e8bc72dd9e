/** Codes as patterns of bits. A code is a string of "0" and "1", bit 0 first. */

import { svg } from "./dom.js";

const CELL = 16; // side of a bit with its gap
const BIT = 12; // side of a bit

/** The positions at which two codes differ. */
export function differing(bits, others) {
  return Array.from(bits, (_, position) => position).filter((position) => bits[position] !== others[position]);
}

/** "3 of 64 bits differ". */
export function describe(differences, nBits) {
  return `${differences} of ${nBits} bits ${differences === 1 ? "differs" : "differ"}`;
}

/**
 * A code as a pattern: a filled square is a one, an outlined square a zero. Where the other code differs, the square
 * has a frame and another colour, so that colour alone does not tell.
 *
 * @param {string} bits
 * @param {string} [others] - the code to compare with
 * @returns {SVGElement}
 */
export function drawBits(bits, others = bits) {
  const columns = bits.length > 256 ? 32 : 16;
  const marked = new Set(differing(bits, others));
  const cells = Array.from(bits, (bit, position) => {
    const x = (position % columns) * CELL + 2;
    const y = Math.floor(position / columns) * CELL + 2;
    const square = { x: x + 0.5, y: y + 0.5, width: BIT - 1, height: BIT - 1, rx: 2 };
    const name = bit === "1" ? "one" : "zero";
    if (!marked.has(position)) {
      return svg("rect", { ...square, class: name });
    }
    const frame = { x: x - 1.25, y: y - 1.25, width: BIT + 2.5, height: BIT + 2.5, rx: 3.5, class: "frame" };
    return svg("g", { class: "differs" }, svg("rect", frame), svg("rect", { ...square, class: name }));
  });
  const rows = Math.ceil(bits.length / columns);
  const label = others === bits ? `Code of ${bits.length} bits` : describe(marked.size, bits.length);
  const box = `0 0 ${columns * CELL} ${rows * CELL}`;
  return svg("svg", { viewBox: box, class: "bits", role: "img", "aria-label": label }, ...cells);
}

/** A thin strip with a mark at each bit that differs, for the many neighbours of one query. */
export function drawStrip(bits, others) {
  const marks = differing(bits, others).map((position) => `M${position} 0h.8v6h-.8z`);
  return svg(
    "svg",
    { viewBox: `0 0 ${bits.length} 6`, preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" },
    svg("path", { d: `M0 2.5h${bits.length}v1H0z`, class: "base" }),
    svg("path", { d: marks.join(""), class: "marks" }),
  );
}
