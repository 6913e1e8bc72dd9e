/** Elements of HTML and SVG from plain calls. Text stays text: nothing here parses markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element.
 *
 * @param {string} tag
 * @param {Object} attributes - names and values; `null`, `undefined` and `false` leave an attribute out, and a
 *   function under `onclick`, `oninput`, ... listens to that event
 * @param {...(Node|string|null)} children - `null` is left out
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element; the arguments are those of `element`. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A number for people: 12,345 or 0.123. */
export function number(value, digits = 0) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** "1 item" or "12 items". */
export function count(value, one, several = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : several}`;
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
