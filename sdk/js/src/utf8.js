// UTF-8, for engines without `TextEncoder` and `TextDecoder`. `globals.js` installs both classes
// there; elsewhere the SDK uses the engine's own.

export class Utf8Encoder {
  get encoding() {
    return "utf-8";
  }

  encode(text = "") {
    const bytes = new Uint8Array(text.length * 3);
    let length = 0;
    for (let i = 0; i < text.length; i++) {
      let code = text.charCodeAt(i);
      if (code < 0x80) {
        bytes[length++] = code;
        continue;
      }
      if (code >= 0xd800 && code < 0xe000) {
        const low = code < 0xdc00 ? text.charCodeAt(i + 1) : NaN;
        if (low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          i++;
        } else {
          code = 0xfffd;
        }
      }
      if (code < 0x800) {
        bytes[length++] = 0xc0 | (code >> 6);
      } else {
        if (code < 0x10000) {
          bytes[length++] = 0xe0 | (code >> 12);
        } else {
          bytes[length++] = 0xf0 | (code >> 18);
          bytes[length++] = 0x80 | ((code >> 12) & 0x3f);
        }
        bytes[length++] = 0x80 | ((code >> 6) & 0x3f);
      }
      bytes[length++] = 0x80 | (code & 0x3f);
    }
    return bytes.slice(0, length);
  }
}

/** Units per `fromCharCode`: a call has as many arguments, and the stack is small. */
const CHUNK = 4096;

export class Utf8Decoder {
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`the encoding ${label} is not supported`);
    this.fatal = fatal;
    this.ignoreBOM = ignoreBOM;
  }

  get encoding() {
    return "utf-8";
  }

  decode(input = new Uint8Array()) {
    const bytes = view(input);
    let text = "";
    let units = [];
    let i = !this.ignoreBOM && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    while (i < bytes.length) {
      const first = bytes[i++];
      if (first < 0x80) {
        units.push(first);
      } else {
        const { code, length } = sequence(bytes, i, first);
        i += length;
        if (code < 0 && this.fatal) throw new TypeError("the bytes are not UTF-8");
        if (code < 0) units.push(0xfffd);
        else if (code < 0x10000) units.push(code);
        else units.push(0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
      }
      if (units.length >= CHUNK) {
        text += String.fromCharCode.apply(null, units);
        units = [];
      }
    }
    return text + String.fromCharCode.apply(null, units);
  }
}

/**
 * Returns the code point that `first` begins, and the number of bytes after it; a negative code for
 * an invalid sequence, whose valid prefix is one replacement character (as in the Encoding
 * Standard).
 */
function sequence(bytes, start, first) {
  const count =
    first >= 0xf0 && first <= 0xf4
      ? 3
      : first >= 0xe0
        ? first < 0xf0
          ? 2
          : 0
        : first >= 0xc2
          ? 1
          : 0;
  if (count === 0) return { code: -1, length: 0 };
  let code = first & (0x3f >> count);
  for (let n = 0; n < count; n++) {
    const next = bytes[start + n];
    if (!(next >= lowest(first, n) && next <= highest(first, n))) return { code: -1, length: n };
    code = (code << 6) | (next & 0x3f);
  }
  return { code, length: count };
}

// The second byte excludes overlong forms, surrogates, and code points above 0x10ffff.
function lowest(first, n) {
  if (n > 0) return 0x80;
  return first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
}

function highest(first, n) {
  if (n > 0) return 0xbf;
  return first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
}

function view(input) {
  if (input instanceof Uint8Array) return input;
  if (ArrayBuffer.isView(input))
    return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  return new Uint8Array(input);
}

/** Returns bytes as they are, and a text in UTF-8. */
export function toBytes(data) {
  return typeof data === "string" ? new TextEncoder().encode(data) : view(data);
}

/** Returns the text of bytes. Throws if they are not UTF-8; `what` names them. */
export function toText(what, bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${what}: it is not text in UTF-8`);
  }
}
