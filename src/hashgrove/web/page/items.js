/** Items as cards with an image, or as rows of text; and the arrow keys that go from one to the next. */

import { element } from "./dom.js";
import { itemImage } from "./images.js";
import { showLarge } from "./large.js";
import { itemRoute } from "./route.js";

const itemOf = new WeakMap(); // of the links whose items have an image

/**
 * An item as a link to its neighbours.
 *
 * @param {Object} item - as the service gives it
 * @param {...(Node|null)} more - what stands below its name
 * @returns {HTMLLIElement}
 */
export function itemCard(item, ...more) {
  const fields = Object.entries(item.fields ?? {}).map(([name, value]) =>
    element("span", { class: "field" }, element("span", { class: "field-name" }, name), ` ${value}`),
  );
  const link = element(
    "a",
    { href: itemRoute(item.id), class: "item", "data-id": item.id, title: nameOf(item) },
    item.image ? itemImage(item.image) : null,
    element("span", { class: "name" }, nameOf(item)),
    item.label === undefined ? null : element("span", { class: "label" }, item.label),
    fields.length ? element("span", { class: "fields" }, ...fields) : null,
    ...more,
  );
  if (!item.image) {
    return element("li", {}, link);
  }
  const enlarge = { type: "button", class: "enlarge", tabindex: "-1", "aria-label": `Larger view of ${nameOf(item)}` };
  const button = element("button", { ...enlarge, onclick: () => openLarge(link) });
  itemOf.set(link, item);
  return element("li", {}, link, button);
}

/** The large view of an item of a list, among the others. */
function openLarge(link) {
  const links = [...link.closest("ul, ol").querySelectorAll("a.item")].filter((one) => itemOf.has(one));
  showLarge(
    itemOf.get(link),
    links.map((one) => itemOf.get(one)),
  );
}

/** The name of an item, or its id. */
export function nameOf(item) {
  return item.name ?? item.id;
}

/** Let the arrow keys, Home and End move between the items of a list, and "v" open the large view of one. */
export function listenToArrows(list) {
  list.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a.item")];
    const at = links.indexOf(event.target);
    if (event.key === "v" && itemOf.has(links[at])) {
      openLarge(links[at]);
      return;
    }
    const columns = links.filter((link) => top(link) === top(links[0])).length;
    const steps = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -columns,
      ArrowDown: columns,
      Home: -at,
      End: links.length - 1 - at,
    };
    const target = links[at + steps[event.key]];
    if (at >= 0 && target && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      target.focus();
    }
  });
}

function top(link) {
  return Math.round(link.getBoundingClientRect().top);
}
