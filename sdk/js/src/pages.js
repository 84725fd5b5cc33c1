// Bytes that the host returns in pages.

/** Bytes per call of the host: few calls, and small enough for a plugin with little memory. */
const PAGE = 128 * 1024;

/** Returns `length` bytes from `offset`, or fewer at the end. `read(offset, length)` asks the host. */
export function readPages(read, { offset = 0, length = Infinity } = {}) {
  const pages = [];
  let size = 0;
  while (size < length) {
    const page = read(offset + size, Math.min(PAGE, length - size));
    if (page.length === 0) break;
    pages.push(page);
    size += page.length;
  }
  if (pages.length === 1) return pages[0];
  const bytes = new Uint8Array(size);
  let end = 0;
  for (const page of pages) {
    bytes.set(page, end);
    end += page.length;
  }
  return bytes;
}
