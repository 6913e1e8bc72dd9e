/** The dialog that adds a picture to the collection, where the service takes one. */

import { get, postItem } from "./api.js";
import { byId, element, number } from "./dom.js";
import { reportErrors } from "./errors.js";
import { localImage } from "./images.js";

const MEGABYTE = 1 << 20;

let file = null; // that was chosen

/** Whether this service takes new pictures. */
export function canAdd(info) {
  return info.takes_images && !info.read_only;
}

/**
 * Prepare the dialog and the button that opens it.
 *
 * @param {Object} info - of the collection
 * @param {function(string, Object)} added - gets the id of a new item, and the description of the collection with it
 */
export function startAdd(info, added) {
  const dialog = byId("add");
  let { labels } = info;
  byId("to-add").hidden = !canAdd(info);
  byId("add-id-row").hidden = info.id_kind === "int"; // the service counts on
  byId("add-label-row").hidden = !info.keeps_details;
  byId("to-add").addEventListener("click", () => open(labels));
  byId("add-cancel").addEventListener("click", () => dialog.close());
  byId("add-file").addEventListener("change", ({ target }) => choose(target.files[0] ?? null));
  dialog.addEventListener("dragover", (event) => event.preventDefault());
  dialog.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation(); // the page would search with it
    choose(event.dataTransfer.files[0] ?? file);
  });
  byId("add-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    byId("add-submit").disabled = true;
    const done = await reportErrors(byId("add-error"), async () => {
      const { ids } = await postItem(form());
      dialog.close();
      const now = await get("/info");
      ({ labels } = now);
      added(ids[0], now);
    });
    byId("add-submit").disabled = !done && file === null;
  });
  byId("add-limit").textContent = `At most ${number(info.limits.image_bytes / MEGABYTE)} MB.`;
}

function open(labels) {
  byId("add-form").reset();
  byId("add-error").hidden = true;
  byId("add-labels").replaceChildren(...labels.map((label) => element("option", { value: label })));
  choose(null);
  byId("add").showModal();
}

function choose(chosen) {
  file = chosen;
  byId("add-preview").replaceChildren(...(file ? [localImage(file)] : []));
  byId("add-submit").disabled = file === null;
  byId("add-id").placeholder = file ? file.name : "the name of the file";
}

function form() {
  const data = new FormData();
  data.append("image", file, file.name);
  for (const name of ["id", "label"]) {
    const value = byId(`add-${name}`).value.trim();
    if (value) {
      data.append(name, value);
    }
  }
  return data;
}
