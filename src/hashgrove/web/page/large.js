/** The large view of an image, in a dialog; from there the arrow keys go to the images beside it. */

import { byId, element } from "./dom.js";
import { itemImage } from "./images.js";
import { nameOf } from "./items.js";
import { itemRoute } from "./route.js";

let items = []; // that the arrows lead through
let at = 0;

/** Prepare the dialog. */
export function startLarge() {
  const dialog = byId("large");
  byId("large-close").addEventListener("click", () => dialog.close());
  byId("large-before").addEventListener("click", () => step(-1));
  byId("large-after").addEventListener("click", () => step(1));
  byId("large-similar").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close()); // beside the dialog
  dialog.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) {
      event.preventDefault();
      step(by);
    }
  });
}

/** Open the dialog with one of these items, all of which have an image. */
export function showLarge(item, among = [item]) {
  items = among;
  at = items.findIndex(({ id }) => id === item.id);
  show();
  byId("large").showModal();
}

function step(by) {
  if (items[at + by]) {
    at += by;
    show();
  }
}

function show() {
  const item = items[at];
  byId("large-title").textContent = nameOf(item);
  byId("large-image").replaceChildren(itemImage(`${item.image}${item.image.includes("?") ? "&" : "?"}large=true`));
  const facts = Object.entries({ Label: item.label, Id: item.id, ...item.fields });
  const shown = facts.filter(([, value]) => value !== undefined && value !== "");
  byId("large-facts").replaceChildren(
    ...shown.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
  byId("large-similar").href = itemRoute(item.id);
  byId("large-before").disabled = at === 0;
  byId("large-after").disabled = at === items.length - 1;
}
