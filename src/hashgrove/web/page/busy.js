/** The sign that something is under way, for work that takes long enough to be noticed. */

import { byId } from "./dom.js";

const DELAY = 300; // milliseconds after which the sign is shown

let working = 0;
let timer = null;

/** Do some work; while it lasts, the page says so. */
export async function whileBusy(work) {
  working += 1;
  timer ??= setTimeout(() => (byId("busy").hidden = false), DELAY);
  try {
    return await work();
  } finally {
    working -= 1;
    if (working === 0) {
      clearTimeout(timer);
      timer = null;
      byId("busy").hidden = true;
    }
  }
}
