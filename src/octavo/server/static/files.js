// Files of the reader -> texts, through the server's own route: nothing leaves the computer.

import { json } from "./api.js";

export const MOST_BYTES = 20 << 20;

// {name, text, pages, isCut} of a file. The server reads PDF, Word, web pages and plain text.
export async function readFile(file, signal) {
  const data = toBase64(new Uint8Array(await file.arrayBuffer()));
  const read = await json("/v1/documents", { body: { name: file.name, data }, signal });
  return { name: file.name, text: read.text, pages: read.n_pages, isCut: read.truncated };
}

const PIECE = 0x8000;

function toBase64(data) {
  const parts = [];
  for (let i = 0; i < data.length; i += PIECE) parts.push(String.fromCharCode(...data.subarray(i, i + PIECE)));
  return btoa(parts.join(""));
}
