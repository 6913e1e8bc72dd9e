/** The collection, page by page. */

import { get } from "./api.js";
import { byId, count, element, number } from "./dom.js";
import { itemCard, listenToArrows } from "./items.js";
import { collectionRoute } from "./route.js";

const PAGE = 60; // items per page: divisible by many numbers of columns

let shown = ""; // the address of the page that is on screen

/** Read the collection anew when it is shown next. */
export function forgetGallery() {
  shown = "";
}

/** Prepare the filter and the keys. */
export function startGallery(info) {
  listenToArrows(byId("collection-items"));
  const select = byId("filter-label");
  select.addEventListener("change", () => (location.hash = collectionRoute({ label: select.value })));
  describeGallery(info);
}

/** Take over what is known about the collection. */
export function describeGallery(info) {
  byId("collection-items").classList.toggle("rows", !info.has_images);
  const options = info.labels.map((label) => element("option", {}, label));
  byId("filter-label").replaceChildren(element("option", { value: "" }, "all"), ...options);
  byId("filter").hidden = !options.length;
}

/** Show a page of the collection; one that is on screen already stays as it is. */
export async function showGallery({ page, label, name }) {
  const address = collectionRoute({ page, label, name });
  if (address === shown) {
    return;
  }
  byId("filter-label").value = label;
  const parameters = new URLSearchParams({ offset: (page - 1) * PAGE, limit: PAGE });
  if (label) {
    parameters.set("label", label);
  }
  if (name) {
    parameters.set("name", name);
  }
  const { total, offset, items } = await get(`/items?${parameters}`);
  shown = address;
  byId("collection-items").replaceChildren(...items.map((item) => itemCard(item)));
  byId("collection-summary").textContent = items.length
    ? `${number(offset + 1)} to ${number(offset + items.length)} of ${count(total, "item")}${name ? ` called ${name}` : ""}`
    : "";
  byId("collection-nothing").replaceChildren(...(items.length ? [] : nothing(total, label, name)));
  byId("collection-nothing").hidden = items.length > 0;
  showPager(Math.ceil(total / PAGE), { page, label, name });
}

/** What stands in the place of items where there are none, and what leads on from there. */
function nothing(total, label, name) {
  if (!total && !label && !name) {
    const how = "Add some with “hashgrove index add”, or by a POST to ";
    return [
      element("p", {}, "There are no items yet."),
      element("p", { class: "hint" }, how, element("a", { href: "docs#post-items" }, "/items"), "."),
    ];
  }
  const [text, to, where] = total
    ? ["There is no such page.", collectionRoute({ label, name }), "Go to the first page"]
    : [`No item has the ${name ? `name ${name}` : `label ${label}`}.`, collectionRoute(), "Show all items"];
  return [element("p", {}, text), element("a", { class: "button plain", href: to }, where)];
}

function showPager(last, { page, label, name }) {
  const pager = byId("pager");
  pager.hidden = last <= 1;
  const to = (target, text) =>
    target >= 1 && target <= last
      ? element("a", { href: collectionRoute({ page: target, label, name }), class: "button plain" }, text)
      : element("span", { class: "button plain off" }, text);
  pager.replaceChildren(
    to(page - 1, "Previous"),
    element("span", {}, `Page ${number(page)} of ${number(last)}`),
    to(page + 1, "Next"),
  );
}
