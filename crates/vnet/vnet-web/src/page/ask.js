// Requests to the process that serves this page. Each bears the token that stands in the address
// behind #, which browsers keep to themselves.

export const token = location.hash.slice(1);

/** What was refused, or not answered: `status` 0. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The answer to a request: JSON, or as `{ as: "text" }` and `{ as: "blob" }` say. */
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

/** The path of something of a network. */
export const of = (network, rest = "") => "/v1/vnets/" + encodeURIComponent(network) + rest;

export const wait = (ms) => new Promise((done) => setTimeout(done, ms));
