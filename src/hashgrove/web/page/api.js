/** Calls of the service. Every failure becomes a ServiceError, whose message is shown to the reader. */

const BASE = new URL("..", import.meta.url); // of the service, which may be below a path of a proxy
const KEY = "hashgrove-key"; // in sessionStorage: gone with the tab

/** A request that the service refused, or a service that cannot be reached. */
export class ServiceError extends Error {
  /**
   * @param {string} message
   * @param {number} [status] - of the answer; 0 without an answer
   */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let askForKey = async () => null;
let asking = null; // the question that is open, so that several calls ask only once

/** Set what asks the reader for a key: gets whether one was refused, gives the key or null. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** The key of this tab, or null. */
export function getKey() {
  return sessionStorage.getItem(KEY);
}

/** Keep a key in this tab. */
export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** Whether calls carry a key, which the `src` of an image cannot. */
export function hasKey() {
  return getKey() !== null;
}

/** The address of a path of the service. */
export function address(path) {
  return new URL(path.slice(1), BASE).href;
}

/** The JSON answer to a GET. */
export async function get(path, signal) {
  return (await call(path, { signal })).json();
}

/** The bytes of an image. */
export async function getImage(path) {
  return (await call(path, {})).blob();
}

/** The JSON answer to a search; `body` is an object, or a FormData with an image. */
export async function postSearch(body, signal) {
  const isForm = body instanceof FormData;
  const headers = isForm ? {} : { "Content-Type": "application/json" };
  return (
    await call("/search", { method: "POST", headers, body: isForm ? body : JSON.stringify(body), signal })
  ).json();
}

/** The JSON answer to a form with the picture of a new item. */
export async function postItem(form) {
  return (await call("/items", { method: "POST", body: form })).json();
}

async function call(path, options) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = key === null ? options.headers : { ...options.headers, "X-Api-Key": key };
    const response = await reach(path, { ...options, headers });
    if (response.ok) {
      return response;
    }
    if (response.status !== 401 || !(await otherKey(key))) {
      throw await errorOf(response);
    }
  }
}

async function reach(path, options) {
  try {
    return await fetch(address(path), options);
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new ServiceError("The service does not answer. Check that it is still running, and try again.");
  }
}

/** Whether there is a key other than the refused one by now. */
async function otherKey(refused) {
  if (sessionStorage.getItem(KEY) === refused) {
    asking ??= askForKey(refused !== null).finally(() => (asking = null));
    const key = await asking;
    if (key === null) {
      return false;
    }
    sessionStorage.setItem(KEY, key);
  }
  return true;
}

async function errorOf(response) {
  try {
    const { error } = await response.json();
    return new ServiceError(error.message, response.status);
  } catch {
    return new ServiceError(`The service answered with status ${response.status}.`, response.status);
  }
}
