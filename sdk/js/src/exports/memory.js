// The interface `memory`.

import { settled } from "../kind.js";
import { boundary, expect } from "./boundary.js";

export const memory = ({ memory: [one] }) => ({
  search: (query, limit) =>
    boundary(() => {
      const found = settled("memory: search", one.search(query, limit));
      expect("memory: search", Array.isArray(found), "a list of texts");
      return found.slice(0, limit).map(String);
    }),
});
