// How each page begins: whose it is, and in which colours.

import { ask, token, wait } from "./ask.js";
import { find, notice, say } from "./elements.js";

const AGAIN = 1000;

/** Whose page this is, and what can be asked for; nothing if its address has no good token. `fail`
 *  is told why there is no answer. */
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

/** Colours: as the system has them, light, dark. */
export function nextTheme() {
  const themes = ["", "light", "dark"], root = document.documentElement;
  const now = themes.indexOf(root.dataset.theme ?? "");
  root.dataset.theme = themes[(now + 1) % themes.length];
}
