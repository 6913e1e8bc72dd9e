/** The dialog that asks for the key of the service. */

import { byId } from "./dom.js";

/**
 * Ask for a key.
 *
 * @param {boolean} refused - whether the service did not take the last one
 * @returns {Promise<string|null>} null if the reader has none
 */
export function askForKey(refused) {
  const dialog = byId("key");
  const text = byId("key-text");
  byId("key-error").hidden = !refused;
  text.value = "";
  byId("key-cancel").onclick = () => dialog.close("");
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    dialog.close(text.value.trim());
  };
  dialog.returnValue = ""; // what Escape leaves
  dialog.showModal();
  text.focus();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue || null);
  });
}
