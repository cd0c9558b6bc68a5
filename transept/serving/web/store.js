// What survives a reload, in IndexedDB: recordings and their transcripts ("items"), their sound ("files"), settings.
// Used by queue.js, settings.js and text-tab.js. Where the browser keeps nothing (private windows) it holds all in memory,
// and `persistent` is false.

const NAME = "transept";
const VERSION = 1;
const STORES = ["items", "files", "settings"];
const MOST_FILE_BYTES = 2 * 1024 ** 3; // of all sound together; transcripts are small beside it

export class Store {
  #database = null;
  #memory = new Map(STORES.map((name) => [name, new Map()]));

  get persistent() {
    return this.#database !== null;
  }

  /** Opens the database. Never fails: without one the store is memory. */
  static async open() {
    const store = new Store();
    try {
      store.#database = await new Promise((resolve, reject) => {
        const request = indexedDB.open(NAME, VERSION);
        request.onupgradeneeded = () => STORES.forEach((name) => request.result.createObjectStore(name));
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
        request.onblocked = () => reject(new Error("blocked"));
      });
      store.#database.onversionchange = () => store.#database.close();
    } catch {
      store.#database = null;
    }
    return store;
  }

  items() {
    return this.#read("items", (objects) => objects.getAll());
  }

  /** One item as it was last kept, by whatever window; undefined: none. */
  item(id) {
    return this.#read("items", (objects) => objects.get(id), id);
  }

  putItem(record) {
    return this.#write("items", record.id, record);
  }

  /** The sound of a recording, or undefined. */
  file(id) {
    return this.#read("files", (objects) => objects.get(id), id);
  }

  /**
   * Keeps the sound of a recording. Room is made by giving up the sound of `expendable` ids, in their order; returns
   * whether there was room, and which ids lost theirs.
   */
  async putFile(id, blob, expendable) {
    const lost = [];
    let used = await this.#fileBytes();
    const giveUp = async () => {
      const victim = expendable.shift();
      used -= (await this.file(victim))?.size ?? 0;
      await this.#write("files", victim, undefined);
      lost.push(victim);
    };
    if (blob.size > MOST_FILE_BYTES) return { kept: false, lost };
    while (used + blob.size > MOST_FILE_BYTES && expendable.length) await giveUp();
    if (used + blob.size > MOST_FILE_BYTES) return { kept: false, lost };
    for (;;) {
      try {
        await this.#write("files", id, blob);
        return { kept: true, lost };
      } catch (error) {
        if (error?.name !== "QuotaExceededError" || !expendable.length) return { kept: false, lost };
        await giveUp();
      }
    }
  }

  async remove(id) {
    await this.#write("items", id, undefined);
    await this.#write("files", id, undefined);
  }

  async clear() {
    for (const name of STORES) await this.#run(name, "readwrite", (objects) => objects.clear());
    this.#memory.forEach((map) => map.clear());
  }

  setting(name) {
    return this.#read("settings", (objects) => objects.get(name), name);
  }

  putSetting(name, value) {
    return this.#write("settings", name, value);
  }

  async #fileBytes() {
    const files = await this.#read("files", (objects) => objects.getAll());
    return files.reduce((sum, file) => sum + file.size, 0);
  }

  #read(name, ask, key) {
    if (!this.#database) return key === undefined ? [...this.#memory.get(name).values()] : this.#memory.get(name).get(key);
    return this.#run(name, "readonly", ask);
  }

  async #write(name, key, value) {
    if (!this.#database) {
      if (value === undefined) this.#memory.get(name).delete(key);
      else this.#memory.get(name).set(key, value);
      return;
    }
    await this.#run(name, "readwrite", (objects) => (value === undefined ? objects.delete(key) : objects.put(value, key)));
  }

  #run(name, mode, act) {
    if (!this.#database) return undefined;
    return new Promise((resolve, reject) => {
      const transaction = this.#database.transaction(name, mode);
      const request = act(transaction.objectStore(name));
      if (mode === "readwrite") transaction.commit?.(); // at once: the page may be about to go
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
      transaction.onerror = () => reject(transaction.error);
    });
  }
}
