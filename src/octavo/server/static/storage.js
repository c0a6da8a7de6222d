// Conversations on disk, in the browser's own database. Nothing of them is kept on the server.

const STORE = "conversations";
let opened = null;
const memory = new Map(); // where the browser keeps nothing
let isKept = true;

function open() {
  opened ||= new Promise((resolve, reject) => {
    const asked = indexedDB.open("octavo", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE, { keyPath: "id" });
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  return opened;
}

async function run(mode, act) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, mode);
    const asked = act(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

// All conversations, the newest first. `lost` is called if the browser will keep none.
export async function readAll(lost) {
  try {
    const all = await run("readonly", (store) => store.getAll());
    return all.sort((a, b) => b.updated - a.updated);
  } catch {
    isKept = false;
    lost();
    return [...memory.values()];
  }
}

export async function write(conversation) {
  if (isKept) await run("readwrite", (store) => store.put(conversation));
  else memory.set(conversation.id, conversation);
}

export async function erase(id) {
  if (isKept) await run("readwrite", (store) => store.delete(id));
  else memory.delete(id);
}
