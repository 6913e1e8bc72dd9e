/** Errors in plain words, beside what caused them. */

import { ServiceError } from "./api.js";
import { whileBusy } from "./busy.js";
import { element } from "./dom.js";

/**
 * Do some work, and show in `slot` what went wrong. A service that is down or busy can be tried again from there.
 *
 * @param {HTMLElement} slot
 * @param {function(): Promise} work
 * @returns {Promise<boolean>} whether all went well
 */
export async function reportErrors(slot, work) {
  slot.hidden = true;
  try {
    await whileBusy(work);
    return true;
  } catch (error) {
    if (error.name === "AbortError") {
      return false; // a newer search has taken its place
    }
    if (!(error instanceof ServiceError)) {
      throw error;
    }
    const again = element(
      "button",
      { type: "button", class: "plain", onclick: () => reportErrors(slot, work) },
      "Try again",
    );
    slot.replaceChildren(error.message, error.status === 0 || error.status === 503 ? again : "");
    slot.hidden = false;
    return false;
  }
}
