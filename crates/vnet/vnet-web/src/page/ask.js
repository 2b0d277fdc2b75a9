// Requests to the process that serves this page. Each carries the token from the page's URL, the
// part behind #, which browsers do not send.

export const token = location.hash.slice(1).split("/")[0];

/** The error for a refused request; `status` is 0 if there was no answer. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sends a request and returns the answer: parsed JSON, or text or a blob with `{ as: "text" }`
 *  and `{ as: "blob" }`. */
export async function ask(method, path, body, { as = "json" } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: { authorization: "Bearer " + token },
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch {
    throw new Refusal(0, "There is no answer: the process that serves this page has ended, or the "
      + "way there is broken. This page asks again.");
  }
  if (!answer.ok) throw new Refusal(answer.status, await reason(answer));
  if (as === "blob") return answer.blob();
  const text = await answer.text();
  return as === "text" ? text : text === "" ? null : JSON.parse(text);
}

async function reason(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text || answer.statusText;
  }
}

/** The path of a network, followed by `rest`. */
export const of = (network, rest = "") => "/v1/vnets/" + encodeURIComponent(network) + rest;

export const wait = (ms) => new Promise((done) => setTimeout(done, ms));
