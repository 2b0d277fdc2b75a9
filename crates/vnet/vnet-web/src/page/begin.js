// What every page does first: find out whose page it is; and the colour theme.

import { ask, token, wait } from "./ask.js";
import { find, notice, say } from "./elements.js";

const AGAIN = 1000;

/** Fetches whose page this is and what it may request; null if the URL has no valid token. Calls
 *  `fail` with the error if there is no answer. */
export async function begin(fail) {
  if (!token) {
    notice("This address has no token: open the one that the command has printed, with what stands "
      + "behind #.", "page");
    return null;
  }
  for (;;) {
    try {
      const page = await ask("GET", "/v1/page");
      say(find("whose"), page.title);
      document.title = "Carina: " + page.title;
      return page;
    } catch (error) {
      fail(error);
      if (error.status === 401) return null;
      await wait(AGAIN);
    }
  }
}

/** Switches to the next colour theme: the system's, light, dark. */
export function nextTheme() {
  const themes = ["", "light", "dark"], root = document.documentElement;
  const now = themes.indexOf(root.dataset.theme ?? "");
  root.dataset.theme = themes[(now + 1) % themes.length];
}
