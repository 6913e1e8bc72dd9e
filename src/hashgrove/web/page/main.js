/** The page: which view is shown, and what leads from one to the next. */

import { startAdd } from "./add.js";
import { ServiceError, address, get, onKeyNeeded } from "./api.js";
import { startAsk } from "./ask.js";
import { byId, count, element } from "./dom.js";
import { reportErrors } from "./errors.js";
import { describeGallery, forgetGallery, showGallery, startGallery } from "./gallery.js";
import { askForKey } from "./key.js";
import { startLarge } from "./large.js";
import { showQuality } from "./quality.js";
import { hideResults, isShown, showResults, startResults } from "./results.js";
import { collectionRoute, currentRoute, itemRoute } from "./route.js";
import { startTheme } from "./theme.js";

const SECTIONS = { collection: "collection", item: "results", query: "results", quality: "quality" };

let given = null; // the last query that has no address: an image, a vector or a code
let opened = null; // the id of the item that was opened last

async function start() {
  startTheme(byId("theme"));
  startLarge();
  onKeyNeeded(askForKey);
  byId("collection").hidden = false;
  listenToKeys();
  await reportErrors(byId("collection-error"), async () => {
    const info = await get("/info");
    describe(info);
    startGallery(info);
    startIndexes(info);
    startAdd(info, showAdded);
    startResults(info);
    startAsk(info, searchFor);
    window.addEventListener("hashchange", () => go(true));
    await go(false);
  });
}

function describe(info) {
  const size = count(info.items, "item") + (info.n_bits ? ` of ${info.n_bits} bits` : "");
  byId("about").textContent = `${info.name}: ${size}, hashgrove ${info.version}`;
  byId("to-quality").hidden = !info.has_labels;
}

/** Let the reader choose an index, if there are several. */
function startIndexes({ indexes }) {
  const own = address("/").split("/").at(-2);
  const select = byId("index-name");
  select.append(...indexes.map((name) => element("option", { selected: name === own }, name)));
  select.addEventListener("change", () => location.assign(new URL(`../${select.value}/`, address("/"))));
  byId("index").hidden = indexes.length < 2;
}

/** Show a new item among those that are similar to it. */
function showAdded(id, info) {
  describe(info);
  describeGallery(info);
  forgetGallery();
  location.hash = itemRoute(id);
}

/** Show what the address names; `moved` if the reader came from another view, whose focus has to go somewhere. */
async function go(moved) {
  const route = currentRoute();
  if (route.view === "query" && given === null) {
    location.replace("#/"); // an image or a vector is not in the address, so it is gone after a reload
    return;
  }
  const section = SECTIONS[route.view];
  reveal(section);
  byId("ask-error").hidden = true;
  await reportErrors(byId(`${section}-error`), () => show(route));
  document.title = `${byId(`${section}-title`).textContent} · hashgrove`;
  if (moved) {
    moveFocus(section);
  }
}

async function show(route) {
  if (route.view === "collection") {
    document.querySelector("[data-view=collection]").href = location.hash || "#/";
    await showGallery(route);
  } else if (route.view === "quality") {
    await showQuality();
  } else {
    const query = route.view === "item" ? { id: route.id } : given;
    opened = query.id ?? null;
    if (!isShown(query)) {
      hideResults();
      await showResults(query);
    }
  }
}

/** Search with what the reader gave; only a search that succeeds leaves the view. */
async function searchFor(wanted) {
  const query = wanted.id === undefined ? wanted : { id: await idOf(wanted.id) };
  if (query.id === null) {
    location.hash = collectionRoute({ name: wanted.id }); // several items have this name
    return;
  }
  await showResults(query);
  const address = query.id === undefined ? "#/query" : itemRoute(query.id);
  given = query.id === undefined ? query : given;
  if (location.hash === address) {
    await go(true);
  } else {
    location.hash = address;
  }
}

/** The id that a reader means, who may have typed the name on a card; null if several items have it. */
async function idOf(text) {
  try {
    await get(`/items/${encodeURIComponent(text)}`);
    return text;
  } catch (error) {
    if (error.status !== 404 && error.status !== 422) {
      throw error;
    }
    const { total, items } = await get(`/items?${new URLSearchParams({ name: text, limit: 1 })}`);
    if (!total) {
      throw new ServiceError(`There is no item with the id or the name ${text.slice(0, 80)}.`, 404);
    }
    return total === 1 ? items[0].id : null;
  }
}

function reveal(section) {
  for (const id of new Set(Object.values(SECTIONS))) {
    byId(id).hidden = id !== section;
  }
  for (const link of document.querySelectorAll("[data-view]")) {
    link.removeAttribute("aria-current");
    if (link.dataset.view === section) {
      link.setAttribute("aria-current", "page");
    }
  }
}

/** Back in the collection the focus returns to the item that was opened; elsewhere it goes to the title. */
function moveFocus(section) {
  const links = section === "collection" ? [...document.querySelectorAll("#collection [data-id]")] : [];
  const link = links.find(({ dataset }) => dataset.id === opened);
  if (link) {
    link.focus();
  } else {
    byId(`${section}-title`).focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

function listenToKeys() {
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash belongs to the views
    byId("main").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.altKey || event.ctrlKey || event.metaKey) {
      return;
    }
    if (event.key === "/" && !event.target.matches("input:not([type=range], [type=radio]), textarea")) {
      event.preventDefault();
      byId("ask-text").focus();
    } else if (event.key === "Escape" && currentRoute().view !== "collection") {
      location.hash = document.querySelector("[data-view=collection]").hash;
    }
  });
}

start();
